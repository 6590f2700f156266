"""A publisher in C whose frames lie on the GPU, and our subscribers."""

import contextlib
import re
import signal
from pathlib import Path

import cupy as cp
import pytest
from cuda.bindings import driver

import cuframes_nb as cf
from tests.helpers import c_publisher
from tests.helpers.c_publisher import SLOTS, cuda_headers, needs_compiler, running, wrong
from tests.helpers.frames import until


@pytest.fixture(scope="module")
def program(tmp_path_factory):
    """Return the publisher, built with CUDA."""
    needs_compiler()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8")
    return c_publisher.build(
        tmp_path_factory.mktemp("c") / "publisher",
        *("-O2", "-isystem", str(cuda_headers())),
        libraries=(
            re.search(r"/\S*/libcuda\.so\S*", maps)[0],
        ),  # wherever this process has it from
    )


def check(frame):
    """Assert that the frame's pixels are those of its number."""
    assert wrong([cp.asnumpy(plane) for plane in frame.planes], frame.seq) == ""


def is_imported(array):
    """Whether an array lies in memory that was mapped by its handle, as no allocator's does."""
    status, handle = driver.cuMemRetainAllocationHandle(array.data.ptr)
    if status == driver.CUresult.CUDA_SUCCESS:
        driver.cuMemRelease(handle)
    return status == driver.CUresult.CUDA_SUCCESS


def test_info_says_how_the_memory_is_shared(program):
    with running(program) as stream, cf.subscribe("cam", timeout=30) as sub:
        sub.next(timeout=30).release()
        (listed,) = cf.list_streams()
        for info in (listed, sub.info):
            assert (info.memory, info.completion) == ("cuda-vmm", "gpu")
            assert info.device == cf.devices()[0].uuid
            assert info.pid == stream.pid


@pytest.mark.parametrize("mode", ["newest", "strict"])
@pytest.mark.parametrize("count", [1, 3])
def test_every_frame_is_whole(program, count, mode):
    # lifetime.md, 5: the GPU says when a frame is complete, and nobody sees one before
    with running(program, width=1280, height=720, fps=120):
        subs = [cf.subscribe("cam", mode, timeout=30) for _ in range(count)]
        last = [0] * count
        for _ in range(200):
            for index, sub in enumerate(subs):
                with sub.next(timeout=30) as frame:
                    assert frame.seq > last[index]
                    last[index] = frame.seq
                    check(frame)
        for sub in subs:
            sub.close()
        assert cf.list_streams()[0].dropped == 0


@pytest.mark.parametrize(("width", "height"), [(1, 1), (67, 3), (641, 359), (1920, 1080)])
def test_sizes_may_be_odd(program, width, height):
    with (
        running(program, width=width, height=height, fps=60),
        cf.subscribe("cam", timeout=30) as sub,
    ):
        for _ in range(20):
            with sub.next(timeout=30) as frame:
                assert frame.y.shape == (height, width)
                assert frame.uv.shape == (-(-height // 2), -(-width // 2), 2)
                check(frame)


def test_arrays_are_on_the_publisher_s_memory(program):
    # lifetime.md, 4
    assert not is_imported(cp.zeros(1 << 20, cp.uint8))
    with running(program), cf.subscribe("cam", timeout=30) as sub:
        addresses = set()
        for _ in range(40):
            with sub.next(timeout=30) as frame:
                assert isinstance(frame.y, cp.ndarray)
                assert is_imported(frame.y)
                assert is_imported(frame.uv)
                addresses.add(frame.y.data.ptr)
    assert 2 <= len(addresses) <= SLOTS
    first = min(addresses)
    assert {(address - first) % 4096 for address in addresses} == {0}
    assert max(addresses) - first < SLOTS * (512 * 270 + 4096)


def test_frames_outlive_a_publisher_that_is_killed(program):
    # lifetime.md, 3
    with running(program) as first, cf.subscribe("cam", timeout=30) as sub:
        held = sub.next(timeout=30)
        first.end(signal.SIGKILL)
        with running(program):
            while sub.stats.connects < 2:
                with contextlib.suppress(cf.FrameTimeout):
                    sub.next(timeout=1).release()
            with sub.next(timeout=30) as frame:
                check(frame)
            check(held)
            held.release()


def test_a_hundred_attachments_leave_nothing(program):
    # lifetime.md, 12
    with running(program) as stream:

        def attach():
            with cf.subscribe("cam", timeout=30) as sub, sub.next(timeout=30) as frame:
                check(frame)

        attach()
        stream.count_again()  # the driver opens some when they are first needed
        for _ in range(100):
            attach()
        until(stream.has_only)
