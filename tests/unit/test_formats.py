"""Geometry: what fits, what overlaps, and what each number means."""

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import MAX_DIMENSION, FrameLayout, PixelFormat, PlaneLayout

FORMATS = st.sampled_from(PixelFormat)
SIZES = st.integers(1, 200) | st.integers(1, MAX_DIMENSION)


# --- Formats --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fmt", "even", "odd"),
    [
        ("nv12", ((4, 6), (2, 3, 2)), ((5, 7), (3, 4, 2))),
        ("p010", ((4, 6), (2, 3, 2)), ((5, 7), (3, 4, 2))),
        ("gray8", ((4, 6),), ((5, 7),)),
        ("rgb24", ((4, 6, 3),), ((5, 7, 3),)),
        ("rgba32", ((4, 6, 4),), ((5, 7, 4),)),
    ],
)
def test_shapes_of_planes_round_up(fmt, even, odd):
    assert PixelFormat(fmt).plane_shapes(6, 4) == even
    assert PixelFormat(fmt).plane_shapes(7, 5) == odd


@pytest.mark.parametrize(
    ("fmt", "numbers", "kinds"),
    [
        ("nv12", (1, "uint8", 8), (True, True)),
        ("p010", (2, "uint16", 10), (True, True)),
        ("gray8", (1, "uint8", 8), (True, False)),
        ("rgb24", (1, "uint8", 8), (False, False)),
        ("rgba32", (1, "uint8", 8), (False, False)),
    ],
)
def test_what_a_format_is(fmt, numbers, kinds):
    it = PixelFormat.parse(fmt)
    assert it == fmt
    assert str(it) == fmt
    assert (it.itemsize, it.dtype, it.bit_depth) == numbers
    assert (it.is_yuv, it.is_semiplanar) == kinds


@pytest.mark.parametrize("name", ["", "NV12", "yuv420p", None, 1])
def test_an_unknown_format_is_refused_with_the_names(name):
    with pytest.raises(InvalidArgumentError, match="nv12, p010, gray8, rgb24, rgba32"):
        PixelFormat.parse(name)


# --- Layouts --------------------------------------------------------------------------------------


@given(FORMATS, SIZES, SIZES)
def test_a_default_layout_has_aligned_rows_and_planes_one_below_the_other(fmt, width, height):
    layout = FrameLayout.make(fmt, width, height)
    end = 0
    for plane in layout.planes:
        assert plane.pitch % 256 == 0
        assert plane.row_bytes <= plane.pitch < plane.row_bytes + 256
        assert plane.offset == end
        assert plane.offset < plane.end <= end + plane.rows * plane.pitch
        end += plane.rows * plane.pitch
    assert layout.nbytes == end


@given(FORMATS, st.integers(1, 64), st.integers(1, 64), st.data())
def test_planes_of_a_valid_layout_share_no_byte(fmt, width, height, data):
    shapes = fmt.plane_shapes(width, height)
    numbers = st.integers(-5, 5000)
    offsets = [data.draw(numbers) for _ in shapes]
    pitches = [data.draw(numbers) for _ in shapes]
    try:
        layout = FrameLayout.make(fmt, width, height, pitch=pitches, offsets=offsets)
    except InvalidArgumentError:
        return
    seen = set()
    for plane in layout.planes:
        for row in range(plane.rows):
            start = plane.offset + row * plane.pitch
            pixels = set(range(start, start + plane.row_bytes))
            assert not pixels & seen
            seen |= pixels
        assert max(pixels) + 1 == plane.end
    assert min(seen) >= 0
    assert max(seen) < layout.nbytes


@given(FORMATS, SIZES, SIZES)
def test_strides_reach_the_last_component_and_no_further(fmt, width, height):
    for plane in FrameLayout.make(fmt, width, height).planes:
        last = sum((n - 1) * stride for n, stride in zip(plane.shape, plane.strides, strict=True))
        assert plane.offset + last + plane.itemsize == plane.end


def test_each_plane_may_have_its_own_pitch():
    layout = FrameLayout.make("nv12", 64, 32, pitch=(64, 128))
    assert [plane.pitch for plane in layout.planes] == [64, 128]
    assert layout.planes[1].offset == 64 * 32
    assert layout.nbytes == 64 * 32 + 128 * 16


def test_offsets_may_leave_room():
    layout = FrameLayout.make("nv12", 64, 32, pitch=64, offsets=(4096, 8192))
    assert [plane.offset for plane in layout.planes] == [4096, 8192]
    assert layout.nbytes == 8192 + 64 * 16


def test_the_padding_of_a_planes_last_row_may_be_the_next_planes():
    layout = FrameLayout.make("nv12", 60, 2, pitch=64, offsets=(0, 64 + 60))
    assert layout.planes[0].end == layout.planes[1].offset


@pytest.mark.parametrize("value", [0, -1, MAX_DIMENSION + 1, 2**40, True, 1.0, "64", None])
@pytest.mark.parametrize("which", ["width", "height"])
def test_a_size_that_cannot_be_is_refused(which, value):
    size = {"width": 64, "height": 64} | {which: value}
    with pytest.raises(InvalidArgumentError, match=which):
        FrameLayout.make("nv12", **size)


def test_the_largest_and_the_smallest_size_are_allowed():
    for size in (1, MAX_DIMENSION):
        assert FrameLayout.make("rgba32", size, size).width == size


@pytest.mark.parametrize(
    ("fmt", "options", "words"),
    [
        ("nv12", {"pitch": 63}, "pitch of 63"),
        ("nv12", {"pitch": 0}, "pitch of 0"),
        ("nv12", {"pitch": -64}, "pitch of -64"),
        ("p010", {"pitch": 64}, "a row takes 128"),
        ("p010", {"pitch": 129}, "multiple of 2"),
        ("rgb24", {"pitch": 191}, "a row takes 192"),
        ("nv12", {"pitch": (64,)}, "2 of them for 2 planes"),
        ("gray8", {"pitch": (64, 64)}, "1 of them for 1 planes"),
        ("nv12", {"offsets": (0,)}, "1 offsets"),
        ("nv12", {"offsets": (0, 4096, 8192)}, "3 offsets"),
        ("nv12", {"pitch": 64, "offsets": (-64, 2048)}, "starts at byte -64"),
        ("nv12", {"pitch": 64, "offsets": (0, 2047)}, "ends at 2048"),
        ("nv12", {"pitch": 64, "offsets": (2048, 0)}, "inside the plane before"),
        ("p010", {"pitch": 128, "offsets": (0, 4097)}, "multiple of 2"),
    ],
)
def test_a_layout_that_cannot_be_is_refused(fmt, options, words):
    with pytest.raises(InvalidArgumentError, match=words):
        FrameLayout.make(fmt, 64, 32, **options)


def test_planes_of_another_shape_or_item_size_are_refused():
    layout = FrameLayout.make("nv12", 64, 32)
    luma, chroma = layout.planes
    with pytest.raises(InvalidArgumentError, match="shapes"):
        dataclasses.replace(layout, planes=(luma,))
    with pytest.raises(InvalidArgumentError, match="shapes"):
        dataclasses.replace(layout, height=31)
    with pytest.raises(InvalidArgumentError, match="items of 2 bytes"):
        dataclasses.replace(layout, planes=(luma, dataclasses.replace(chroma, itemsize=2)))


@pytest.mark.parametrize(
    ("fmt", "width", "height", "options", "shape"),
    [
        ("nv12", 64, 32, {}, (48, 64)),
        ("nv12", 64, 33, {}, (50, 64)),  # 33 rows of luma, 17 of chroma
        ("p010", 64, 32, {}, (48, 64)),
        ("nv12", 63, 32, {}, None),  # chroma rows are a byte longer
        ("nv12", 64, 32, {"pitch": (64, 128)}, None),
        ("nv12", 64, 32, {"pitch": 64, "offsets": (0, 4096)}, None),
        ("nv12", 64, 32, {"pitch": 64, "offsets": (4096, 4096 + 2048)}, (48, 64)),
        ("gray8", 63, 31, {}, (31, 63)),
        ("rgb24", 63, 31, {}, (31, 63, 3)),
        ("rgba32", 63, 31, {}, (31, 63, 4)),
    ],
)
def test_the_shape_of_all_rows(fmt, width, height, options, shape):
    assert FrameLayout.make(fmt, width, height, **options).rows_shape == shape


def test_a_plane_knows_its_rows():
    plane = PlaneLayout(offset=10, pitch=100, shape=(3, 5, 2), itemsize=2)
    assert (plane.rows, plane.row_bytes, plane.strides) == (3, 20, (100, 4, 2))
    assert plane.end == 10 + 2 * 100 + 20


def test_layouts_are_values():
    assert FrameLayout.make("nv12", 64, 32) == FrameLayout.make(PixelFormat.NV12, 64, 32)
    assert len({FrameLayout.make("nv12", 64, 32), FrameLayout.make("nv12", 64, 32)}) == 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        FrameLayout.make("nv12", 64, 32).width = 1
