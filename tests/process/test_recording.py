"""Recordings and processes that are killed, interrupted or come to their limits."""

import contextlib
import os
import resource
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import cuframes_nb as cf
from tests.helpers import frames, programs
from tests.helpers.children import child

av = pytest.importorskip("av")

pytestmark = pytest.mark.process

STEP_NS = 40_000_000


def decoded(path):
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


@contextlib.contextmanager
def publishing(key="cam", **changes):
    """Publish frames that move, 40 ms apart by their times and as fast as the test wants."""
    over = threading.Event()
    with frames.publisher(key, **changes) as pub:
        picture = np.random.default_rng(3).integers(
            0, 256, (pub.layout.height, pub.layout.width), np.uint8
        )

        def work():
            while not over.wait(0.004):
                with contextlib.suppress(cf.RingFullError), pub.acquire() as slot:
                    slot.y[:] = np.roll(picture, slot.seq, 1)
                    slot.uv[:] = slot.seq % 256
                    slot.pts_ns = slot.seq * STEP_NS

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield pub
        finally:
            over.set()
            thread.join()
        frames.until(lambda: pub.stats.slots_leased == 0)


def record_and_wait(link, path, codec, least):
    recording = cf.Recording("cam", path, codec=codec)
    frames.until(lambda: recording.info.frames >= least)
    link.say("recording", frames=recording.info.frames)
    signal.pause()


@pytest.mark.parametrize(
    ("name", "codec"),
    [("a.mp4", "h264"), ("a.mov", "h264"), ("a.mkv", "h264"), ("a.mkv", "ffv1"), ("a.mp4", "hevc"),
     ("a.mp4", "av1")],
)  # fmt: skip
def test_a_killed_recorder_leaves_a_film(tmp_path, name, codec):
    path = tmp_path / name
    size = {"width": 128, "height": 96} if codec == "av1" else {}
    with publishing(**size) as pub:
        with child(record_and_wait, str(path), codec, 220) as recorder:
            written = recorder.expect("recording")["frames"]
            recorder.kill()
        frames.until(lambda: pub.stats.subscribers == 0)
    film = decoded(path)
    # A second of film may be missing, in which 25 frames are.
    assert len(film) >= written - 30
    times = [round(frame.pts * frame.time_base * 1e9) for frame in film]
    assert times[0] == 0
    assert (np.diff(times) >= STEP_NS // 2).all()


def record_until_interrupted(link, path, limit):
    file = Path(path)

    def tell():
        frames.until(lambda: file.exists() and file.stat().st_size > 10_000)
        link.say("recording")

    threading.Thread(target=tell, daemon=True).start()
    try:
        info = cf.record("cam", path, frames=limit)
        link.say("returned", frames=info.frames, ended=info.ended)
    except KeyboardInterrupt:
        link.say("raised")


@pytest.mark.parametrize("limit", [None, 10**6])
def test_an_interrupt_finishes_the_film(tmp_path, limit):
    path = tmp_path / "a.mp4"
    with publishing(), child(record_until_interrupted, str(path), limit) as recorder:
        recorder.expect("recording")
        recorder.signal(signal.SIGINT)
        if limit is None:
            said = recorder.expect("returned")
            assert said["ended"] == "interrupted"
            assert len(decoded(path)) == said["frames"]
        else:
            recorder.expect("raised")
            assert len(decoded(path)) > 1


def record_and_leave(link, path):
    recording = cf.Recording("cam", path)
    frames.until(lambda: recording.info.frames >= 20)
    link.say("leaving")


def test_a_program_that_ends_finishes_the_film(tmp_path):
    path = tmp_path / "a.mkv"
    with publishing(), child(record_and_leave, str(path)) as recorder:
        recorder.expect("leaving")
        recorder.stop()
    with av.open(str(path)) as container:
        assert container.duration > 0  # which stands in the file only once it is finished
    assert len(decoded(path)) >= 20


def test_a_publisher_that_dies_is_waited_for(tmp_path):
    path = tmp_path / "a.mp4"
    with child(programs.publish_until_told, "cam", pause=0.01) as first:
        first.expect("ready")
        recording = cf.Recording("cam", path, codec="h264")
        frames.until(lambda: recording.info.frames >= 5)
        first.kill()
    before = recording.info.frames
    time.sleep(0.3)
    assert recording.running
    with child(programs.publish_until_told, "cam", pause=0.01) as second:
        second.expect("ready")
        frames.until(lambda: recording.info.frames >= before + 5)
        info = recording.stop()
        second.send("stop")
        assert second.expect("done")["slots_leased"] == 0
    assert info.ended == "stopped"
    assert info.paths == (path,)
    assert info.retimed == 0
    film = decoded(path)
    assert len(film) == info.frames
    times = [float(frame.pts * frame.time_base) for frame in film]
    assert np.diff(times).max() >= 0.3  # the pause is in the film
    assert info.seconds == pytest.approx(times[-1])


def test_a_subscriber_that_does_not_reconnect_ends_with_its_publisher(tmp_path):
    with child(programs.publish_until_told, "cam", pause=0.01) as publisher:
        publisher.expect("ready")
        with cf.subscribe("cam", reconnect=False) as sub:
            recording = cf.Recording(sub, tmp_path / "a.mkv")
            frames.until(lambda: recording.info.frames >= 5)
            publisher.kill()
            assert recording.wait(30)
            assert recording.stop().ended == "lost"


def record_into_little_room(link, path, codec, room):
    resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))
    try:
        cf.record("cam", path, codec=codec)
    except OSError as error:
        link.say("error", text=str(error), name=error.filename)
    link.say("threads", names=[thread.name for thread in threading.enumerate()])


@pytest.mark.parametrize(("name", "codec"), [("a.mp4", "h264"), ("a.mkv", "ffv1")])
def test_a_file_that_may_not_grow_is_told_and_can_be_played(tmp_path, name, codec):
    path = tmp_path / name
    room = 300_000
    with publishing(), child(record_into_little_room, str(path), codec, room) as recorder:
        said = recorder.expect("error")
        assert "File too large" in said["text"]
        assert said["name"] == str(path)
        names = recorder.expect("threads")["names"]
        assert not [thread for thread in names if thread.startswith("cuframes")]
    assert path.stat().st_size <= room
    assert len(decoded(path)) > 5


def fork_while_recording(link, path):
    with cf.Recording("cam", path, codec="ffv1") as recording:
        frames.until(lambda: recording.info.frames >= 5)
        pid = os.fork()
        if pid == 0:
            recording.close()
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        count = recording.info.frames
        frames.until(lambda: recording.info.frames >= count + 5)
    link.say("done", frames=recording.info.frames)


def test_a_fork_does_no_harm(tmp_path):
    path = tmp_path / "a.mkv"
    with publishing(), child(fork_while_recording, str(path)) as recorder:
        written = recorder.expect("done")["frames"]
    assert len(decoded(path)) == written
