"""How the user's GPU memory becomes arenas and places, by what the driver would say of it."""

from types import SimpleNamespace

import pytest

import cuframes_nb as cf
from cuframes_nb._cuda.pointers import MemoryOrigin, Region
from cuframes_nb._memory import external
from cuframes_nb._memory.external import Extent, borrow
from cuframes_nb._runtime.array_frames import layout_of_rows
from cuframes_nb._wire.messages import SlotPlace
from cuframes_nb.errors import CudaError
from cuframes_nb.formats import FrameLayout

MIB = 1 << 20
GPU = SimpleNamespace(ordinal=0, name="a GPU")


class Made:
    """An arena as `borrow` makes it."""

    def __init__(self, origin, region, *, continues):
        self.origin, self.address, self.nbytes = origin, region.base, region.nbytes
        self.continues = continues
        self.closed = False

    def close(self):
        self.closed = True


@pytest.fixture
def driver(monkeypatch):
    """Say of addresses what a table says: first byte, size, origin and GPU of each allocation."""
    table = []
    made = []

    def at(address):
        for base, nbytes, origin, ordinal in table:
            if base <= address < base + nbytes:
                return base, nbytes, origin, ordinal
        raise CudaError("cuMemGetAddressRange", 500, "CUDA_ERROR_NOT_FOUND")

    def make(origin, region, _gpu, _memory, *, continues):
        made.append(Made(origin, region, continues=continues))
        return made[-1]

    monkeypatch.setattr(external, "origin_of", lambda address, _: at(address)[2])
    monkeypatch.setattr(external, "ordinal_of", lambda address, _: at(address)[3])
    monkeypatch.setattr(external, "region_of", lambda address, _: Region(*at(address)[:2], 0))
    monkeypatch.setattr(external, "_arena", make)
    monkeypatch.setattr(
        external, "_ends_at",
        lambda arena, address: arena is not None and arena.origin is MemoryOrigin.VIRTUAL
        and arena.address + arena.nbytes == address,
    )  # fmt: skip
    return SimpleNamespace(table=table, made=made)


def test_frames_of_one_allocation_share_an_arena(driver):
    driver.table += [(64 * MIB, 20 * MIB, MemoryOrigin.PLAIN, 0)]
    arenas, places = borrow([Extent(70 * MIB, MIB), Extent(65 * MIB + 512, MIB)], GPU, None)
    assert [(a.address, a.nbytes, a.continues) for a in arenas] == [(64 * MIB, 20 * MIB, False)]
    assert places == (SlotPlace(0, 6 * MIB), SlotPlace(0, MIB + 512))


def test_frames_across_mappings_make_a_run(driver):
    virtual = MemoryOrigin.VIRTUAL
    driver.table += [(base * MIB, 20 * MIB, virtual, 0) for base in (100, 120, 140, 200, 220)]
    extents = [Extent(118 * MIB, 4 * MIB), Extent(225 * MIB, MIB), Extent(141 * MIB, MIB)]
    arenas, places = borrow(extents, GPU, None)
    assert [(a.address // MIB, a.continues) for a in arenas] == [
        (100, False), (120, True), (140, True), (220, False),
    ]  # fmt: skip
    assert places == (SlotPlace(0, 18 * MIB), SlotPlace(3, 5 * MIB), SlotPlace(0, 41 * MIB))


def test_a_frame_over_three_mappings(driver):
    driver.table += [(n * MIB, MIB, MemoryOrigin.VIRTUAL, 0) for n in range(10, 14)]
    arenas, places = borrow([Extent(10 * MIB + 5, 2 * MIB)], GPU, None)
    assert [arena.continues for arena in arenas] == [False, True, True]
    assert places == (SlotPlace(0, 5),)


def test_plain_allocations_are_never_joined(driver):
    driver.table += [(n * MIB, MIB, MemoryOrigin.PLAIN, 0) for n in (10, 11)]
    arenas, places = borrow([Extent(10 * MIB, MIB), Extent(11 * MIB, MIB)], GPU, None)
    assert [arena.continues for arena in arenas] == [False, False]
    assert places == (SlotPlace(0, 0), SlotPlace(1, 0))
    with pytest.raises(cf.UnsupportedError, match=r"buffer 1 cannot be shared: its planes lie in"):
        borrow([Extent(10 * MIB, MIB), Extent(10 * MIB + 1, MIB)], GPU, None)


@pytest.mark.parametrize(
    ("origin", "words"),
    [
        (MemoryOrigin.POOL, "stream-ordered pool"),
        (MemoryOrigin.MANAGED, "managed memory"),
        (MemoryOrigin.HOST, "host memory"),
    ],
)
def test_what_cannot_be_shared_is_refused_by_name(driver, origin, words):
    driver.table += [(0, MIB, MemoryOrigin.PLAIN, 0), (MIB, MIB, origin, 0)]
    with pytest.raises(
        cf.UnsupportedError, match=f"buffer 1 cannot be shared: .*{words}"
    ) as caught:
        borrow([Extent(0, 10), Extent(MIB, 10)], GPU, None)
    assert "pub.write(array)" in str(caught.value)
    assert driver.made == []


def test_memory_of_another_gpu_and_frames_beyond_their_memory_are_refused(driver):
    driver.table += [(0, MIB, MemoryOrigin.VIRTUAL, 0), (2 * MIB, MIB, MemoryOrigin.PLAIN, 1)]
    with pytest.raises(cf.InvalidArgumentError, match="buffer 0 is on GPU 1"):
        borrow([Extent(2 * MIB, 10)], GPU, None)
    with pytest.raises(cf.InvalidArgumentError, match="buffer 0 reaches 7 bytes beyond"):
        borrow([Extent(MIB - 3, 10)], GPU, None)


def test_too_many_allocations_are_refused(driver):
    driver.table += [(2 * n * MIB, MIB, MemoryOrigin.PLAIN, 0) for n in range(65)]
    with pytest.raises(cf.InvalidArgumentError, match="65 allocations, and a stream may have 64"):
        borrow([Extent(2 * n * MIB, 1) for n in range(65)], GPU, None)


def test_what_was_made_is_closed_if_the_next_fails(driver, monkeypatch):
    driver.table += [(n * MIB, MIB, MemoryOrigin.PLAIN, 0) for n in (10, 12)]
    make = external._arena

    def second_fails(origin, region, *args, **kwargs):
        if region.base == 12 * MIB:
            raise cf.UnsupportedError("no")
        return make(origin, region, *args, **kwargs)

    monkeypatch.setattr(external, "_arena", second_fails)
    with pytest.raises(cf.UnsupportedError):
        borrow([Extent(10 * MIB, 1), Extent(12 * MIB, 1)], GPU, None)
    assert [arena.closed for arena in driver.made] == [True]


# --- How a frame lies in an array -----------------------------------------------------------------


def rows(shape, strides, dtype="uint8"):
    return SimpleNamespace(shape=shape, strides=strides, dtype=dtype)


def test_rows_of_any_pitch():
    wanted = FrameLayout.make("nv12", 64, 48)
    layout = layout_of_rows(0, rows((72, 64), (100, 1)), wanted)
    assert [(plane.offset, plane.pitch) for plane in layout.planes] == [(0, 100), (4800, 100)]
    wanted = FrameLayout.make("rgb24", 64, 48)
    layout = layout_of_rows(0, rows((48, 64, 3), (200, 3, 1)), wanted)
    assert [(plane.offset, plane.pitch) for plane in layout.planes] == [(0, 200)]


@pytest.mark.parametrize(
    ("fmt", "width", "array", "words"),
    [
        ("nv12", 64, rows((72, 65), (65, 1)), r"uint8 of shape \(72, 65\), where nv12 at 64x48"),
        ("nv12", 64, rows((72, 64), (64, 1), "int8"), "has int8 of shape"),
        ("p010", 64, rows((72, 64), (128, 2), "int16"), "has uint16 of shape"),
        ("nv12", 64, rows((72, 64), (128, 2)), "within a row"),
        ("nv12", 64, rows((72, 64), (-64, 1)), "pitch of -64"),
        ("nv12", 64, rows((72, 64), (0, 1)), "pitch of 0"),
        ("nv12", 63, rows((72, 63), (64, 1)), "of odd width is none: pass its planes"),
    ],
)
def test_arrays_that_are_no_frame(fmt, width, array, words):
    with pytest.raises(cf.InvalidArgumentError, match=words):
        layout_of_rows(3, array, FrameLayout.make(fmt, width, 48))
