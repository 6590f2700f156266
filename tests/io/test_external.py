"""Frames in buffers that the publisher's user made."""

import contextlib
import gc
import importlib.util
import itertools
import os
import threading
import weakref
from unittest.mock import Mock

import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._runtime.loans import LOANS
from tests.helpers import lent
from tests.helpers.frames import HEIGHT, WIDTH, check, publish, publisher, until
from tests.helpers.leaks import open_fds


@pytest.fixture
def nothing_left():
    """See that the test's buffers are let go, whatever a failed test before it may still hold."""
    before = {*LOANS._ending, *LOANS._live}
    yield
    gc.collect()
    until(lambda: before.issuperset({*LOANS._ending, *LOANS._live}), seconds=10)
    until(lambda: bool(before) or LOANS._thread is None, seconds=10)


pytestmark = pytest.mark.usefixtures("nothing_left")


# --- A frame's way --------------------------------------------------------------------------------


def test_a_buffer_is_the_frame():
    # lifetime.md, 4
    pool = lent.pool()
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        for expected in range(1, 12):
            number = pub.wait_free(timeout=10)
            lent.fill(pool.buffers[number], expected)
            assert pub.publish_buffer(number) == expected
            with sub.next(timeout=10) as frame:
                assert frame.seq == expected
                check(frame)
        # What the owner writes now shows in the subscriber's array: there is no copy between.
        y = sub.latest().y
        pool.buffers[number].planes[0][...] = 200
        assert int(y.min()) == 200
        assert not y.flags.writeable
        del y


@pytest.mark.parametrize("fmt", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
def test_every_format(fmt):
    pool = lent.pool(3, fmt=fmt, width=33, height=17)
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        lent.publish(pub, count=5)
        with sub.next(timeout=10) as frame:
            assert frame.format == fmt
            check(frame, 5)


def test_buffers_of_one_allocation_share_an_arena_and_others_have_their_own():
    one, two = lent.pool(2, apart=40_000, start=12_000), lent.pool(2, apart=50_000)
    buffers = [one.buffers[1], two.buffers[0], one.buffers[0], two.buffers[1]]
    with lent.lend(buffers) as pub, cf.subscribe("cam") as sub:
        ring = pub._ring.description
        assert [arena.nbytes for arena in ring.arenas] == [92_000, 100_000]
        assert [(place.arena, place.offset) for place in ring.slots] == [
            (0, 52_000), (1, 0), (0, 12_000), (1, 50_000),
        ]  # fmt: skip
        for _ in range(8):
            lent.publish(pub)
            with sub.next(timeout=10) as frame:
                check(frame)


def test_the_layout_is_the_buffers_own():
    pool = lent.pool(3, pitch=[96, 128])
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        assert [plane.pitch for plane in pub.layout.planes] == [96, 128]
        lent.publish(pub)
        frame = sub.next(timeout=10)
        assert [plane.strides[0] for plane in frame.planes] == [96, 128]
        check(frame)
        frame.release()


def test_a_slot_is_a_buffer_and_write_and_sources_work():
    pool = lent.pool(3)
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        with pub.acquire() as slot:
            assert slot.buffer in pool.buffers
            lent.fill(slot.buffer, slot.seq)
        with sub.next(timeout=10) as frame:
            check(frame)
        assert publish(pub, 3) == 4
        with sub.next(timeout=10) as frame:
            check(frame)
        assert pub.write(np.full((HEIGHT * 3 // 2, WIDTH), 77, np.uint8)) == 5
        with sub.next(timeout=10) as frame:
            assert int(frame.y.min()) == 77
        slot = pub.acquire()
        assert pub.publish_buffer(slot.buffer) == 6
        with pytest.raises(cf.ClosedError, match="published already"):
            pub.publish(slot)


def test_info_says_whose_memory_it_is_and_how_it_is_shared():
    with lent.lend(lent.pool().buffers) as pub, cf.subscribe("cam") as sub:
        (listed,) = cf.list_streams()
        for info in (pub.info, sub.info, listed):
            assert (info.ownership, info.sharing) == ("external", "descriptor")
            assert info.memory == "host"
        assert (
            "4 buffers of the user's in host memory, shared by descriptors"
            in pub.info.memory_reason
        )
        assert pub.device == "cpu"
    with publisher() as pub:
        assert (pub.info.ownership, pub.info.sharing) == ("library", "descriptor")
        assert pub.buffers == ()


# --- When a buffer is free ------------------------------------------------------------------------


def test_a_buffer_that_is_read_is_not_free():
    # lifetime.md, 1
    pool = lent.pool(4)
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        lent.publish(pub, 0)
        frame = sub.next(timeout=10)
        y = frame.y
        frame.release()
        lent.publish(pub, 1)
        with pytest.raises(cf.FrameTimeout, match="that buffer of stream 'cam' came free within"):
            pub.wait_free(0, timeout=0.02)
        assert pub.free_buffers() == (2, 3)
        with pytest.raises(cf.InUseError, match=r"buffer 0 .* was not free: a subscriber reads"):
            pub.publish_buffer(0)
        check(frame := sub.latest(), 2)
        frame.release()
        del y, frame
        assert pub.wait_free(0, timeout=10) == 0
        assert pub.free_buffers() == (0, 2, 3)


def test_waiting_ends_when_the_reader_lets_go():
    pool = lent.pool(2)
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        lent.publish(pub, 1)
        held = [sub.next(timeout=10)]
        freed = []
        waiter = threading.Thread(target=lambda: freed.append(pub.wait_free(1)))
        waiter.start()
        assert pub.stats.slots_leased == 1
        assert not freed
        held.clear()
        waiter.join(20)
        assert freed == [1]


def test_nobody_can_start_to_read_a_buffer_that_is_free():
    pool = lent.pool(2)
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        lent.publish(pub, 0)
        lent.publish(pub, 1)
        pub.wait_free(0, timeout=10)
        assert sub.latest().seq == 2
        pub.wait_free(1, timeout=10)  # the newest, too
        assert sub.latest() is None
        with pytest.raises(cf.FrameTimeout):
            sub.next(timeout=0.02)
        lent.fill(pool.buffers[1], 3)
        pub.publish_buffer(1)
        with sub.next(timeout=10) as frame:
            assert frame.seq == 3
            check(frame)


def test_what_was_taken_stays_taken_and_is_not_acquired():
    pool = lent.pool(4)
    with lent.lend(pool.buffers) as pub:
        assert pub.wait_free(2) == pub.wait_free(np.int64(2)) == pub.wait_free(pool.buffers[2]) == 2
        assert pub.wait_free(lent.HostBuffer(pool, pool.buffers[2].offset)) == 2
        slots = [pub.acquire() for _ in range(3)]
        assert {pool.buffers.index(slot.buffer) for slot in slots} == {0, 1, 3}
        with pytest.raises(cf.RingFullError):
            pub.acquire()
        slots.clear()
        assert pub.free_buffers() == (0, 1, 2, 3)
        with pytest.raises(cf.FrameTimeout, match="no buffer of stream"):
            pub.wait_free(timeout=0)


def test_whichever_comes_free_is_the_oldest_and_never_the_newest():
    pool = lent.pool(4)
    with lent.lend(pool.buffers) as pub:
        order = [2, 0, 3, 1]
        for number in order:
            lent.publish(pub, number)
        assert [pub.wait_free(timeout=0) for _ in range(3)] == order[:3]
        with pytest.raises(cf.FrameTimeout):
            pub.wait_free(timeout=0.01)
        for number in order[:3]:
            pub.publish_buffer(number)
        assert pub.free_buffers() == (0, 1, 2)


def test_publishing_without_asking_takes_the_buffer_at_that_moment():
    pool = lent.pool(2)
    with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
        for expected in range(1, 7):
            buffer = pool.buffers[expected % 2]
            lent.fill(buffer, expected)
            assert pub.publish_buffer(buffer) == expected
            with sub.next(timeout=10) as frame:
                check(frame, expected)


def test_an_interrupt_leaves_no_buffer_behind():
    pool = lent.pool(3)
    with lent.lend(pool.buffers) as pub:
        ring = pub._ring
        whole = ring.publish
        ring.publish = Mock(side_effect=KeyboardInterrupt)
        with pytest.raises(KeyboardInterrupt):
            pub.publish_buffer(1)
        ring.publish = whole
        assert pub.publish_buffer(1) == 1
        # Between the lock and the note of who has it.
        assert ring.try_take(2, None)
        slots = [pub.acquire(), pub.acquire()]
        assert {pool.buffers.index(slot.buffer) for slot in slots} == {0, 2}
        del slots


# --- Each frame in order --------------------------------------------------------------------------


def test_strict_subscribers_are_waited_for():
    pool = lent.pool(2)
    with (
        lent.lend(pool.buffers, policy="strict-wait") as pub,
        cf.subscribe("cam", "strict") as sub,
    ):
        lent.publish(pub, 0)
        lent.publish(pub, 1)
        with pytest.raises(cf.FrameTimeout):
            pub.wait_free(0, timeout=0.02)
        with pytest.raises(cf.InUseError, match="mode='strict' has not taken"):
            pub.publish_buffer(0)
        assert pub.free_buffers() == ()
        with sub.next(timeout=10) as frame:
            check(frame, 1)
        assert pub.wait_free(0, timeout=10) == 0


def test_a_strict_subscriber_gets_the_last_frame_of_a_publisher_that_ends():
    pool = lent.pool(4)
    seen = []

    def read(sub):
        for frame in sub:
            check(frame)
            seen.append(frame.seq)

    pub = lent.lend(pool.buffers, policy="strict-wait")
    with cf.subscribe("cam", "strict", reconnect=False) as sub:
        reader = threading.Thread(target=read, args=(sub,))
        reader.start()
        for _ in range(30):
            lent.publish(pub)
        pub.close()
        reader.join(30)
        assert seen == list(range(1, 31))


def test_a_strict_reader_takes_the_old_epoch_first():
    old, new = lent.pool(4), lent.pool(4, width=32)
    with (
        lent.lend(old.buffers, policy="strict-wait") as pub,
        cf.subscribe("cam", "strict") as sub,
    ):
        lent.publish(pub, count=3)
        pub.reconfigure(width=32, buffers=new.buffers)
        lent.publish(pub, count=2)
        seen = []
        for _ in range(5):
            with sub.next(timeout=10) as frame:
                check(frame)
                seen.append((frame.seq, frame.width))
        assert seen == [(1, 64), (2, 64), (3, 64), (4, 32), (5, 32)]


# --- Epochs ---------------------------------------------------------------------------------------


def test_reconfigure_takes_other_buffers_and_keeps_the_old_while_they_are_read():
    old, new = lent.pool(3), lent.pool(5, width=32)
    gone = weakref.ref(old)
    with lent.lend(old.buffers) as pub, cf.subscribe("cam") as sub:
        lent.publish(pub, 1)
        frame = sub.next(timeout=10)
        pub.reconfigure(width=32, buffers=new.buffers)
        assert pub.stats.slots == 5
        lent.publish(pub)
        with sub.next(timeout=10) as other:
            assert other.width == 32
            check(other)
        del old
        gc.collect()
        assert gone() is not None
        check(frame, 1)
        frame.release()
        del frame
        until(lambda: gc.collect() is not None and gone() is None)


def test_the_buffers_of_the_epoch_before_can_be_waited_for():
    old, new, newer = lent.pool(3), lent.pool(3), lent.pool(3)
    with lent.lend(old.buffers) as pub, cf.subscribe("cam") as sub:
        lent.publish(pub, 1)
        frame = sub.next(timeout=10)
        pub.reconfigure(buffers=new.buffers)
        assert pub.wait_free(old.buffers[0], timeout=10) == 0
        with pytest.raises(cf.FrameTimeout):
            pub.wait_free(old.buffers[1], timeout=0.05)
        with pytest.raises(cf.InvalidArgumentError, match="none of the 3 buffers"):
            pub.publish_buffer(old.buffers[0])
        check(frame, 1)
        frame.release()
        del frame
        for number, buffer in enumerate(old.buffers):
            assert pub.wait_free(buffer, timeout=10) == number
        assert pub.wait_free(new.buffers[0]) == 0
        until(lambda: not LOANS._ending)
        assert pub.wait_free(old.buffers[1], timeout=0) == 1
        pub.reconfigure(buffers=newer.buffers)
        with pytest.raises(cf.InvalidArgumentError, match="none of the 3 buffers"):
            pub.wait_free(old.buffers[1])


def test_reconfigure_with_the_same_buffers():
    pool = lent.pool(4)
    with lent.lend(pool.buffers, fps=30) as pub, cf.subscribe("cam") as sub:
        lent.publish(pub, 0)
        lent.publish(pub, 1)
        frame = sub.next(timeout=10)
        with pytest.raises(cf.InUseError, match="buffer 1 is still being read, as a frame"):
            pub.reconfigure(fps=60)
        assert pub.info.fps == 30
        assert sub.latest().seq == 2
        lent.publish(pub, 2)
        with sub.next(timeout=10) as newer:
            check(newer, 3)
        frame.release()
        del frame
        pub.reconfigure(fps=60)
        assert pub.info.fps == 60
        assert lent.publish(pub) == 4
        with sub.next(timeout=10) as frame:
            check(frame)


def test_wrong_changes_change_nothing():
    pool = lent.pool(3)
    with lent.lend(pool.buffers) as pub, publisher("other") as other:
        for changes, words in [
            (
                {"width": 32},
                "buffer 0 holds nv12 frames of 64x48, and the stream has nv12 at 32x48",
            ),
            ({"ring_size": 4}, "there are 3 buffers"),
            ({"buffers": []}, "0 buffers were given"),
            ({"buffers": pool.buffers[:1]}, "between 2 and 64"),
        ]:
            with pytest.raises(cf.InvalidArgumentError, match=words):
                pub.reconfigure(**changes)
        assert lent.publish(pub) == 1
        with pytest.raises(cf.InvalidArgumentError, match="ownership='external'"):
            other.reconfigure(buffers=pool.buffers)


# --- The end --------------------------------------------------------------------------------------


def test_buffers_are_let_go_with_their_publisher():
    # lifetime.md, 12
    pool = lent.pool()
    gone = weakref.ref(pool)
    pub = lent.lend(pool.buffers)
    lent.publish(pub, count=3)
    del pool
    assert gone() is not None
    pub.close()
    gc.collect()
    assert gone() is None
    assert pub.buffers == ()
    assert pub.wait_free(0) == 0


def test_a_buffer_that_is_still_read_is_kept_after_close():
    pool = lent.pool()
    gone = weakref.ref(pool)
    pub = lent.lend(pool.buffers)
    with cf.subscribe("cam", reconnect=False) as sub:
        lent.publish(pub, 2)
        frame = sub.next(timeout=10)
        planes = frame.planes
        frame.release()
        pub.close()
        assert pub.wait_free(0, timeout=10) == 0
        with pytest.raises(cf.FrameTimeout):
            pub.wait_free(2, timeout=0.02)
        with pytest.raises(cf.ClosedError):
            pub.wait_free(timeout=1)
        with pytest.raises(cf.ClosedError):
            pub.publish_buffer(0)
        with pytest.raises(cf.ClosedError):
            pub.free_buffers()
        del pool
        gc.collect()
        assert gone() is not None
        check(frame_of(planes, 1))
        del planes, frame
        assert pub.wait_free(2, timeout=20) == 2
    until(lambda: gc.collect() is not None and gone() is None)


class frame_of:  # noqa: N801  reads like a function
    """Planes with a number, as `check` wants them."""

    def __init__(self, planes, seq):
        self.planes, self.seq = planes, seq


def test_the_last_frame_can_be_taken_from_a_publisher_that_ended():
    pool = lent.pool()
    pub = lent.lend(pool.buffers)
    with cf.subscribe("cam", reconnect=False) as sub:
        lent.publish(pub)
        pub.close()
        with sub.next(timeout=10) as frame:
            check(frame, 1)
        with pytest.raises(cf.PublisherGoneError):
            sub.next(timeout=1)


def test_the_next_publisher_may_have_the_buffers_once_nobody_reads_them():
    pool = lent.pool(3)
    pub = lent.lend(pool.buffers)
    with cf.subscribe("cam", reconnect=False) as sub:
        lent.publish(pub, 0)
        frame = sub.next(timeout=10)
        with pytest.raises(cf.InUseError, match="buffer 0 is one of another publisher"):
            lent.lend(pool.buffers, "other")
        pub.close()
        with pytest.raises(cf.InUseError, match="buffer 0 is still being read"):
            lent.lend(pool.buffers)
        check(frame, 1)
        frame.release()
        del frame
        pub.wait_free(0, timeout=10)
        with lent.lend(pool.buffers) as again:
            assert lent.publish(again) == 1


def test_a_publisher_that_is_dropped_lets_go():
    pool = lent.pool()
    gone = weakref.ref(pool)
    pub = lent.lend(pool.buffers)
    cycle = [pub]
    cycle.append(cycle)
    del pub, cycle, pool
    until(lambda: gc.collect() is not None and gone() is None)  # the pool is a cycle of its own


@pytest.mark.parametrize("policy", ["drop-oldest", "strict-wait"])
def test_an_old_epoch_that_is_read_does_not_keep_its_publisher(policy):
    old, new = lent.pool(4), lent.pool(4)
    pub = lent.lend(old.buffers, policy=policy)
    with cf.subscribe("cam", reconnect=False) as sub:
        lent.publish(pub, 0)
        frame = sub.next(timeout=10)
        pub.reconfigure(buffers=new.buffers)
        gone = weakref.ref(pub)
        del pub
        until(lambda: gc.collect() is not None and gone() is None)
        check(frame, 1)
        frame.release()
        del frame
        with pytest.raises(cf.PublisherGoneError):
            sub.next(timeout=10)


def test_an_array_of_a_slot_keeps_its_memory():
    pool = lent.pool()
    gone = weakref.ref(pool)
    with lent.lend(pool.buffers) as pub:
        slot = pub.acquire()
        y = slot.y
        pub.discard(slot)
        del slot, pool
    gc.collect()
    y[...] = 3
    del y
    gc.collect()
    assert gone() is None


def test_in_a_forked_child_nothing_can_be_done():
    pool = lent.pool()
    with lent.lend(pool.buffers) as pub:
        pid = os.fork()
        if not pid:
            status = 1
            with contextlib.suppress(BaseException):
                refused = 0
                for call in (
                    lambda: pub.wait_free(0, timeout=0), lambda: pub.publish_buffer(0),
                    pub.free_buffers,
                ):  # fmt: skip
                    with contextlib.suppress(cf.ForkedError):
                        call()
                        refused -= 1
                    refused += 1
                status = 0 if refused == 3 else 2
            os._exit(status)
        assert os.waitpid(pid, 0)[1] == 0
        assert lent.publish(pub) == 1


def test_many_publishers_leave_nothing():
    # lifetime.md, 12
    pool = lent.pool(3)
    before = len(open_fds())
    for number in range(50):
        with lent.lend(pool.buffers) as pub, cf.subscribe("cam") as sub:
            lent.publish(pub)
            with sub.next(timeout=10) as frame:
                check(frame)
            if number % 2:
                pub.reconfigure(fps=number)
                lent.publish(pub)
    until(lambda: not LOANS._ending)
    gc.collect()
    assert len(open_fds()) <= before + 1


# --- What is refused ------------------------------------------------------------------------------


def test_library_slots_are_no_buffers():
    with publisher() as pub:
        for call in (
            lambda: pub.publish_buffer(0), lambda: pub.wait_free(0), pub.wait_free,
            pub.free_buffers,
        ):  # fmt: skip
            with pytest.raises(cf.UnsupportedError, match=r"acquire\(\), or publish your buffers"):
                call()


@pytest.mark.parametrize("wrong", [3, -1, "0", np.zeros(4), None, 1.5])
def test_what_is_no_buffer_is_refused(wrong):
    with lent.lend(lent.pool(3).buffers) as pub:
        with pytest.raises(cf.InvalidArgumentError, match="is none of the 3 buffers of stream"):
            pub.publish_buffer(wrong)
        if wrong is not None:
            with pytest.raises(cf.InvalidArgumentError, match="is none of the 3 buffers"):
                pub.wait_free(wrong)


def numpy_frames():
    return [np.zeros((HEIGHT * 3 // 2, WIDTH), np.uint8) for _ in range(3)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"ownership": "mine"}, "ownership 'mine' is not known; use one of library, external"),
        ({"ownership": "external"}, "without buffers"),
        ({"buffers": []}, "ownership='library' was asked for with buffers"),
        ({"ownership": "external", "buffers": np.zeros(3)}, "must be a list"),
        ({"ownership": "external", "buffers": "abc"}, "must be a list"),
        ({"ownership": "external", "buffers": [1, 2]}, r"buffer 0 \(int\) is no array on a GPU"),
        ({"ownership": "external", "buffers": [[], []]}, "buffer 0 has no planes"),
        (
            {"ownership": "external", "buffers": numpy_frames(), "ring_size": 4},
            "ring_size=4 was asked for, and there are 3 buffers",
        ),
    ],
)
def test_wrong_arguments(arguments, words):
    with pytest.raises(cf.InvalidArgumentError, match=words):
        cf.Publisher("cam", width=WIDTH, height=HEIGHT, **arguments)


@pytest.mark.parametrize("memory", ["auto", "host", "cuda"])
@pytest.mark.parametrize("kind", ["rows", "planes", "bytes"])
def test_host_arrays_are_refused_with_the_way_out(memory, kind):
    frames = numpy_frames()
    if kind == "planes":
        frames = [(frame[:HEIGHT], frame[HEIGHT:].reshape(-1, WIDTH // 2, 2)) for frame in frames]
    if kind == "bytes":
        frames = [bytearray(4608) for _ in range(3)]
    with pytest.raises(cf.UnsupportedError, match=r"cannot be shared.*pub\.acquire\(\)"):
        cf.Publisher(
            "cam", width=WIDTH, height=HEIGHT, memory=memory, ownership="external", buffers=frames
        )
    assert cf.list_streams() == []


def test_buffers_that_do_not_fit_are_refused():
    pool, wide = lent.pool(3), lent.pool(3, width=96)
    other = lent.pool(2, pitch=128)
    for buffers, changes, words in [
        (pool.buffers, {"width": 32}, "buffer 0 holds nv12 frames of 64x48"),
        (pool.buffers, {"format": "gray8"}, "the stream has gray8 at 64x48"),
        ([*pool.buffers, wide.buffers[0]], {}, "buffer 3 holds nv12 frames of 96x48"),
        ([*pool.buffers, other.buffers[0]], {}, "buffer 3 is laid out otherwise than buffer 0"),
        ([pool.buffers[0], pool.buffers[0]], {}, "buffers 0 and 1 have bytes in common"),
        (lent.pool(3, apart=4000).buffers, {}, "buffers 0 and 1 have bytes in common"),
        ([*pool.buffers, numpy_frames()[0]], {}, "either all arrays, or all share themselves"),
        (pool.buffers * 22, {}, "66 buffers were given; a stream has between 2 and 64"),
        (pool.buffers, {"pitch": 512}, "pitch=512 was asked for, and the buffers have"),
        (pool.buffers, {"memory": "cuda"}, "the buffers are in host memory"),
        (pool.buffers, {"device": 0}, "the buffers are in host memory"),
        (pool.buffers, {"memory": "vulkan"}, "memory 'vulkan' is not known"),
    ]:
        with pytest.raises(cf.InvalidArgumentError, match=words):
            lent.lend(buffers, **changes)
    assert lent.lend(pool.buffers).close() is None


def test_a_second_publisher_of_that_name_leaves_the_buffers_alone():
    pool = lent.pool(3)
    with publisher():
        with pytest.raises(cf.StreamExistsError):
            lent.lend(pool.buffers)
        with lent.lend(pool.buffers, "other") as pub:
            assert lent.publish(pub) == 1


def test_a_buffer_that_cannot_share_itself_says_why():
    class Broken(lent.HostBuffer):
        def __cuframes_share__(self, layout):
            raise cf.UnsupportedError("not today")

    pool = lent.pool(3)
    pool.buffers[2] = Broken(pool, 0)
    with pytest.raises(cf.UnsupportedError, match="not today"):
        lent.lend(pool.buffers)


class OnGpu:
    """Says that it is an array on a GPU."""

    def __init__(self):
        self.__cuda_array_interface__ = {
            "version": 3, "typestr": "|u1", "shape": (HEIGHT * 3 // 2, WIDTH), "strides": None,
            "data": (4096, False),
        }  # fmt: skip


@pytest.mark.skipif(importlib.util.find_spec("cupy") is not None, reason="CuPy is installed")
def test_arrays_on_a_gpu_need_cupy():
    with pytest.raises(cf.UnsupportedError, match="CuPy cannot be imported"):
        cf.Publisher(
            "cam", width=WIDTH, height=HEIGHT, ownership="external", buffers=[OnGpu(), OnGpu()]
        )


# --- Torn frames ----------------------------------------------------------------------------------


def test_no_reader_sees_a_torn_frame():
    # lifetime.md, 1
    pool = lent.pool(4)
    with lent.lend(pool.buffers) as pub:
        stop = threading.Event()
        counts = []

        def read():
            count = 0
            with cf.subscribe("cam") as sub:
                while not stop.is_set():
                    with contextlib.suppress(cf.FrameTimeout), sub.next(timeout=0.2) as frame:
                        check(frame)
                        count += 1
            counts.append(count)

        readers = [threading.Thread(target=read) for _ in range(3)]
        for reader in readers:
            reader.start()
        until(lambda: pub.stats.subscribers == 3)
        for seq in itertools.count(1):
            number = pub.wait_free(timeout=20)
            lent.fill(pool.buffers[number], seq)
            assert pub.publish_buffer(number) == seq
            if seq == 1500:
                break
        until(lambda: pub.stats.slots_leased == 0)
        stop.set()
        for reader in readers:
            reader.join(20)
        assert len(counts) == 3
        assert all(counts)
