"""Subscribing to a pipeline: a sink that behaves, and peers that do not."""

import asyncio
import contextlib
import gc
import os
import queue
import signal
import socket
import struct
import threading
import time

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.credentials import Credentials
from cuframes_nb._os.descriptions import same_description
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb.bridges import gst
from cuframes_nb.bridges.gst import memory as memory_module
from cuframes_nb.bridges.gst import session as session_module
from cuframes_nb.bridges.gst.codec import packet
from cuframes_nb.bridges.gst.messages import HEADER, Kind
from tests.helpers.children import child
from tests.helpers.frames import until, wrong
from tests.helpers.gst_server import (
    CAPS,
    HostImporter,
    Sink,
    caps,
    config,
    dialogue,
    have_data,
    have_mmap_data,
    receive,
    run_sink,
    send_fd,
)
from tests.helpers.leaks import open_fds

MODES = ["mmap", "legacy"]


@pytest.fixture
def path(runtime_dir):
    return runtime_dir / "gst"


@pytest.fixture
def importer():
    return HostImporter()


@pytest.fixture(params=MODES)
def sink(request, path):
    with Sink(path, request.param) as it:
        it.render()
        yield it


def subscribe(path, importer=None, mode="newest", **options):
    return gst.subscribe(path, "gst", mode, importer=importer or HostImporter(), **options)


def check(frame):
    """Assert that the pixels are those of the frame that the sink rendered."""
    assert wrong(frame.planes, frame.pts_ns) == ""


def next_of(sub, number):
    """Return the frame of that number, passing over those before."""
    while True:
        frame = sub.next(timeout=10)
        if frame.pts_ns >= number:
            assert frame.pts_ns == number
            return frame
        frame.release()


def held(sink, count):
    """Wait until clients hold so many buffers besides the newest."""
    until(lambda: sink.in_use == count + 1)


# --- A sink that behaves --------------------------------------------------------------------------


def test_frames_are_those_of_the_pipeline(sink, path):
    with subscribe(path) as sub:
        for _ in range(50):
            with next_of(sub, sink.render()) as frame:
                check(frame)
                assert (frame.width, frame.height, frame.format) == (64, 48, "nv12")
                assert frame.y.shape == (48, 64)
                assert frame.uv.shape == (24, 32, 2)
                assert frame.pitches == (256, 256)
                assert not frame.y.flags.writeable
    assert sink.closed_for == []


def test_info_says_how_it_is_shared(sink, path):
    with subscribe(path) as sub:
        info = sub.info
        assert info.memory == f"gst ({'mmap' if sink.mmap else 'legacy'})"
        assert info.memory_reason == ("descriptors" if sink.mmap else "handles")
        assert (info.key, info.path, info.state, info.pid) == ("gst", path, "live", os.getpid())
        assert (info.format, info.width, info.height, info.fps) == ("nv12", 64, 48, 30.0)
        assert info.policy == "drop-oldest"
        assert sub.stats.connects == 1
        assert "gst://" in repr(sub)
        assert "connected" in repr(sub)
    assert sub.closed
    assert sub.info.state == "closed"
    assert "closed" in repr(sub)


def test_every_way_to_use_a_frame(sink, path):
    with subscribe(path) as sub, sub.next(10) as frame:
        assert frame.array.shape == (72, 64)
        assert frame.rgb().shape == (48, 64, 3)
        assert frame.tensor((32, 32), dtype="float32").shape == (1, 3, 32, 32)
        copy = frame.copy()
        y = frame.y
    assert wrong(copy.planes, copy.pts_ns) == ""
    assert y.max() == y.min() == copy.y[0, 0]
    with pytest.raises(cf.ClosedError):
        frame.y  # noqa: B018


def test_newest_is_the_newest(sink, path):
    with subscribe(path) as sub:
        last = [sink.render() for _ in range(20)][-1]
        until(lambda: sub.latest().pts_ns == last)
        with sub.latest() as again:
            check(again)
        sink.render()
        assert next_of(sub, last + 1).seq > 0
        with pytest.raises(cf.FrameTimeout, match="no new frame of stream 'gst://"):
            sub.next(timeout=0.01)


def test_frames_that_nobody_takes_are_given_back_at_once(sink, path):
    with subscribe(path) as sub:
        for _ in range(30):
            sink.render()
            time.sleep(0.002)
        until(lambda: sink.in_use == 1)
        assert sink.pool <= 6
        assert sub.stats.leases == 0


def test_strict_gives_each_in_order(sink, path):
    with subscribe(path, mode="strict") as sub:
        seen = []
        for _ in range(5):
            number = sink.render()
            until(lambda number=number: sub.info.published >= number)
        while len(seen) < 6:
            with sub.next(10) as frame:
                check(frame)
                seen.append((frame.seq, frame.pts_ns))
        assert seen == [(i, i) for i in range(1, 7)]
        assert sub.stats.skipped == 0


def test_strict_keeps_eight_and_counts_the_others(sink, path):
    with subscribe(path, mode="strict") as sub:
        for _ in range(20):
            number = sink.render()
            until(lambda number=number: sub.info.published >= number)
        frames = sub.recent()
        assert [frame.seq for frame in frames] == list(range(14, 22))
        for frame in frames:
            check(frame)
        assert sub.stats.skipped == 13


def test_recent_of_one_who_wants_the_newest(sink, path):
    with subscribe(path) as sub:
        for _ in range(2):  # seen or not
            (frame,) = sub.recent()
            check(frame)
        assert sub.recent(limit=1)[0].seq == 1


def test_arrays_hold_the_frame(sink, path):
    # lifetime.md, 6
    with subscribe(path) as sub:
        frame = next_of(sub, sink.render())
        number, y = frame.pts_ns, frame.y
        frame.release()
        for _ in range(20):
            sink.render()
            time.sleep(0.001)
        held(sink, 1)
        assert wrong([y], number) == ""
        del y, frame
        sink.render()
        held(sink, 0)


def test_many_threads_let_go_while_one_takes(sink, path):
    # lifetime.md, 1 and 6
    def drop():
        while (frame := handed.get()) is not None:
            if text := wrong(frame.planes, frame.pts_ns):
                bad.append(text)
            del frame

    handed, bad = queue.SimpleQueue(), []
    with subscribe(path) as sub:
        threads = [threading.Thread(target=drop) for _ in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(300):
            sink.render()
            with contextlib.suppress(cf.LeaseLimitError, cf.FrameTimeout):
                handed.put(sub.next(timeout=0.01))
        for _ in threads:
            handed.put(None)
        for thread in threads:
            thread.join()
        sink.render()
        held(sink, 0)
    assert bad == []
    assert sink.closed_for == []


def test_a_subscriber_holds_at_most_eight(sink, path):
    with subscribe(path) as sub:
        frames = [sub.next(10)]
        frames += [next_of(sub, sink.render()) for _ in range(7)]
        assert sub.stats.leases == sub.stats.lease_limit == 8
        sink.render()
        for take in (sub.latest, lambda: sub.next(10)):
            with pytest.raises(cf.LeaseLimitError, match=r"frame\.copy\(\)"):
                take()
        assert len({frame.pts_ns for frame in frames}) == 8
        for frame in frames:
            check(frame)
        frames.pop().release()
        until(lambda: sub.stats.leases == 7)
        check(sub.next(10))


class _SlowLease(memory_module.Lease):
    """Keeps its hold when it goes, as a GPU lease does whose work still runs."""

    kept = []  # noqa: RUF012  of one test

    def __del__(self):
        self.kept.append((self._hold, self._table, self._slot))


def test_frames_that_the_gpu_still_reads_are_waited_for(sink, path, importer, monkeypatch):
    monkeypatch.setattr("tests.helpers.gst_server.Lease", _SlowLease)
    with subscribe(path, importer) as sub:
        for _ in range(8):
            sub.next(10).release()
            number = sink.render()
            until(lambda number=number: sub.info.published >= number)
        assert sub.stats.leases == 8
        with pytest.raises(cf.FrameTimeout):
            sub.next(timeout=0.05)  # and no lease limit: nobody could release anything
        held(sink, 8)

        def passed():
            hold, table, slot = _SlowLease.kept.pop()
            del hold
            table.settle(slot)

        timer = threading.Timer(0.05, passed)
        timer.start()
        sub.next(timeout=10).release()
        timer.join()
        while _SlowLease.kept:
            passed()
        sink.render()
        held(sink, 0)


@pytest.mark.parametrize("mode", MODES)
def test_mappings_are_kept(path, importer, mode):
    with Sink(path, mode) as sink:
        sink.render()
        with subscribe(path, importer) as sub:
            maps = len(importer.alive)
            for _ in range(60):
                next_of(sub, sink.render()).release()
            assert maps == 1
            assert len(importer.alive) == importer.maps <= sink.pool <= 5


def test_a_number_that_names_other_memory_now_is_mapped_anew(path, importer):
    with Sink(path) as sink:
        sink.render()
        with subscribe(path, importer) as sub:
            numbers = set()
            for _ in range(40):
                # The same caps in new buffers, whose descriptors have the old ones' numbers.
                sink.replace_buffers()
                with next_of(sub, sink.render()) as frame:
                    check(frame)
                numbers.add(sink.newest_fd)
            assert len(numbers) < importer.maps
            assert len(importer.alive) <= len(numbers) + 1


def test_where_the_kernel_cannot_tell_each_frame_is_mapped(path, importer, monkeypatch):
    def forbidden(*_fds):
        raise OSError(1, "comparing descriptors failed: Operation not permitted")

    monkeypatch.setattr(memory_module, "same_description", forbidden)
    with Sink(path) as sink:
        sink.render()
        with subscribe(path, importer) as sub:
            for _ in range(20):
                with next_of(sub, sink.render()) as frame:
                    check(frame)
            assert importer.maps >= 20
            sink.set_caps(32, 32)
            next_of(sub, sink.render()).release()
            next_of(sub, sink.render()).release()
            until(lambda: sub.info.width == 32)


def test_a_mapping_that_is_not_used_any_more_goes(path, importer, monkeypatch):
    monkeypatch.setattr(memory_module, "_UNUSED_FRAMES", 16)
    with Sink(path) as sink:
        sink.render()
        with subscribe(path, importer) as sub:
            frames = [next_of(sub, sink.render()) for _ in range(6)]
            assert len(importer.alive) > 5
            del frames
            for _ in range(60):
                next_of(sub, sink.render()).release()
            assert len(importer.alive) <= 4


def test_descriptors_are_compared_by_what_is_opened(path):
    with (
        OwnedFd(os.memfd_create("a")) as one,
        OwnedFd(os.dup(one.fileno())) as same,
        OwnedFd(os.open(f"/proc/self/fd/{one.fileno()}", os.O_RDWR)) as anew,
    ):
        assert same_description(one, same)
        assert not same_description(one, anew)


# --- Changes --------------------------------------------------------------------------------------


def test_caps_may_change(sink, path):
    with subscribe(path) as sub:
        old = next_of(sub, sink.render())
        for width, height, format_ in [(128, 96, "NV12"), (31, 17, "RGBA"), (64, 48, "P010_10LE")]:
            sink.set_caps(width, height, format_)
            with next_of(sub, sink.render()) as frame:
                check(frame)
                assert (frame.width, frame.height) == (width, height)
                assert sub.info.width == width
                assert sub.info.format == frame.format
        assert sub.stats.epoch == 4
        assert (old.width, old.height) == (64, 48)
        check(old)


def test_caps_change_drops_the_mappings(sink, path, importer):
    with subscribe(path, importer) as sub:
        for _ in range(10):
            next_of(sub, sink.render()).release()
        before = list(importer.alive)
        sink.set_caps(128, 96)
        next_of(sub, sink.render()).release()
        next_of(sub, sink.render()).release()
        numbers = {id(memory) for memory in before}
        del before
        until(lambda: not any(id(m) in numbers for m in importer.alive))


def test_caps_that_cannot_be_read_are_told(sink, path):
    with subscribe(path, reconnect=False) as sub:
        before = sub.next(10)
        sink.say_caps("video/x-raw(memory:CUDAMemory), format=(string)I420, width=(int)64")
        for _ in range(10):
            sink.render()
        with pytest.raises(cf.UnsupportedError, match="put 'cudaconvert"):
            sub.next(10)
        with pytest.raises(cf.FrameTimeout):
            sub.next(0.01)
        check(before)
        sink.set_caps(128, 96)
        check(next_of(sub, sink.render()))
        assert sub.stats.connects == 2


def test_an_end_ends_iteration(sink, path):
    with subscribe(path, mode="strict", reconnect=False) as sub:
        sink.render()
        until(lambda: sub.info.published >= 2)
        stopped = threading.Thread(target=sink.stop)
        stopped.start()
        assert [frame.pts_ns for frame in sub] == [1, 2]
        stopped.join()
        with pytest.raises(cf.PublisherGoneError, match="its pipeline ended") as caught:
            sub.next(1)
        assert caught.value.code == "publisher-gone"


def test_the_end_is_told_to_whoever_waits(sink, path):
    with subscribe(path, reconnect=False) as sub:
        sub.next(10).release()
        timer = threading.Timer(0.05, sink.stop)
        timer.start()
        with pytest.raises(cf.PublisherGoneError, match="ended"):
            sub.next(10)
        timer.join()


def test_an_idle_subscriber_does_not_keep_a_pipeline_from_ending(sink, path):
    with subscribe(path) as sub:
        assert sink.stop(seconds=1)  # well below what a frame that is held is waited for
        until(lambda: sub.info.state == "waiting")


def test_a_held_frame_does_not_keep_a_pipeline_from_ending(sink, path, monkeypatch):
    monkeypatch.setattr(session_module, "_LINGER_SECONDS", 0.2)
    with subscribe(path) as sub:
        frame = next_of(sub, sink.render())
        y = frame.y
        assert sink.stop(seconds=5)
        if sink.mmap:
            check(frame)  # the memory is this process's, too
        else:
            with pytest.raises(cf.PublisherGoneError, match="set ipc-mode=mmap"):
                frame.y  # noqa: B018
        del y
        assert sink.closed_for == []


def test_legacy_memory_is_waited_for_a_while(path):
    with Sink(path, "legacy") as sink:
        sink.render()
        with subscribe(path) as sub:
            frame = next_of(sub, sink.render())
            begun = time.monotonic()
            timer = threading.Timer(0.1, frame.release)
            timer.start()
            assert sink.stop(seconds=5)
            assert 0.05 < time.monotonic() - begun < session_module._LINGER_SECONDS
            timer.join()


def test_the_next_pipeline_is_found(path):
    def follow(sub, sink):
        sub.next(10).release()
        with next_of(sub, sink.render()) as frame:
            check(frame)
            assert frame.seq == 2
        sink.stop()

    def wait_in_vain(sub):
        with pytest.raises(cf.FrameTimeout, match="its pipeline ended"):
            sub.next(timeout=0.05)
        assert sub.info.state == "waiting"
        assert sub.stats.epoch == 0

    with Sink(path) as sink:
        sink.render()
        sub = subscribe(path)
        follow(sub, sink)
    with sub:
        for number in range(2, 5):
            wait_in_vain(sub)
            with Sink(path) as sink:
                sink.render()
                follow(sub, sink)
            assert sub.stats.connects == number


def test_without_reconnect_the_end_is_the_end(sink, path):
    with subscribe(path, reconnect=False) as sub:
        sub.next(10).release()
        sink.close()
        with pytest.raises(cf.PublisherGoneError, match="killed, or stopped"):
            sub.next(10)
        with pytest.raises(cf.PublisherGoneError):
            sub.latest()


# --- Leaving --------------------------------------------------------------------------------------


def test_frames_stay_valid_after_close(sink, path):
    with subscribe(path) as sub:
        frame = next_of(sub, sink.render())
    sub.close()
    for _ in range(20):
        sink.render()
    held(sink, 1)
    check(frame)
    for use in (sub.next, sub.latest, sub.recent):
        with pytest.raises(cf.ClosedError):
            use()
    del frame
    until(lambda: sink.render() and not sink.live)  # it sees that with its next frame


def test_a_held_frame_of_a_closed_subscriber_does_not_keep_a_pipeline_either(path):
    with Sink(path) as sink:
        sink.render()
        with subscribe(path) as sub:
            frame = sub.next(10)
        assert sink.stop(seconds=5)
        check(frame)


def test_close_wakes_who_waits(sink, path):
    with subscribe(path) as sub:
        sub.next(10).release()
        timer = threading.Timer(0.05, sub.close)
        timer.start()
        with pytest.raises(cf.ClosedError):
            sub.next(10)
        timer.join()


def test_a_subscriber_that_is_dropped_leaves(sink, path):
    sub = subscribe(path)
    sub.next(10).release()
    del sub
    gc.collect()
    until(lambda: sink.render() and not sink.live)  # it sees that with its next frame


def test_two_subscribers_of_one_sink(sink, path):
    with subscribe(path) as one, subscribe(path, mode="strict") as other:
        number = sink.render()
        check(next_of(one, number))
        check(next_of(other, number))


def test_nothing_grows(sink, path, importer):
    # lifetime.md, 12
    def settle():
        gc.collect()
        # A sink that waits for a frame sees only with the next that a client has gone.
        until(lambda: sink.render() and not sink.live)
        return len(open_fds()) - sink.pool, threading.active_count()

    for round_ in range(30):
        with subscribe(path, importer) as sub:
            next_of(sub, sink.render()).release()
        if round_ == 5:
            before = settle()
    until(lambda: settle() == before)


@pytest.mark.process
def test_a_forked_child_refuses_and_harms_nothing(sink, path):
    # lifetime.md, 10
    with subscribe(path) as sub:
        frame = next_of(sub, sink.render())
        pid = os.fork()
        if not pid:
            code = 1
            with contextlib.suppress(BaseException):
                for use in (lambda: sub.next(1), lambda: sub.info, lambda: frame.y):
                    with pytest.raises(cf.ForkedError):
                        use()
                frame.release()
                sub.close()
                del frame, sub
                gc.collect()
                code = 0
            os._exit(code)
        assert os.waitpid(pid, 0)[1] == 0
        check(frame)
        for _ in range(5):
            check(next_of(sub, sink.render()))
        held(sink, 1)


# --- In an event loop -----------------------------------------------------------------------------


def test_frames_come_in_an_event_loop_that_goes_on(sink, path):
    async def main():
        ticks = 0

        async def tick():
            nonlocal ticks
            while True:
                await asyncio.sleep(0.001)
                ticks += 1
                sink.render()

        ticker = asyncio.create_task(tick())
        count = 0
        async for frame in sub:
            check(frame)
            count += 1
            if count == 20:
                break
        ticker.cancel()
        return ticks

    with subscribe(path) as sub:
        assert asyncio.run(main()) >= 10


def test_an_event_loop_is_told_of_the_end(sink, path):
    async def main():
        return [frame.pts_ns async for frame in sub]

    with subscribe(path, reconnect=False) as sub:
        timer = threading.Timer(0.05, sink.stop)
        timer.start()
        assert asyncio.run(main()) == [1]
        timer.join()


def test_a_task_that_waits_can_be_cancelled(sink, path):
    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(aiter(sub)), 0.05)

    with subscribe(path) as sub:
        sub.next(10).release()
        asyncio.run(main())
        check(next_of(sub, sink.render()))


# --- What is built on subscribers -----------------------------------------------------------------


def test_snapshot_and_record_take_it(sink, path, tmp_path):
    with subscribe(path) as sub:
        assert isinstance(sub, cf.Subscriber)
        saved = cf.snapshot(sub, tmp_path / "one.npy")
        assert np.load(saved).shape == (72, 64)
        with cf.Recording(sub, tmp_path / "film.mkv") as film:
            until(lambda: sink.render() and film.info.frames > 2)


# --- Addresses and this machine -------------------------------------------------------------------


def test_the_public_way_says_that_a_gpu_is_needed(sink, path):
    from tests.helpers.device import why_no_cuda

    if why_no_cuda() is None:
        pytest.skip("there is one")
    with pytest.raises((cf.UnsupportedError, cf.DeviceError), match="memory of an NVIDIA GPU"):
        cf.subscribe(f"gst://{path}")


def test_the_public_way(sink, path, monkeypatch):
    monkeypatch.setattr("cuframes_nb.bridges.gst.opening._on_gpu", lambda _device: HostImporter())
    with cf.subscribe(f"gst://{path}", "strict", reconnect=False) as sub:
        frame = sub.next(10)
        check(frame)
        assert frame.key == sub.info.key == "gst"
        del frame
    with pytest.raises(cf.UnsupportedError, match="writable=True"):
        cf.subscribe(f"gst://{path}", writable=True)


@pytest.mark.parametrize("source", ["gst://", "gst:///tmp/", "gst:///" + "x" * 120])
def test_what_names_no_socket_is_refused(source):
    with pytest.raises(cf.InvalidArgumentError):
        cf.subscribe(source)


def test_nobody_there(path):
    with pytest.raises(cf.StreamNotFoundError, match="no GStreamer pipeline listens at") as caught:
        subscribe(path, timeout=0)
    assert "cudaipcsink address=" in str(caught.value)
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    with pytest.raises(cf.StreamNotFoundError, match="any more: its pipeline has ended"):
        subscribe(path, timeout=0.02)


def test_a_pipeline_that_comes_later_is_waited_for(path):
    found = []
    waiting = threading.Thread(target=lambda: found.append(subscribe(path, timeout=20)))
    waiting.start()
    time.sleep(0.05)
    with Sink(path) as sink:
        time.sleep(0.05)
        sink.render()
        waiting.join()
        with found.pop() as sub:
            check(sub.next(10))


def test_one_of_our_own_streams_is_none_of_gstreamer(runtime_dir):
    with (
        cf.Publisher("cam", width=64, height=48, memory="host") as pub,
        pytest.raises(cf.StreamNotFoundError, match="without gst://"),
    ):
        subscribe(pub.info.path)


def test_a_pipeline_of_a_stranger_is_not_trusted(sink, path, monkeypatch):
    # lifetime.md, 8
    stranger = Credentials(1, 4242, frozenset())
    monkeypatch.setattr(ByteStream, "peer", lambda _self: stranger)
    with pytest.raises(cf.AccessDeniedError, match=r"trusted_uids=\(4242,\)"):
        subscribe(path)
    with subscribe(path, trusted_uids=frozenset({4242})) as sub:
        check(sub.next(10))
    monkeypatch.setenv("CUFRAMES_TRUSTED_UIDS", "17, 4242")
    with subscribe(path) as sub:
        check(sub.next(10))


# --- Peers that do not behave ---------------------------------------------------------------------


def memfd(nbytes=20480):
    fd = os.memfd_create("peer")
    os.truncate(fd, nbytes)
    return fd


def one_frame(sock, number=3, *, fds=1, **changes):
    """Answer a client's question with a frame."""
    assert receive(sock)[0] is Kind.NEED_DATA
    fd = memfd()
    try:
        sock.sendall(have_mmap_data(number, **changes))
        send_fd(sock, *[fd] * fds)
    finally:
        os.close(fd)


def begin(then, taken=None):
    """Return a script: config and a good frame, then, once it was taken, something else."""

    def script(sock):
        sock.sendall(config())
        one_frame(sock)
        assert receive(sock)[0] is Kind.READ_DONE
        if taken is not None:
            taken.wait(10)
        then(sock)
        while receive(sock) is not None:
            pass

    return script


def raw(data):
    return lambda sock: sock.sendall(data)


def header(kind, length):
    return HEADER.pack(kind, length, 0xC0DA10C0)


LIES = {
    "noise": (raw(b"\x93" * 500), "no cudaipcsink"),
    "magic": (raw(struct.pack("<BII", 1, 0, 1)), "no cudaipcsink"),
    "unknown": (raw(packet(Kind.FIN)), "type 9"),
    "huge": (raw(header(Kind.HAVE_MMAP_DATA, 2**32 - 1)), "at most 65536"),
    "second config": (raw(config()), "config"),
    "short": (raw(packet(Kind.HAVE_MMAP_DATA, bytes(20))), "ends inside a field"),
    "legacy": (raw(have_data(bytes(64))), "of mode mmap"),
    "no descriptor": (lambda s: s.sendall(have_mmap_data() + b"\0"), "0 descriptors instead of 1"),
    "two": (lambda s: one_frame(s, fds=2), "2 descriptors instead of 1"),
    "seven": (lambda s: one_frame(s, fds=7), "more than 4 descriptors"),
    "early descriptor": (lambda s: socket.send_fds(s, [have_mmap_data()[:3]], [0]), "none belongs"),
    "outside": (lambda s: one_frame(s, offsets=(0, 30000, 0, 0)), "ends at byte"),
    "size": (lambda s: one_frame(s, size=2**31), "the driver that its memory has"),
    "allocation": (lambda s: one_frame(s, 4, max_size=2**31), "the driver says 20480"),
    "grown": (lambda s: one_frame(s, max_size=2**31), "the driver says 20480"),
    "pitch": (lambda s: one_frame(s, pitch=3), "cannot be"),
    "caps": (lambda s: one_frame(s, text="audio/x-raw"), "not those of raw video"),
    "larger than it is": (lambda s: one_frame(s, text=caps(640, 480)), "cannot be"),
    "longer than it is": (lambda s: one_frame(s, text=caps(64, 4800)), "inside the plane"),
}


@pytest.mark.parametrize("name", LIES)
def test_nothing_that_a_peer_sends_is_believed(name, path):
    # lifetime.md, 7
    then, says = LIES[name]
    before = open_fds()
    taken = threading.Event()
    with dialogue(path, begin(then, taken)), subscribe(path, reconnect=False) as sub:
        frame = sub.next(10)
        taken.set()
        with pytest.raises(cf.RemoteProtocolError, match=says):
            sub.next(10)
        assert frame.y.max() == 0  # what it has, it keeps
        with pytest.raises(cf.PublisherGoneError):
            sub.next(10)
        del frame
    until(lambda: open_fds() <= before)


BEFORE = {
    "noise": (raw(b"\x93" * 500), cf.RemoteProtocolError, "no cudaipcsink"),
    "a frame first": (raw(have_data(bytes(64))), cf.RemoteProtocolError, "has not said"),
    "no video": (raw(config("text/plain")), cf.RemoteProtocolError, "raw video"),
    "format": (raw(config(caps(format_="YUY2"))), cf.UnsupportedError, "cudaconvert"),
    "no size": (raw(config(caps(0, 0))), cf.RemoteProtocolError, "width"),
}


@pytest.mark.parametrize("name", BEFORE)
def test_who_lies_at_once_is_told_to_who_subscribes(name, path):
    then, error, says = BEFORE[name]

    def script(sock):
        then(sock)
        while receive(sock) is not None:
            pass

    with dialogue(path, script), pytest.raises(error, match=says):
        subscribe(path)


def test_a_handle_that_the_driver_does_not_know(path):
    def script(sock):
        sock.sendall(config(mmap=False))
        assert receive(sock)[0] is Kind.NEED_DATA
        sock.sendall(have_data(struct.pack("<qq", 1, 999999).ljust(64)))
        while receive(sock) is not None:
            pass

    with dialogue(path, script), pytest.raises(cf.RemoteProtocolError, match="does not know"):
        subscribe(path)


def test_a_peer_that_never_says_anything(path):
    def script(sock):
        assert receive(sock)[0] is Kind.FIN

    with dialogue(path, script), pytest.raises(cf.FrameTimeout, match="sent no frame within"):
        subscribe(path, timeout=0.1)


def test_a_peer_that_stops_in_the_midst_of_a_packet(path):
    def then(sock):
        assert receive(sock)[0] is Kind.NEED_DATA
        sock.sendall(have_mmap_data()[:20])

    with dialogue(path, begin(then)), subscribe(path) as sub:
        sub.next(10).release()
        with pytest.raises(cf.FrameTimeout):
            sub.next(timeout=0.1)


def test_a_peer_that_dribbles(path):
    def script(sock):
        for byte in config():
            sock.sendall(bytes([byte]))
        for number in range(1, 4):
            assert receive(sock)[0] is Kind.NEED_DATA
            for byte in have_mmap_data(number):
                sock.sendall(bytes([byte]))
            fd = memfd()
            send_fd(sock, fd)
            os.close(fd)
            assert receive(sock)[0] is Kind.READ_DONE
            if number > 1:
                assert receive(sock)[0] is Kind.RELEASE_MMAP_DATA
        while receive(sock) is not None:
            pass

    with dialogue(path, script), subscribe(path) as sub:
        until(lambda: sub.info.published == 3)
        sub.next(10).release()


def test_a_peer_that_goes_in_the_midst_of_a_frame(path):
    def then(sock):
        assert receive(sock)[0] is Kind.NEED_DATA
        sock.sendall(have_mmap_data()[:20])
        sock.shutdown(socket.SHUT_RDWR)

    with dialogue(path, begin(then)), subscribe(path, reconnect=False) as sub:
        sub.next(10).release()
        with pytest.raises(cf.PublisherGoneError, match="midst of a frame"):
            sub.next(10)


def test_a_release_that_is_refused_ends_the_connection_only(path):
    def then(sock):
        one_frame(sock, 4, pts=2)
        assert receive(sock)[0] is Kind.READ_DONE
        assert receive(sock) == (Kind.RELEASE_MMAP_DATA, struct.pack("<i", 3))
        sock.shutdown(socket.SHUT_RDWR)

    with dialogue(path, begin(then)), subscribe(path) as sub:
        until(lambda: sub.info.state == "waiting")
        sub.next(10).release()
        with pytest.raises(cf.FrameTimeout, match="midst of a frame"):
            sub.next(timeout=0.05)


def test_a_peer_that_reads_nothing_is_not_waited_for(path):
    # A sink that waits for a frame does not read; what was let go meanwhile waits here.
    ready = threading.Event()

    def script(sock):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)
        sock.sendall(config())
        for number in range(1, 9):
            one_frame(sock, number, pts=number)
            assert receive(sock)[0] is Kind.READ_DONE
        ready.wait(10)
        kinds = []
        while (said := receive(sock)) is not None:
            kinds.append(said[0])
        assert kinds.count(Kind.RELEASE_MMAP_DATA) == 8
        assert kinds[-1] is Kind.FIN

    with dialogue(path, script):
        with subscribe(path, mode="strict") as sub:
            until(lambda: sub.info.published == 8)
            frames = sub.recent()
            assert len(frames) == 8
            begun = time.monotonic()
            del frames
            assert time.monotonic() - begun < 1
        ready.set()


def test_a_session_that_ends_at_once_is_not_tried_without_a_pause(path):
    count = 0

    def serve():
        nonlocal count
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            count += 1
            sock.close()

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(cf.FrameTimeout, match="before its first frame"):
            subscribe(path, timeout=0.5)
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert 2 < count < 20


# --- Processes ------------------------------------------------------------------------------------


@pytest.mark.process
@pytest.mark.parametrize("mode", MODES)
def test_a_pipeline_that_is_killed_and_comes_back(path, mode):
    # lifetime.md, 3
    with child(run_sink, str(path), mode) as pipeline:
        pipeline.expect("ready")
        sub = subscribe(path)
        frame = sub.next(10)
        check(frame)
        pipeline.kill()
        until(lambda: sub.info.state == "waiting")
        if mode == "mmap":
            check(frame)
        else:
            with pytest.raises(cf.PublisherGoneError, match="ipc-mode=legacy"):
                frame.y  # noqa: B018
    del frame
    path.unlink()  # a pipeline does not take over what a killed one left
    with sub, child(run_sink, str(path), mode) as pipeline:
        pipeline.expect("ready")
        for _ in range(20):
            with sub.next(10) as frame:
                if sub.stats.connects == 2:
                    check(frame)
        assert sub.stats.connects == 2


@pytest.mark.process
def test_a_pipeline_that_stops_for_a_while(path):
    with child(run_sink, str(path)) as pipeline:
        pid = pipeline.expect("ready")["pid"]
        with subscribe(path) as sub:
            check(sub.next(10))
            os.kill(pid, signal.SIGSTOP)
            try:
                with pytest.raises(cf.FrameTimeout):
                    for _ in range(5):
                        sub.next(timeout=0.2).release()
            finally:
                os.kill(pid, signal.SIGCONT)
            check(sub.next(10))


def test_default_caps_are_those_of_the_frames():
    assert caps(64, 48) == CAPS
