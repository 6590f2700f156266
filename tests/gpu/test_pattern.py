"""The test pattern on a GPU: the bytes of the one in host memory, and one kernel a frame."""

from types import SimpleNamespace

import cupy as cp
import numpy as np
import pytest

import cuframes_nb as cf
from cuframes_nb._cuda.driver import call, driver
from cuframes_nb.sources import Pattern, pattern, play, read_stamp
from tests.helpers.gpu import Latch, memory_in_use
from tests.helpers.pattern_kernel import rooms_and_planes

FORMATS = ["nv12", "p010", "gray8", "rgb24", "rgba32"]
SIZES = [(1, 1), (33, 21), (177, 145), (1280, 720), (1920, 1080)]


@pytest.fixture(autouse=True)
def clock(monkeypatch):
    """Have the caption's clock stand still."""
    monkeypatch.setattr(pattern, "_caption", lambda number: f"{number:08d} 12:34:56.789")


def expected(source, number):
    """Return the planes of a frame as they are in host memory."""
    _, planes = rooms_and_planes(source, 0)
    source.write(SimpleNamespace(planes=planes, xp=np), number)
    return planes


def draw(source, publisher, number):
    with publisher.acquire() as slot:
        source.write(slot, number)


def assert_is(frame, source, number):
    for found, plane in zip(frame.planes, expected(source, number), strict=True):
        assert (cp.asnumpy(found) == plane).all()


@pytest.mark.parametrize("caption", [False, True])
@pytest.mark.parametrize(("width", "height"), SIZES)
@pytest.mark.parametrize("format_", FORMATS)
def test_it_is_the_one_of_host_memory(format_, width, height, caption):
    source = Pattern(width, height, format=format_, caption=caption)
    with source.publisher("pattern", memory="cuda") as pub, cf.subscribe("pattern") as sub:
        for number in (0, 77, 0xC0FFEE05):
            draw(source, pub, number)
            with sub.next(5) as frame:
                assert_is(frame, source, number)
                assert read_stamp(frame.planes[0]) == number & ((1 << min(32, width)) - 1)


@pytest.mark.parametrize("format_", FORMATS)
def test_nothing_is_written_between_the_rows(format_):
    source = Pattern(177, 145, format=format_, caption=True)
    rooms, planes = rooms_and_planes(source, 6)
    there = [cp.asarray(room) for room in rooms]
    views = [
        cp.ndarray(plane.shape, plane.dtype, room.data, plane.strides)
        for room, plane in zip(there, planes, strict=True)
    ]
    source.write(SimpleNamespace(planes=views, xp=cp), 9)
    source.write(SimpleNamespace(planes=planes, xp=np), 9)
    for found, room in zip(there, rooms, strict=True):
        assert (cp.asnumpy(found) == room).all()


def test_it_is_drawn_on_the_current_stream():
    source = Pattern(640, 360, caption=True)
    stream = cp.cuda.Stream(non_blocking=True)
    with source.publisher("pattern", memory="cuda") as pub, cf.subscribe("pattern") as sub:
        draw(source, pub, 1)
        with sub.next(5) as frame:
            assert_is(frame, source, 1)
        latch = Latch(stream)
        with stream:
            draw(source, pub, 2)
        with pytest.raises(cf.FrameTimeout):
            sub.next(0.2)
        latch.open()
        with sub.next(10) as frame:
            assert_is(frame, source, 2)


def test_the_first_frame_may_be_on_another_stream_than_the_second():
    source = Pattern(1920, 1080)
    with source.publisher("pattern", memory="cuda") as pub, cf.subscribe("pattern") as sub:
        for number in range(4):
            with cp.cuda.Stream(non_blocking=True):
                draw(source, pub, number)
            with sub.next(5) as frame:
                assert_is(frame, source, number)


def test_two_publishers_of_different_formats():
    sources = [Pattern(320, 180, format="p010"), Pattern(177, 145, format="rgb24", caption=True)]
    with (
        sources[0].publisher("first", memory="cuda") as first,
        sources[1].publisher("second", memory="cuda") as second,
        cf.subscribe("first") as one,
        cf.subscribe("second") as other,
    ):
        for number in range(3):
            for source, publisher in zip(sources, (first, second), strict=True):
                draw(source, publisher, number)
            for source, subscriber in zip(sources, (one, other), strict=True):
                with subscriber.next(5) as frame:
                    assert_is(frame, source, number)


def test_one_source_may_have_publishers_of_both_kinds_of_memory():
    source = Pattern(177, 145, caption=True)
    with (
        source.publisher("gpu", memory="cuda") as there,
        source.publisher("host", memory="host") as here,
        cf.subscribe("gpu") as one,
        cf.subscribe("host") as other,
    ):
        for number in range(3):
            draw(source, there, number)
            draw(source, here, number)
            with one.next(5) as a, other.next(5) as b:
                for found, plane in zip(a.planes, b.planes, strict=True):
                    assert (cp.asnumpy(found) == plane).all()


def nodes_of(action):
    """Return the types of what `action` queues on the current stream, which does not run.

    A call that allocates or waits ends the capture with an error.
    """
    stream = cp.cuda.get_current_stream().ptr
    cu = driver()
    call("cuStreamBeginCapture", stream, cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)
    try:
        action()
    finally:
        graph = call("cuStreamEndCapture", stream)
    nodes, count = call("cuGraphGetNodes", graph, 64)
    types = [call("cuGraphNodeGetType", node).name for node in nodes[:count]]
    call("cuGraphDestroy", graph)
    return types


@pytest.mark.parametrize("format_", FORMATS)
def test_a_frame_is_one_kernel(format_):
    source = Pattern(1280, 720, format=format_, caption=True)
    with (
        source.publisher("pattern", memory="cuda") as pub,
        cp.cuda.Stream(non_blocking=True) as stream,
        pub.acquire() as slot,
    ):
        source.write(slot, 0)  # compiles and uploads
        slot.planes[0].fill(3)
        kernel = "CU_GRAPH_NODE_TYPE_KERNEL"
        assert nodes_of(lambda: source.write(slot, 1)) == [kernel]
        # The count is shown to count.
        assert nodes_of(lambda: [source.write(slot, 1), slot.planes[0].fill(3)]) == [kernel] * 2
        stream.synchronize()


class Allocations(cp.cuda.MemoryHook):
    """Counts what is taken from the pool."""

    name = "allocations"

    def __init__(self):
        self.count = 0

    def malloc_preprocess(self, **_):
        self.count += 1


def test_frames_allocate_nothing():
    source = Pattern(1280, 720, caption=True, frames=300)
    with source.publisher("pattern", memory="cuda") as pub:
        draw(source, pub, 0)
        pool = cp.get_default_memory_pool()
        before = pool.used_bytes(), pool.total_bytes()
        with Allocations() as taken:
            for number in range(300):
                with pub.acquire(1) as slot:
                    source.write(slot, number)
                cp.cuda.get_current_stream().synchronize()
            assert taken.count == 0
            assert (pool.used_bytes(), pool.total_bytes()) == before
            assert cp.zeros(1).size == taken.count == 1  # the count is shown to count


def test_the_background_is_freed_with_the_pattern():
    source = Pattern(4096, 4096, format="rgba32")
    with source.publisher("pattern", memory="cuda", ring_size=2) as pub:
        cp.cuda.runtime.deviceSynchronize()
        before = memory_in_use()
        draw(source, pub, 0)
        held = memory_in_use() - before
        del source
        kept = memory_in_use() - before
    assert held >= 64 << 20
    assert kept <= 32 << 20


def test_it_plays():
    source = Pattern(640, 360, fps=1000, frames=20, caption=True)
    with source.publisher("pattern", memory="cuda", ring_size=32) as pub:
        assert play(source, pub) == 20
        with cf.subscribe("pattern") as sub, sub.next(5) as frame:
            assert_is(frame, source, 19)
