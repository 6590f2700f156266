"""Conversion in main memory agrees with the reference to one code value, whatever the geometry."""

import itertools
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import cpu, from_rgb, to_rgb
from cuframes_nb.convert.reference import resize_reference, rgb_reference, yuv_reference
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

NV12, P010 = PixelFormat.NV12, PixelFormat.P010
COLORS = [
    ColorSpec(matrix, range_)
    for matrix, range_ in itertools.product(("bt601", "bt709", "bt2020"), ("limited", "full"))
]
RGB = ColorSpec("rgb", "full")
POISON = 0xA5


def color_for(fmt, color):
    return color if fmt.is_yuv else RGB


def strided(shape, dtype, padding=0):
    """Return a poisoned array whose rows are `padding` items longer than its pixels."""
    row = int(np.prod(shape[1:])) + padding
    store = np.full((shape[0], row * np.dtype(dtype).itemsize), POISON, np.uint8).view(dtype)
    return store[:, : row - padding].reshape(shape)


def frame(fmt, width, height, paddings=(0, 0), seed=0):
    """Return planes of random codes over everything that the words can hold."""
    rng = np.random.default_rng(seed)
    planes = []
    for shape, padding in zip(fmt.plane_shapes(width, height), paddings, strict=False):
        plane = strided(shape, fmt.dtype, padding)
        plane[...] = rng.integers(0, 2 ** (8 * fmt.itemsize), shape)
        planes.append(plane)
    return tuple(planes)


def as_codes(reference):
    return np.rint(reference * 255).clip(0, 255).astype(int)


def assert_close(found, expected, tolerance=1):
    assert found.shape == expected.shape
    difference = np.abs(found.astype(int) - expected.astype(int))
    assert difference.max() <= tolerance, np.argwhere(difference > tolerance)[:5]


def cropped(reference, crop):
    x, y, width, height = crop
    return reference[y : y + height, x : x + width]


@pytest.mark.parametrize("fmt", [NV12, P010])
@pytest.mark.parametrize("color", COLORS, ids=str)
def test_every_code_is_within_one(fmt, color):
    """The grid holds luma, U and V together at steps and at both ends of their codes."""
    top = 2**fmt.bit_depth - 1
    steps = np.unique(np.append(np.arange(0, top, 7 * (top // 255)), top))
    u, v = np.meshgrid(steps, steps)
    chroma = np.stack([u, v], axis=2).astype(fmt.dtype)
    shift = 6 if fmt is P010 else 0
    out = strided((2 * len(steps), 2 * len(steps), 3), np.uint8)
    for codes in in_fours(steps):
        block = np.array(codes, fmt.dtype).reshape(2, 2)
        luma = np.tile(block, (len(steps), len(steps)))
        planes = (luma << shift, chroma << shift)
        out[...] = POISON
        to_rgb(planes, fmt, color, out=out)
        assert_close(out, as_codes(rgb_reference(planes, fmt, color)))


def in_fours(steps):
    """Return the steps in fours, the last ones repeated."""
    padded = np.append(steps, [steps[-1]] * (-len(steps) % 4))
    return padded.reshape(-1, 4)


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("color", COLORS, ids=str)
def test_every_parity_of_size(fmt, color):
    color = color_for(fmt, color)
    for width, height in ((64, 48), (63, 48), (64, 47), (63, 47)):
        planes = frame(fmt, width, height, (5, 12))
        expected = as_codes(rgb_reference(planes, fmt, color))
        for layout, shape in (("hwc", (height, width, 3)), ("chw", (3, height, width))):
            out = np.full(shape, POISON, np.uint8)
            assert to_rgb(planes, fmt, color, layout=layout, out=out) is out
            assert_close(out if layout == "hwc" else out.transpose(1, 2, 0), expected)


@given(
    fmt=st.sampled_from(list(PixelFormat)),
    color=st.sampled_from(COLORS),
    width=st.integers(1, 40),
    height=st.integers(1, 40),
    paddings=st.tuples(st.integers(0, 9), st.integers(0, 9)),
    data=st.data(),
)
def test_any_size_pitch_and_crop(*, fmt, color, width, height, paddings, data):
    color = color_for(fmt, color)
    x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
    crop = (x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y)))
    planes = frame(fmt, width, height, paddings)
    out = strided((crop[3], crop[2], 3), np.uint8, data.draw(st.integers(0, 9)))
    padding = out.base if out.base is not None else out
    to_rgb(planes, fmt, color, crop=crop, out=out)
    assert_close(out, as_codes(cropped(rgb_reference(planes, fmt, color), crop)))
    row = 3 * crop[2]
    bytes_of_rows = np.asarray(padding).reshape(crop[3], -1)
    assert (bytes_of_rows[:, row:] == POISON).all(), "padding was written"


@pytest.mark.parametrize("fmt", [NV12, P010])
@pytest.mark.parametrize(
    "crop", [(0, 0, 301, 299), (1, 0, 300, 299), (0, 1, 301, 298), (7, 9, 1, 1)]
)
def test_bands_meet(fmt, crop, monkeypatch):
    monkeypatch.setattr(cpu, "BAND_PIXELS", 1000)
    planes = frame(fmt, 301, 299)
    expected = cropped(rgb_reference(planes, fmt, COLORS[0]), crop)
    assert_close(to_rgb(planes, fmt, COLORS[0], crop=crop), as_codes(expected))


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-6), ("float16", 5e-4)])
@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_floats_are_0_to_1_and_clipped(fmt, dtype, tolerance, layout):
    color = color_for(fmt, COLORS[2])
    planes = frame(fmt, 33, 21, (3, 4))
    found = to_rgb(planes, fmt, color, dtype=dtype, layout=layout, crop=(3, 5, 29, 11))
    assert found.dtype == dtype
    if layout == "chw":
        found = found.transpose(1, 2, 0)
    expected = cropped(rgb_reference(planes, fmt, color), (3, 5, 29, 11)).clip(0, 1)
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("size", [(16, 16), (80, 50), (33, 9), (1, 1), (200, 3)])
@pytest.mark.parametrize("crop", [None, (3, 5, 21, 10), (32, 20, 1, 1)])
def test_resizing_agrees_with_the_reference(fmt, size, crop):
    planes = frame(fmt, 33, 21, (3, 4))
    for color in (color_for(fmt, color) for color in COLORS[:3]):
        expected = resize_reference(planes, fmt, color, size, crop)
        out = np.full((size[1], size[0], 3), POISON, np.uint8)
        to_rgb(planes, fmt, color, size=size, crop=crop, out=out)
        assert_close(out, as_codes(expected))
        exact = to_rgb(planes, fmt, color, size=size, crop=crop, dtype="float32")
        np.testing.assert_allclose(exact, expected.clip(0, 1), atol=1e-5, rtol=0)


def test_a_size_that_is_the_crops_does_not_resize():
    planes = frame(NV12, 20, 10)
    same = to_rgb(planes, "nv12", COLORS[0], size=(20, 10))
    np.testing.assert_array_equal(same, to_rgb(planes, "nv12", COLORS[0]))


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("color", COLORS, ids=str)
@pytest.mark.parametrize("channels", [3, 4])
def test_from_rgb_agrees_with_the_reference(fmt, color, channels):
    color = color_for(fmt, color)
    shift = 6 if fmt is P010 else 0
    for width, height in ((64, 48), (63, 48), (64, 47), (63, 47), (1, 1)):
        rgb = np.random.default_rng(3).integers(0, 256, (height, width, channels), dtype=np.uint8)
        rgb[: height // 2] = rgb[: height // 2] // 128 * 255  # the corners of the cube
        shapes = fmt.plane_shapes(width, height)
        planes = [strided(shapes[i], fmt.dtype, (5, 12)[i]) for i in range(len(shapes))]
        from_rgb(rgb, planes, fmt, color)
        expected = list(yuv_reference(rgb[..., :3] / 255, fmt, color))
        if fmt is PixelFormat.RGBA32 and channels == 4:
            expected[0][..., 3] = rgb[..., 3]
        for plane, wanted in zip(planes, expected, strict=True):
            assert_close(plane >> shift, wanted >> shift)
            assert not (plane & (2**shift - 1)).any()


@given(width=st.integers(1, 30), height=st.integers(1, 30), color=st.sampled_from(COLORS))
def test_there_and_back(width, height, color):
    blocks = np.random.default_rng(width).integers(
        0, 256, ((height + 1) // 2, (width + 1) // 2, 3), dtype=np.uint8
    )
    rgb = blocks.repeat(2, axis=0).repeat(2, axis=1)[:height, :width]
    planes = [strided(shape, "uint16", 3) for shape in P010.plane_shapes(width, height)]
    from_rgb(rgb, planes, P010, color)
    assert_close(to_rgb(planes, P010, color), rgb, tolerance=2)


def test_from_rgb_works_band_by_band(monkeypatch):
    monkeypatch.setattr("cuframes_nb.convert._encode.BAND_PIXELS", 100)
    rgb = np.random.default_rng(4).integers(0, 256, (51, 33, 3), dtype=np.uint8)
    planes = [strided(shape, "uint8", 7) for shape in NV12.plane_shapes(33, 51)]
    from_rgb(rgb[:, ::-1], planes, NV12, COLORS[1])
    for plane, wanted in zip(
        planes, yuv_reference(rgb[:, ::-1] / 255, NV12, COLORS[1]), strict=True
    ):
        assert_close(plane, wanted)


def test_sources_are_only_read():
    planes = frame(NV12, 17, 9)
    for plane in planes:
        plane.flags.writeable = False
    to_rgb(planes, NV12, COLORS[0])
    to_rgb(planes, NV12, COLORS[0], size=(5, 5))


def test_any_strides_work():
    planes = frame(NV12, 24, 16)
    turned = (planes[0][::-1, ::-1], planes[1][::-1, ::-1])
    out = np.full((16, 48, 4), POISON, np.uint8)[:, ::2, :3]
    to_rgb(turned, NV12, COLORS[0], out=out)
    straight = to_rgb(planes, NV12, COLORS[0])
    np.testing.assert_array_equal(out, straight[::-1, ::-1])


PLANES = frame(NV12, 8, 6)
READ_ONLY = np.zeros((6, 8, 3), np.uint8)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"format": "yuv9"}, "use one of nv12"),
        ({"color": "bt709"}, "must be a ColorSpec"),
        ({"color": RGB}, "use 'bt601'"),
        ({"planes": PLANES[0]}, "list or tuple"),
        ({"planes": ()}, "list or tuple"),
        ({"planes": PLANES[:1]}, "2 planes, but 1"),
        ({"planes": (PLANES[0], [1])}, "pass a NumPy or CuPy array"),
        ({"planes": (PLANES[0][0], PLANES[1])}, "rows and columns"),
        ({"planes": (PLANES[0], PLANES[1][:2])}, r"needs uint8 of shape \(3, 4, 2\)"),
        ({"planes": (PLANES[0].astype(int), PLANES[1])}, "plane 0 is int64"),
        ({"layout": "whc"}, "use one of hwc, chw"),
        ({"dtype": "int8"}, "use one of uint8"),
        ({"dtype": "number"}, "use one of uint8"),
        ({"size": (0, 4)}, "between 1 and 32768"),
        ({"size": (4, 40000)}, "between 1 and 32768"),
        ({"size": (4.5, 4)}, "whole numbers"),
        ({"size": 4}, "whole numbers"),
        ({"crop": (0, 0, 4)}, "whole numbers"),
        ({"crop": (-1, 0, 4, 4)}, "leaves the frame of 8x6"),
        ({"crop": (5, 0, 4, 4)}, "leaves the frame of 8x6"),
        ({"crop": (0, 0, 0, 4)}, "empty"),
        ({"out": np.zeros((6, 8, 4), np.uint8)}, r"needs uint8 of shape \(6, 8, 3\)"),
        ({"out": np.zeros((6, 8, 3), np.float32)}, "out is float32"),
        ({"out": [1]}, "out is a builtins.list"),
        ({"out": READ_ONLY}, "read-only"),
    ],
)
def test_wrong_arguments_say_what_to_use(changed, message):
    arguments = {"planes": PLANES, "format": "nv12", "color": COLORS[0], **changed}
    with pytest.raises(InvalidArgumentError, match=message):
        to_rgb(**arguments)


@pytest.mark.parametrize(
    ("rgb", "message"),
    [
        (np.zeros((6, 8), np.uint8), r"\(6, 8, 3\) or \(6, 8, 4\)"),
        (np.zeros((6, 7, 3), np.uint8), r"\(6, 8, 3\) or \(6, 8, 4\)"),
        (np.zeros((6, 8, 2), np.uint8), r"\(6, 8, 3\) or \(6, 8, 4\)"),
        (np.zeros((6, 8, 3), np.float32), "rgb is float32"),
        ("pixels", "rgb is a builtins.str"),
    ],
)
def test_from_rgb_refuses_pixels_that_do_not_fit(rgb, message):
    with pytest.raises(InvalidArgumentError, match=message):
        from_rgb(rgb, PLANES, "nv12", COLORS[0])


def test_from_rgb_refuses_planes_that_are_read_only():
    with pytest.raises(InvalidArgumentError, match="plane 0 is read-only"):
        from_rgb(np.zeros((6, 8, 3), np.uint8), (READ_ONLY,), "rgb24", RGB)


@pytest.mark.process
def test_importing_it_does_not_import_device_libraries():
    code = (
        "import sys, cuframes_nb.convert; print(*{name.partition('.')[0] for name in sys.modules})"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert {"cupy", "cuda", "av"}.isdisjoint(run.stdout.split())
