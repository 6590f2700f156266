"""Cameras: they come, go and come back, and their stream stays; what is secret is not told."""

import contextlib
import functools
import itertools
import logging
import socket
import threading
import time
import traceback
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb.errors import AccessDeniedError, ClosedError, InvalidArgumentError
from cuframes_nb.sources import (
    LiveVideo,
    VideoFile,
    from_camera,
    live,
    open_source,
    play,
    read_stamp,
)
from cuframes_nb.sources.opening import is_live_address
from tests.helpers.films import stamped_film, stamped_jpegs
from tests.helpers.http_camera import HttpCamera
from tests.helpers.rtsp import RtspServer

pytestmark = pytest.mark.process

REFUSED = "rtsp://me:s3cret@127.0.0.1:1/cam"
"""Nobody listens at the port of tcpmux."""


@pytest.fixture(scope="module")
def film(tmp_path_factory):
    return stamped_film(tmp_path_factory.mktemp("film") / "film.mp4")


@pytest.fixture(scope="module")
def jpegs():
    return stamped_jpegs()


@contextlib.contextmanager
def playing(source, key="cam1", **options):
    """Publish a source, and yield a subscriber and the publisher."""
    stop = threading.Event()
    with (
        source,
        source.publisher(key, memory="host", **options) as publisher,
        cf.subscribe(key) as subscriber,
    ):
        failed = []

        def run():
            try:
                play(source, publisher, stop=stop.is_set)
            except Exception as error:  # noqa: BLE001  told by the test
                failed.append(error)

        player = threading.Thread(target=run)
        player.start()
        try:
            yield subscriber, publisher
        finally:
            stop.set()
            player.join(20)
            assert not player.is_alive()
        assert failed == []


def number_after(subscriber, number=-1, seconds=30):
    """Wait for a frame with a higher number, and return it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(cf.FrameTimeout), subscriber.next(timeout=0.5) as frame:
            stamp = read_stamp(frame.y)
            if stamp > number:
                return stamp
    raise AssertionError(f"no frame after {number} came")


def stalled(subscriber):
    """Wait until no frames come; return the number of the last."""
    until(lambda: subscriber.info.state == "stalled")
    with subscriber.latest() as frame:
        return read_stamp(frame.y)


def until(condition, seconds=30):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


# --- RTSP -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("transport", ["tcp", "udp"])
def test_a_camera_in_the_network_is_published(film, transport):
    with (
        RtspServer(film) as server,
        playing(LiveVideo(server.url, transport=transport)) as (subscriber, publisher),
    ):
        first = number_after(subscriber)
        assert number_after(subscriber, first + 10) > first
        info = subscriber.info
        assert (info.width, info.height, info.format, info.fps) == (320, 192, "nv12", 25.0)
        assert info.state == "live"
        assert publisher.stats.dropped == 0


def test_times_are_the_cameras_on_our_clock(film):
    with RtspServer(film) as server, playing(LiveVideo(server.url)) as (subscriber, _):
        seen = []
        while len(seen) < 30:
            with subscriber.next(timeout=20) as frame:
                assert frame.pts_ns <= frame.published_ns
                seen.append((read_stamp(frame.y), frame.pts_ns))
    numbers, times = np.array(seen[10:]).T  # by then the fastest frame has come
    steps = np.diff(times) / np.diff(numbers)
    assert np.median(np.abs(steps - 40e6)) < 2e6, steps


def test_a_camera_that_dies_comes_back_to_the_same_subscribers(film, caplog):
    with (
        RtspServer(film) as server,
        playing(LiveVideo(server.url, timeout=2)) as (subscriber, publisher),
    ):
        number_after(subscriber)
        server.stop()
        before = stalled(subscriber)
        assert publisher.info.state == "stalled"
        assert [stream.state for stream in cf.list_streams()] == ["stalled"]
        server.start()
        number_after(subscriber, before)
        assert subscriber.info.state == "live"
        assert subscriber.info.epoch == 1
    assert any("trying again in" in record.message for record in caplog.records)


@pytest.mark.parametrize("frozen", [False, True], ids=["silent", "frozen"])
def test_a_camera_that_stalls_is_left_and_found_again(film, frozen):
    with RtspServer(film) as server:
        source = LiveVideo(server.url, timeout=1.0)
        with playing(source) as (subscriber, _):
            number_after(subscriber)
            server.stall(frozen=frozen)
            until(lambda: source.failures >= 1)
            before = stalled(subscriber)
            server.go_on()
            number_after(subscriber, before)


def test_a_wrong_password_is_an_error_at_once(film):
    with (
        RtspServer(film, user="me", password="right") as server,
        LiveVideo(server.url_with("me", "wr0ng")) as source,
    ):
        with pytest.raises(AccessDeniedError, match="refuses this user or password") as caught:
            source.connect(20)
        assert "wr0ng" not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize("auth", ["basic", "digest"])
def test_user_and_password_may_be_given_apart(film, auth):
    with RtspServer(film, user="me", password="a:/@b", auth=auth) as server:
        address = server.url_with(None)
        with playing(LiveVideo(address, credentials=("me", "a:/@b"))) as (subscriber, _):
            number_after(subscriber)


def test_a_path_that_is_not_there_is_an_error_at_once(film):
    with (
        RtspServer(film) as server,
        LiveVideo(f"{server.url}-not") as source,
        pytest.raises(InvalidArgumentError, match="404"),
    ):
        source.connect(20)


def test_what_does_not_answer_is_tried_again(film, caplog):
    caplog.set_level(logging.WARNING, "cuframes_nb.sources")
    with RtspServer(film, user="me", password="s3cret") as server:
        server.stop()
        with LiveVideo(server.url) as source:
            with pytest.raises(ConnectionRefusedError):
                source.connect(0.2)
            server.start()
            assert source.connect(20)
            assert source.failures > 0
    assert "s3cret" not in caplog.text
    assert "refused; trying again in 0.5 s" in caplog.text


def test_without_retry_what_does_not_answer_is_an_error():
    with LiveVideo(REFUSED, retry=False) as source:
        with pytest.raises(ConnectionRefusedError) as caught:
            source.connect(20)
        assert "s3cret" not in "".join(traceback.format_exception(caught.value))
        with pytest.raises(ConnectionRefusedError):
            list(source.frames())


def test_without_retry_a_camera_that_dies_ends_the_stream(film):
    with RtspServer(film) as server, LiveVideo(server.url, retry=False, timeout=2) as source:
        frames = source.frames()
        assert next(frame for frame in frames if frame)
        server.stop()
        ended = []
        with contextlib.suppress(OSError):
            ended.extend(frame for frame in frames if frame)
        assert len(ended) < 100


def test_waiting_for_a_camera_can_be_stopped():
    with LiveVideo(REFUSED) as source:
        answers = iter([False, False, True])
        assert not source.connect(stop=lambda: next(answers))
        assert next(source.frames()) is None
    with pytest.raises(ClosedError):
        source.connect(1)


def test_frames_that_nobody_takes_are_counted_and_the_newest_stay(film):
    with RtspServer(film) as server, LiveVideo(server.url) as source:
        assert source.connect(20)
        until(lambda: source.skipped >= 10)
        waiting = [item for item in itertools.islice(source.frames(), 3) if item]
        assert len(waiting) >= 2
        assert cf.now_ns() - waiting[0][0] < 5_000_000_000


def test_a_connection_that_waits_ends_by_itself():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"rtsp://127.0.0.1:{silent.getsockname()[1]}/cam"
        source = LiveVideo(address, timeout=3.0)
        with pytest.raises(TimeoutError, match="no frame within"):
            source.connect(0.2)
        source.close()
        source.close()
        assert source._thread.is_alive()  # in the middle of FFmpeg, which cannot be called back
        source._thread.join(20)
        assert not source._thread.is_alive()


def test_a_mistake_while_reading_is_the_players_to_tell(film, monkeypatch):
    def of(frame, nvdec):
        raise KeyError("no such format")

    monkeypatch.setattr(live.Picture, "of", of)
    with RtspServer(film) as server, LiveVideo(server.url) as source:
        with pytest.raises(KeyError, match="no such format"):
            source.connect(20)
        with pytest.raises(KeyError, match="no such format"):
            list(source.frames())


# --- HTTP -----------------------------------------------------------------------------------------


def test_a_camera_that_sends_jpegs_is_published(jpegs):
    with HttpCamera(jpegs, fps=20) as camera:
        source = open_source(camera.url, timeout=1.0)
        assert isinstance(source, LiveVideo)
        with playing(source) as (subscriber, _):
            number_after(subscriber)
            assert subscriber.info.color.range == "full"
            assert 10 <= subscriber.info.fps <= 40  # measured
            camera.stop()
            before = stalled(subscriber)
            camera.start()
            number_after(subscriber, before)
            camera.stall()
            until(lambda: source.failures >= 2)
            before = stalled(subscriber)
            camera.go_on()
            number_after(subscriber, before)


def test_a_password_of_a_camera_that_speaks_http(jpegs, caplog):
    with HttpCamera(jpegs, user="me", password="s3cret") as camera:
        with LiveVideo(camera.url_with("me", "wr0ng")) as source:
            with pytest.raises(AccessDeniedError) as caught:
                source.connect(20)
            assert "wr0ng" not in "".join(traceback.format_exception(caught.value))
        with LiveVideo(camera.url_with(None), credentials=("me", "s3cret")) as source:
            assert source.connect(20)
    assert "s3cret" not in caplog.text


# --- What is what ---------------------------------------------------------------------------------


def test_an_address_tells_a_film_from_a_camera(film):
    assert isinstance(open_source(film), VideoFile)
    assert is_live_address("rtsp://host/cam")
    assert is_live_address("UDP://239.0.0.1:1234")
    assert is_live_address("/dev/video12")
    assert not is_live_address("film.mp4")
    assert is_live_address("http://127.0.0.1:1/cam")  # not there now, so nobody knows
    assert open_source("pattern", width=64, height=48).width == 64


def test_a_film_at_a_web_server_is_a_film(tmp_path):
    stamped_film(tmp_path / "film.mkv", frames=5)
    serve = functools.partial(SimpleHTTPRequestHandler, directory=tmp_path)
    with ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        server.daemon_threads = False
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        try:
            with open_source(f"http://127.0.0.1:{server.server_port}/film.mkv") as source:
                assert isinstance(source, VideoFile)
                numbers = [at_ns for at_ns, _ in source.frames()]
        finally:
            server.shutdown()
            thread.join()
    assert numbers == [0, 40_000_000, 80_000_000, 120_000_000, 160_000_000]


def test_a_camera_at_this_machine_that_is_not_there_is_an_error():
    with from_camera(77) as source, pytest.raises(FileNotFoundError, match="/dev/video77"):
        source.connect(20)


def test_what_a_local_camera_is_asked_for():
    source = LiveVideo("/dev/video77", size=(640, 480), fps=15)
    assert source._format == "v4l2"
    assert source._options == {"video_size": "640x480", "framerate": "15"}


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"transport": "ip"}, "transport is 'ip'"),
        ({"timeout": 0}, "timeout is 0"),
        ({"timeout": float("nan")}, "timeout is nan"),
        ({"size": (64, 48)}, "V4L2 camera only"),
        ({"fps": 5}, "V4L2 camera only"),
    ],
)
def test_wrong_options_are_refused(options, match):
    with pytest.raises(InvalidArgumentError, match=match):
        LiveVideo("rtsp://127.0.0.1/cam", **options)


def test_a_scheme_that_nobody_knows_is_refused():
    with (
        LiveVideo("nonsense://127.0.0.1/cam") as source,
        pytest.raises((InvalidArgumentError, OSError), match="nonsense"),
    ):
        source.connect(20)
