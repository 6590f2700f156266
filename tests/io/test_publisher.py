"""The writing end: slots, their states, a full ring, closing."""

import contextlib
import gc
import os
import stat
import threading

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._wire.control import RingState
from tests.helpers.frames import HEIGHT, WIDTH, check, fill, publish, publisher, until, value

FORMATS = {
    "nv12": [(HEIGHT, WIDTH), (HEIGHT // 2, WIDTH // 2, 2)],
    "p010": [(HEIGHT, WIDTH), (HEIGHT // 2, WIDTH // 2, 2)],
    "gray8": [(HEIGHT, WIDTH)],
    "rgb24": [(HEIGHT, WIDTH, 3)],
    "rgba32": [(HEIGHT, WIDTH, 4)],
}


# --- A frame's way --------------------------------------------------------------------------------


def test_a_block_publishes_and_numbers_count_from_one():
    with publisher() as pub, cf.subscribe("cam") as sub:
        for expected in (1, 2, 3):
            with pub.acquire() as slot:
                assert slot.seq == expected
                fill(slot)
            with sub.next(timeout=10) as frame:
                assert frame.seq == expected
                check(frame)


def test_publish_returns_the_number_and_takes_the_time_given():
    with publisher() as pub, cf.subscribe("cam") as sub:
        before = cf.now_ns()
        assert pub.publish(pub.acquire(), pts_ns=-5) == 1
        with sub.next(timeout=10) as frame:
            assert frame.pts_ns == -5
            assert before <= frame.published_ns <= cf.now_ns()
        slot = pub.acquire()
        slot.pts_ns = 77
        pub.publish(slot)
        with sub.next(timeout=10) as frame:
            assert frame.pts_ns == 77
            assert frame.age_ns == pytest.approx(cf.now_ns() - 77, rel=0.01)
        pub.publish(pub.acquire())
        with sub.next(timeout=10) as frame:
            assert frame.pts_ns == frame.published_ns


def test_a_block_that_raises_gives_the_slot_back():
    with publisher() as pub:
        with pytest.raises(ZeroDivisionError), pub.acquire() as slot:
            slot.y[:] = 1 // 0
        assert pub.stats.discarded == 1
        assert pub.stats.published == 0
        assert publish(pub, 10) == 10


@pytest.mark.parametrize("spoil", ["close", "reconfigure"])
def test_a_block_that_raises_raises_that_error(spoil):
    with publisher() as pub:
        slot = pub.acquire()
        with pytest.raises(ZeroDivisionError), slot:
            pub.close() if spoil == "close" else pub.reconfigure(width=32)
            raise ZeroDivisionError


def test_publish_and_discard_inside_the_block_are_the_last_word():
    with publisher() as pub:
        with pub.acquire() as slot:
            pub.publish(slot)
        with pub.acquire() as slot:
            pub.discard(slot)
        assert pub.stats[:3] == (1, 0, 1)


@pytest.mark.parametrize("again", ["publish", "discard"])
@pytest.mark.parametrize("first", ["publish", "discard"])
def test_a_slot_is_used_once(first, again):
    with publisher() as pub:
        slot = pub.acquire()
        getattr(pub, first)(slot)
        with pytest.raises(cf.ClosedError, match=f"this slot was {first}ed already"):
            getattr(pub, again)(slot)
        with pytest.raises(cf.ClosedError, match="acquire another"):
            _ = slot.y
        with pytest.raises(cf.ClosedError), slot:
            pass
        assert first in repr(slot)


def test_a_slot_of_another_publisher_is_refused():
    with publisher("a") as ours, publisher("b") as theirs:
        slot = theirs.acquire()
        with pytest.raises(cf.InvalidArgumentError, match="another publisher than 'a'"):
            ours.publish(slot)
        assert theirs.publish(slot) == 1


def test_a_slot_left_behind_by_a_reconfigure_is_refused():
    with publisher() as pub:
        slot = pub.acquire()
        pub.reconfigure(width=32)
        slot.y[:] = 1  # its memory is still there
        with pytest.raises(cf.ClosedError, match="before a reconfigure"):
            pub.publish(slot)
        assert publish(pub) == 1


def test_slots_that_are_dropped_are_taken_back():
    # lifetime.md, 10
    with publisher(ring_size=3) as pub:
        for _ in range(20):
            slot = pub.acquire()
            del slot
        cycle = [pub.acquire()]
        cycle.append(cycle)
        del cycle
        gc.collect()
        held = [pub.acquire() for _ in range(3)]
        with pytest.raises(cf.RingFullError):
            pub.acquire()
        assert pub.stats.discarded == 21
        del held


def test_what_is_done_to_one_array_is_not_done_to_the_next():
    with publisher(ring_size=2) as pub:
        seen = []
        for _ in range(4):
            with pub.acquire() as slot:
                for array in (slot.y, slot.array, *slot.planes):
                    seen.append((slot._index, array.shape, array.flags.writeable))
                    array.flags.writeable = False
        assert len(set(seen)) == 2 * 3
        assert all(writeable for _, _, writeable in seen)


def test_several_slots_are_numbered_as_they_are_published():
    with publisher() as pub, cf.subscribe("cam") as sub:
        first, second = pub.acquire(), pub.acquire()
        fill(second, 1)
        fill(first, 2)
        assert [pub.publish(second), pub.publish(first)] == [1, 2]
        with sub.next(timeout=10) as frame:
            assert frame.seq == 2
            check(frame)


def test_threads_may_publish_at_once():
    with publisher(ring_size=8) as pub, cf.subscribe("cam", "strict") as sub:
        seqs = []

        def work():
            for _ in range(50):
                with pub.acquire() as slot:
                    slot.y[:] = 7
                    seqs.append(pub.publish(slot))

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(seqs) == list(range(1, 201))
        assert sub.latest().seq == 200


# --- Layout ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("format_", FORMATS)
def test_every_format_has_its_planes(format_):
    with publisher(format=format_) as pub, cf.subscribe("cam") as sub:
        with pub.acquire() as slot:
            assert [plane.shape for plane in slot.planes] == FORMATS[format_]
            assert slot.xp is np is pub.xp
            seq = fill(slot)
        with sub.next(timeout=10) as frame:
            assert [plane.shape for plane in frame.planes] == FORMATS[format_]
            assert {str(plane.dtype) for plane in frame.planes} == {pub.layout.format.dtype}
            assert frame.format == format_
            check(frame, seq)
            if len(FORMATS[format_]) == 1:
                with pytest.raises(AttributeError, match="has no chroma plane"):
                    _ = frame.uv
                assert frame.array.shape == FORMATS[format_][0]
            else:
                assert frame.array.shape == (HEIGHT * 3 // 2, WIDTH)
                assert frame.array[HEIGHT:].min() == value(seq, 1, frame.y.itemsize)


@pytest.mark.parametrize(("width", "height"), [(1, 1), (3, 1), (1, 5), (33, 17), (64, 7), (7, 64)])
@pytest.mark.parametrize("format_", FORMATS)
def test_odd_sizes_keep_their_last_row_and_column(format_, width, height):
    with publisher(width=width, height=height, format=format_) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        with sub.next(timeout=10) as frame:
            assert (frame.width, frame.height) == (width, height)
            assert frame.y.shape[:2] == (height, width)
            if format_ in {"nv12", "p010"}:
                assert frame.uv.shape == (-(-height // 2), -(-width // 2), 2)
            check(frame)
            if width % 2 and format_ in {"nv12", "p010"}:
                with pytest.raises(cf.UnsupportedError, match="not one array"):
                    _ = frame.array


@pytest.mark.parametrize("pitch", [64, 66, 100, 4096, (64, 128), (200, 64)])
def test_the_pitch_is_carried(pitch):
    with publisher(pitch=pitch) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        with sub.next(timeout=10) as frame:
            wanted = (pitch, pitch) if isinstance(pitch, int) else pitch
            assert frame.pitches == sub.info.pitches == pub.info.pitches == wanted
            assert (frame.y.strides[0], frame.uv.strides[0]) == wanted
            check(frame)
            if wanted[0] == wanted[1]:
                assert frame.array.strides == (wanted[0], 1)
            else:
                with pytest.raises(cf.UnsupportedError, match="pitch"):
                    _ = frame.array


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"width": 0}, "width is 0"),
        ({"height": 40000}, "between 1 and 32768"),
        ({"width": 1.5}, "whole number"),
        ({"format": "yuv9"}, "use one of nv12"),
        ({"ring_size": 1}, "between 2 and 64"),
        ({"ring_size": 65}, "between 2 and 64"),
        ({"policy": "maybe"}, "drop-oldest, strict-wait"),
        ({"memory": "tape"}, "auto, cuda, host"),
        ({"device": 0}, "host memory has no device"),
        ({"fps": -1.0}, "positive rate"),
        ({"pitch": 63}, "a row takes 64"),
        ({"pitch": (64,)}, "pitch is .* 2 planes"),
        ({"color": cf.ColorSpec("rgb", "full")}, "does not go with"),
        ({"color": "bt709"}, "must be a ColorSpec"),
        ({"group": "no-such-group"}, "no group 'no-such-group'"),
        ({"group": 1.5}, "group's name or number"),
        ({"policy": ["drop-oldest"]}, "drop-oldest, strict-wait"),
        ({"key": "../cam"}, "cannot name a stream"),
        ({"key": ""}, "cannot name a stream"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_left(change, says, runtime_dir):
    with pytest.raises(cf.InvalidArgumentError, match=says):
        publisher(**{"key": "cam", **change})
    assert list(runtime_dir.glob("*.sock")) == []


# --- A full ring ----------------------------------------------------------------------------------


def test_a_full_ring_drops_the_new_frame():
    # lifetime.md, 2
    with publisher(ring_size=3) as pub, cf.subscribe("cam") as a, cf.subscribe("cam") as b:
        held = []
        for sub in (a, b):
            publish(pub)
            held.append(sub.next(timeout=10))
        publish(pub)
        with pytest.raises(cf.RingFullError, match="no slot of stream 'cam' is free: ") as caught:
            pub.acquire()
        assert caught.value.code == "ring-full"
        assert "1 of the 3 is the newest frame, 2 being read; see .info" in str(caught.value)
        assert pub.write(np.zeros((HEIGHT * 3 // 2, WIDTH), np.uint8)) is None
        assert pub.stats.dropped == 2
        assert pub.info.dropped == a.info.dropped == 2
        for frame in held:
            check(frame)
        held.pop().release()
        assert publish(pub) == 4


def test_a_lease_count_is_seen():
    with publisher() as pub, cf.subscribe("cam", name="eye") as sub:
        publish(pub)
        frame = sub.next(timeout=10)
        assert pub.stats.slots_leased == 1
        assert [s.holds for s in pub.info.subscribers] == [1]
        assert sub.stats.leases == 1
        frame.release()
        assert pub.stats.slots_leased == sub.stats.leases == 0


# --- The stream -----------------------------------------------------------------------------------


def test_a_second_publisher_is_refused_and_the_first_goes_on():
    with publisher() as pub, cf.subscribe("cam") as sub:
        with pytest.raises(cf.StreamExistsError, match="published already") as caught:
            publisher()
        assert caught.value.code == "already-exists"
        assert isinstance(caught.value, FileExistsError)
        publish(pub)
        check(sub.next(timeout=10))


def test_a_closed_key_is_free_at_once(runtime_dir):
    for _ in range(5):
        with publisher() as pub:
            publish(pub)
    assert list(runtime_dir.glob("*.sock")) == []


def test_a_file_in_the_way_is_left_alone(runtime_dir):
    (runtime_dir / "cam.sock").write_text("mine")
    with pytest.raises(cf.StreamExistsError, match="remove it by hand"):
        publisher()
    assert (runtime_dir / "cam.sock").read_text() == "mine"


def test_directory_and_socket_are_the_owners_alone(runtime_dir, monkeypatch):
    # lifetime.md, 8
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(runtime_dir / "new"))
    with publisher() as pub:
        info = pub.info
        assert stat.S_IMODE(info.path.stat().st_mode) == 0o600
        assert stat.S_IMODE(info.path.parent.stat().st_mode) == 0o700


def test_a_directory_that_anybody_may_write_is_refused(runtime_dir):
    runtime_dir.chmod(0o777)
    with pytest.raises(cf.AccessDeniedError, match="may write to"):
        publisher()


def test_use_after_close_is_refused_and_close_is_idempotent():
    # lifetime.md, 10
    pub = publisher()
    slot = pub.acquire()
    pub.close()
    pub.close()
    assert pub.closed
    slot.y[:] = 5  # its memory is still there
    for use in (
        pub.acquire,
        lambda: pub.publish(slot),
        lambda: pub.discard(slot),
        lambda: pub.write(np.zeros((HEIGHT * 3 // 2, WIDTH), np.uint8)),
        lambda: pub.reconfigure(width=32),
        lambda: pub.stats,
        lambda: pub.info,
    ):
        with pytest.raises(cf.ClosedError, match="'cam' was closed"):
            use()
    assert "closed" in repr(pub)
    assert pub.layout.width == WIDTH
    pub.close()


@pytest.mark.parametrize("order", ["psf", "pfs", "spf", "sfp", "fps", "fsp"])
def test_everything_closes_in_any_order(order):
    # lifetime.md, 10
    pub, sub = publisher(), cf.subscribe("cam")
    publish(pub)
    frame = sub.next(timeout=10)
    y = frame.y
    ends = {"p": pub.close, "s": sub.close, "f": frame.release}
    for name in order:
        ends[name]()
        assert (y == 1).all()
    for name in order:
        ends[name]()
    del y


def test_a_publisher_that_is_dropped_ends_its_stream(runtime_dir):
    pub = publisher()
    with cf.subscribe("cam", reconnect=False) as sub:
        del pub  # the last reference
        assert list(sub) == []
    assert list(runtime_dir.glob("*.sock")) == []


def test_a_publisher_collected_on_its_own_thread_ends_its_stream(runtime_dir):
    # lifetime.md, 10
    pub = publisher()
    hub, ring, path = pub._hub, pub._ring, pub._hub.path
    read = hub._read

    def collect_and_read(peer):
        gc.collect()
        read(peer)

    hub._read = collect_and_read
    gc.disable()
    try:
        cycle = [pub]
        cycle.append(cycle)
        del pub, cycle
        with contextlib.suppress(cf.CuframesError):  # its last subscriber, or one too late
            cf.subscribe(path, timeout=0.3).close()
    finally:
        gc.enable()
    until(lambda: not hub._thread.is_alive())
    assert list(runtime_dir.glob("*.sock")) == []
    ring.close(RingState.CLOSED)


# --- Facts ----------------------------------------------------------------------------------------


def test_info_says_what_is_used():
    # lifetime.md, 11
    color = cf.ColorSpec("bt601", "full", "smpte170m", "smpte170m")
    with publisher(fps=29.97, color=color, ring_size=5) as pub:
        assert pub.info.age_ns is None
        with cf.subscribe("cam", "strict", name="eye") as sub:
            publish(pub, 3)
            info = pub.info
            assert (info.key, info.state, info.pid) == ("cam", "live", os.getpid())
            assert (info.format, info.width, info.height, info.fps) == (
                "nv12",
                WIDTH,
                HEIGHT,
                29.97,
            )
            assert info.color == color
            assert (info.memory, info.memory_reason, info.device) == ("host", "asked for", None)
            assert info.completion == "host"
            assert "CPU" in info.completion_reason
            assert (info.policy, info.slots, info.epoch) == ("drop-oldest", 5, 1)
            assert (info.published, info.dropped) == (3, 0)
            assert 0 <= info.age_ns <= info.uptime_ns
            (eye,) = info.subscribers
            assert eye == cf.SubscriberInfo("eye", os.getpid(), os.geteuid(), "strict", 0)
            theirs = sub.info
            assert theirs.subscribers is None
            assert (theirs.path, theirs.color, theirs.published) == (info.path, color, 3)
            assert pub.stats == cf.PublisherStats(3, 0, 0, 1, 5, 0, 1)


def test_untagged_colours_are_assumed_and_say_so():
    with publisher() as pub:
        assert (pub.color.matrix, pub.color.range, pub.color.assumed) == ("bt601", "limited", True)
        pub.reconfigure(height=720)
        assert pub.color.matrix == "bt709"


def test_repr_says_what_it_is():
    with publisher() as pub, cf.subscribe("cam") as sub:
        assert repr(pub) == "<Publisher 'cam' 64x48 nv12 x4 host>"
        slot = pub.acquire()
        assert "being written" in repr(slot)
        pub.publish(slot)
        assert "'cam' newest, connected" in repr(sub)
        frame = sub.next(timeout=10)
        assert "'cam' #1 64x48 nv12 on cpu" in repr(frame)
        frame.release()
        assert "released" in repr(frame)
