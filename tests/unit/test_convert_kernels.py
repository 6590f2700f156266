"""The GPU's kernel, run on the CPU, agrees with the reference and touches nothing else."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import Options, Picture, Pixels
from cuframes_nb.convert._launches import CAPACITY, launches
from cuframes_nb.convert._outputs import Buffer
from cuframes_nb.convert._placing import place
from cuframes_nb.convert._sampled import as_stored
from cuframes_nb.convert.reference import picture_reference, yuv_reference
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat
from tests.helpers.compiling import needs_compiler
from tests.helpers.kernels import POISON, Guarded, encode, render

NV12, P010, GRAY8, RGB24, RGBA32 = PixelFormat
COLORS = [
    ColorSpec(matrix, range_)
    for matrix, range_ in itertools.product(("bt601", "bt709", "bt2020"), ("limited", "full"))
]
RGB = ColorSpec("rgb", "full")
ATOL = {"uint8": 1, "float16": 5e-4, "float32": 1e-5}


@pytest.fixture(autouse=True, scope="module")
def compiler():
    needs_compiler()


def color_for(fmt, color=COLORS[2]):
    return color if fmt.is_yuv else RGB


def pixels_of(*options):
    return Pixels.of(Options(*options))


def frame(fmt, width, height, *, paddings=(0, 0), offset=0, at_end=True, seed=0):
    """Return a picture of random codes whose planes lie beside pages that nobody may touch."""
    rng = np.random.default_rng(seed)
    planes = []
    for shape, padding in zip(fmt.plane_shapes(width, height), paddings, strict=False):
        pitch = (int(np.prod(shape[1:])) + padding) * fmt.itemsize
        plane, _ = Guarded().array(
            shape, fmt.dtype, pitch=pitch, offset=offset * fmt.itemsize, at_end=at_end
        )
        plane[...] = rng.integers(0, 2 ** (8 * fmt.itemsize), shape)
        planes.append(plane)
    return Picture(tuple(planes), fmt, color_for(fmt))


def nowhere(fmt):
    """Return a picture of 8 x 8 that no kernel reads."""
    return Picture(GpuPlanes(0, (0, 0, 8, 8)), fmt, color_for(fmt))


def check(found, expected, pixels):
    """Compare one picture of a result with the reference."""
    picture = found.transpose([pixels.layout.index(axis) for axis in "hwc"])
    if pixels.dtype == "uint8":
        expected = np.rint(expected * 255)
    difference = np.abs(picture.astype(float) - expected)
    assert difference.max() <= ATOL[pixels.dtype], np.argwhere(difference > ATOL[pixels.dtype])[:5]


def expected(picture, placement, pixels, **normalised):
    return picture_reference(
        *picture,
        placement,
        channels=pixels.channels,
        interpolation=pixels.interpolation,
        siting=pixels.siting,
        fill=114,
        **normalised,
    )


def options(layout="hwc", dtype="uint8", channels="rgb", interpolation="bilinear", siting="left"):
    return pixels_of(layout, dtype, channels, interpolation, siting, 114)


CASES = [
    # Copied: words where they fit, bytes at the edges.
    ("nearest", None, "stretch", (3, 2, 61, 39)),
    ("nearest", None, "stretch", (0, 0, 67, 43)),
    ("bilinear", (80, 39), "letterbox", (2, 3, 61, 39)),
    # Resized.
    ("nearest", (50, 37), "cover", (1, 2, 61, 39)),
    ("bilinear", (40, 40), "letterbox", (1, 2, 61, 39)),
    ("bilinear", (100, 90), "stretch", (0, 0, 67, 43)),
    ("bilinear", (67, 20), "stretch", None),
    ("area", (20, 13), "stretch", (1, 2, 61, 39)),
    ("area", (100, 30), "letterbox", None),
    ("area", (1, 1), "stretch", None),
]


@pytest.mark.parametrize(
    ("fmt", "layout", "dtype", "channels"),
    [
        (NV12, "hwc", "uint8", "rgb"),
        (NV12, "chw", "float16", "bgr"),
        (P010, "chw", "uint8", "bgr"),
        (P010, "hwc", "float32", "rgb"),
        (GRAY8, "hwc", "float16", "rgb"),
        (RGB24, "chw", "float32", "rgb"),
        (RGB24, "hwc", "uint8", "gray"),
        (RGBA32, "hwc", "uint8", "bgr"),
        (NV12, "chw", "float32", "gray"),
    ],
)
def test_every_way_through_the_kernel(fmt, layout, dtype, channels):
    picture = frame(fmt, 67, 43)
    for interpolation, size, fit, crop in CASES:
        for siting in ("left", "center", "topleft") if fmt.is_semiplanar else ("left",):
            pixels = options(layout, dtype, channels, interpolation, siting)
            placement = place(crop or (0, 0, 67, 43), size, fit)
            out, _ = Guarded().array(pixels.shape(1, placement.size), dtype)
            render([picture], [placement], pixels, out)
            check(out, expected(picture, placement, pixels), pixels)


@pytest.mark.parametrize("fmt", [NV12, P010])
@pytest.mark.parametrize("color", COLORS, ids=str)
def test_every_matrix_and_range(fmt, color):
    """The grid holds luma, U and V together at steps and at both ends of their codes."""
    top = 2**fmt.bit_depth - 1
    steps = np.unique(np.append(np.arange(0, top, 17 * (top // 255)), top))
    u, v = np.meshgrid(steps, steps)
    shift = 6 if fmt is P010 else 0
    chroma = np.stack([u, v], axis=2).astype(fmt.dtype) << shift
    for code in steps:
        luma = np.full((2 * len(steps), 2 * len(steps)), code << shift, fmt.dtype)
        picture = Picture((luma, chroma), fmt, color)
        for pixels in (options(), options("chw", "float32")):
            placement = place((0, 0, *luma.shape), None, "stretch")
            out, _ = Guarded().array(pixels.shape(1, placement.size), pixels.dtype)
            render([picture], [placement], pixels, out)
            check(out, expected(picture, placement, pixels), pixels)


@settings(max_examples=150)
@given(
    fmt=st.sampled_from(list(PixelFormat)),
    form=st.sampled_from([("hwc", "uint8", "rgb"), ("chw", "float16", "rgb")]),
    width=st.integers(1, 80),
    height=st.integers(1, 20),
    paddings=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    offset=st.integers(0, 16),
    at_end=st.booleans(),
    data=st.data(),
)
def test_copies_of_any_size_pitch_crop_and_alignment(
    *, fmt, form, width, height, paddings, offset, at_end, data
):
    paddings = data.draw(st.sampled_from([paddings, (-width % 16, 2 * (-(width // 2) % 8))]))
    crop = data.draw(crops(width, height))
    picture = frame(fmt, width, height, paddings=paddings, offset=offset, at_end=at_end)
    pixels = options(*form)
    placement = place(crop, None, "stretch")
    shape = pixels.shape(1, placement.size)
    itemsize = np.dtype(pixels.dtype).itemsize
    row = int(np.prod(shape[1:])) * itemsize
    padding = data.draw(st.integers(0, 17)) * itemsize
    pitch = {"hwc": row + padding, "chw": row}[pixels.layout]
    out, store = Guarded().array(
        shape, pixels.dtype, pitch=pitch, offset=data.draw(st.integers(0, 16)) * itemsize
    )
    render([picture], [placement], pixels, out)
    check(out, expected(picture, placement, pixels), pixels)
    gaps = np.ones(store.size + pitch - row, bool).reshape(-1, pitch)
    gaps[:, :row] = False
    assert (store[gaps.ravel()[: store.size]] == POISON).all(), "padding was written"


@st.composite
def crops(draw, width, height):
    x, y = draw(st.integers(0, width - 1)), draw(st.integers(0, height - 1))
    return x, y, draw(st.integers(1, width - x)), draw(st.integers(1, height - y))


@settings(max_examples=150)
@given(
    form=st.sampled_from(
        [
            (NV12, "chw", "float32", "rgb", "bilinear"),
            (NV12, "hwc", "uint8", "rgb", "area"),
            (P010, "hwc", "uint8", "rgb", "bilinear"),
            (RGB24, "chw", "float32", "rgb", "area"),
            (GRAY8, "hwc", "uint8", "rgb", "nearest"),
        ]
    ),
    siting=st.sampled_from(["left", "center", "topleft"]),
    fit=st.sampled_from(["letterbox", "cover", "stretch"]),
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    size=st.tuples(st.integers(1, 80), st.integers(1, 40)),
    at_end=st.booleans(),
    data=st.data(),
)
def test_resizing_from_any_size_to_any_size(
    *, form, siting, fit, width, height, size, at_end, data
):
    fmt, layout, dtype, channels, interpolation = form
    picture = frame(fmt, width, height, paddings=(3, 2), at_end=at_end)
    pixels = options(layout, dtype, channels, interpolation, siting)
    placement = place(data.draw(crops(width, height)), size, fit)
    out, _ = Guarded().array(pixels.shape(1, size), dtype)
    render([picture], [placement], pixels, out)
    check(out, expected(picture, placement, pixels), pixels)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize("channels", ["rgb", "bgr", "gray"])
def test_mean_and_std_apply_after_clipping(dtype, channels):
    picture = frame(NV12, 40, 30)
    mean, std = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    if channels == "gray":
        mean, std = mean[:1], std[:1]
    pixels = pixels_of("chw", dtype, channels, "bilinear", "left", 114, mean, std)
    placement = place((0, 0, 40, 30), (32, 32), "letterbox")
    out, _ = Guarded().array(pixels.shape(1, placement.size), dtype)
    render([picture], [placement], pixels, out)
    wanted = expected(picture, placement, pixels, mean=mean, std=std)
    np.testing.assert_allclose(
        out.transpose(1, 2, 0), wanted, atol={"float16": 2e-3, "float32": 1e-5}[dtype]
    )


def test_bfloat16_is_rounded_half_to_even():
    picture = frame(NV12, 40, 30)
    placement = place((0, 0, 40, 30), (32, 32), "letterbox")
    exact, halved = options("chw", "float32"), options("chw", "bfloat16")
    whole, _ = Guarded().array(exact.shape(1, placement.size), "float32")
    bits, _ = Guarded().array(exact.shape(1, placement.size), "uint16")
    render([picture], [placement], exact, whole)
    render([picture], [placement], halved, bits)
    np.testing.assert_array_equal(bits, as_stored(whole, "bfloat16"))
    back = (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(back, whole, rtol=2**-8, atol=1e-30)


@pytest.mark.parametrize("layout", ["nhwc", "nchw"])
@pytest.mark.parametrize("count", [2, CAPACITY, CAPACITY + 1, 2 * CAPACITY + 3])
def test_a_batch_is_what_its_frames_are(layout, count):
    formats = itertools.cycle(PixelFormat)
    pictures = [frame(next(formats), 9 + i % 7, 7 + i % 5, seed=i) for i in range(count)]
    pixels = options(layout, "uint8", "rgb", "bilinear")
    placements = [
        place((0, 0, p.planes[0].shape[1], p.planes[0].shape[0]), (12, 10), "letterbox")
        for p in pictures
    ]
    placements[1] = place((0, 0, 3, 4), (12, 10), "letterbox")
    pictures[0], placements[0] = frame(NV12, 12, 10), place((0, 0, 12, 10), (12, 10), "cover")
    out, _ = Guarded().array(pixels.shape(count, (12, 10)), "uint8")
    render(pictures, placements, pixels, out)
    single = options(layout[1:], "uint8", "rgb", "bilinear")
    for picture, placement, found in zip(pictures, placements, out, strict=True):
        check(found, expected(picture, placement, single), single)


def test_results_of_any_strides_are_written_and_nothing_else():
    picture, pixels = frame(NV12, 23, 15), options()
    placement = place((0, 0, 23, 15), None, "stretch")
    store = np.full((15, 46, 4), POISON, np.uint8)
    out = store[:, ::2, :3]
    render([picture], [placement], pixels, out)
    check(out, expected(picture, placement, pixels), pixels)
    assert (store[:, 1::2] == POISON).all()
    assert (store[..., 3] == POISON).all()
    turned = store.reshape(15, 184)[:, :69].reshape(15, 23, 3)[::-1, ::-1]
    render([picture], [placement], pixels, turned)
    check(turned, expected(picture, placement, pixels), pixels)


@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_a_layout_may_be_stored_as_the_other(layout):
    pixels = options(layout, "float32")
    picture, placement = frame(NV12, 40, 12), place((0, 0, 40, 12), None, "stretch")
    other = {"hwc": (3, 12, 40), "chw": (12, 40, 3)}[layout]
    back = {"hwc": (1, 2, 0), "chw": (2, 0, 1)}[layout]
    out = Guarded().array(other, "float32")[0].transpose(back)
    render([picture], [placement], pixels, out)
    check(out, expected(picture, placement, pixels), pixels)


def test_one_launch_holds_29_frames_of_any_kind():
    pictures = [nowhere(fmt) for fmt in PixelFormat] * 6
    pixels = options("nchw", "float16")
    placements = [place((0, 0, 8, 8), (8, 8), "stretch")] * 30
    target = Buffer(4096, (30, 3, 8, 8), (384, 128, 16, 2), "float16", 0)
    found = list(launches(pictures, placements, pixels, target))
    assert [launch.grid for launch in found] == [(1, 1, 29), (1, 1, 1)]
    assert all(len(launch.parameter) <= 4096 for launch in found)


def test_items_that_are_not_aligned_are_refused():
    pixels = options("hwc", "float32")
    target = Buffer(4098, (8, 8, 3), (96, 12, 4), "float32", 0)
    placement = place((0, 0, 8, 8), None, "stretch")
    with pytest.raises(InvalidArgumentError, match="not aligned"):
        next(launches([nowhere(NV12)], [placement], pixels, target))


# --- RGB to frames --------------------------------------------------------------------------------


@settings(max_examples=150)
@given(
    fmt=st.sampled_from([NV12, P010, GRAY8]),
    color=st.sampled_from(COLORS),
    channels=st.sampled_from([3, 4]),
    width=st.integers(1, 40),
    height=st.integers(1, 12),
    paddings=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    aligned=st.booleans(),
    turned=st.booleans(),
)
def test_frames_are_made_of_rgb(*, fmt, color, channels, width, height, paddings, aligned, turned):
    if aligned:
        paddings = (-width % 16, -2 * ((width + 1) // 2) % 16, -width * channels % 32)
    planes, stores = [], []
    for shape, padding in zip(fmt.plane_shapes(width, height), paddings, strict=False):
        row = int(np.prod(shape[1:])) * fmt.itemsize
        pitch = row + padding * fmt.itemsize
        plane, store = Guarded().array(shape, fmt.dtype, pitch=pitch)
        planes.append(plane)
        stores.append((store, row, pitch))
    shape = (height, width, channels)
    rgb, _ = Guarded().array(shape, "uint8", pitch=width * channels + paddings[2])
    rgb[...] = np.random.default_rng(width).integers(0, 256, shape)
    rgb[: height // 2] = rgb[: height // 2] // 128 * 255  # the corners of the cube
    pixels = rgb[:, ::-1] if turned else rgb
    encode(pixels, fmt, color, planes)
    shift = 6 if fmt is P010 else 0
    for plane, wanted in zip(planes, yuv_reference(pixels[..., :3] / 255, fmt, color), strict=True):
        difference = (plane >> shift).astype(int) - (wanted >> shift).astype(int)
        assert np.abs(difference).max() <= 1
        assert not (plane & (2**shift - 1)).any()
    for store, row, pitch in stores:
        columns = np.arange(store.size) % pitch
        assert (store[columns >= row] == POISON).all(), "padding was written"
