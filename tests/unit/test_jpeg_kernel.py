"""The kernel that paints a JPEG's planes, run on the CPU, against float64 arithmetic."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuframes_nb._cuda.nvjpeg.painter import matrix_of
from cuframes_nb.color import ColorSpec
from cuframes_nb.formats import PixelFormat
from tests.helpers.jpeg_kernel import paint
from tests.helpers.jpeg_reference import painted

COLORS = [
    ColorSpec(matrix, range_)
    for matrix, range_ in itertools.product(("bt601", "bt709", "bt2020"), ("limited", "full"))
]
RGB = ColorSpec("rgb", "full")


def color_for(fmt, color):
    return color if fmt.is_yuv else RGB


def noise(fmt, width, height, seed=0):
    """Return planes of random codes, in the midst of others that must not count."""
    rng = np.random.default_rng(seed)
    planes = []
    for shape in fmt.plane_shapes(width, height):
        room = rng.integers(0, 2 ** (8 * fmt.itemsize), (shape[0] + 4, shape[1] + 6, *shape[2:]))
        planes.append(room.astype(fmt.dtype)[2 : 2 + shape[0], 3 : 3 + shape[1]])
    return planes


def assert_close(found, wanted, most):
    for name, plane, reference in zip("yuv", found, wanted, strict=True):
        assert plane.shape == reference.shape
        error = abs(plane - np.clip(reference, 0, 255)).max()
        assert error <= most, (name, error)


def check(fmt, color, frame, *, crop=None, size, seed=0, most=0.55):
    """Compare; half a code is what rounding takes."""
    crop = crop or (0, 0, *frame)
    planes = noise(fmt, *frame, seed)
    wanted = painted(planes, fmt, color, crop, size)
    assert_close(paint(planes, fmt, color, crop, size), wanted, most)


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("color", COLORS, ids=str)
def test_every_format_and_color(fmt, color):
    color = color_for(fmt, color)
    for size in ((32, 24), (16, 12), (45, 31), (13, 9), (64, 48), (5, 24)):
        check(fmt, color, (32, 24), size=size)


@pytest.mark.parametrize("fmt", list(PixelFormat))
def test_every_parity_of_frame_and_picture(fmt):
    color = color_for(fmt, COLORS[2])
    for width, height in itertools.product((1, 2, 3, 16, 17), repeat=2):
        for size in ((width, height), (1, 1), (7, 5), (8, 6), (2 * width, 3 * height)):
            check(fmt, color, (width, height), size=size)


CROPS = st.tuples(*[st.integers(0, 20)] * 2, *[st.integers(1, 20)] * 2)


@settings(max_examples=150)
@given(
    fmt=st.sampled_from(PixelFormat), color=st.sampled_from(COLORS), crop=CROPS,
    size=st.tuples(st.integers(1, 50), st.integers(1, 50)), seed=st.integers(0, 99),
)  # fmt: skip
def test_any_rectangle_at_any_size(fmt, color, crop, size, seed):
    frame = (crop[0] + crop[2] + seed % 2, crop[1] + crop[3] + seed % 3)
    check(fmt, color_for(fmt, color), frame, crop=crop, size=size, seed=seed)


def test_what_jpeg_stores_stays_as_it_is():
    planes = noise(PixelFormat.NV12, 33, 21)
    full = ColorSpec("bt601", "full")
    for x, y, width, height in [(0, 0, 33, 21), (4, 6, 20, 10), (8, 2, 25, 19)]:
        crop = (x, y, width, height)
        luma, blue, red = paint(planes, PixelFormat.NV12, full, crop, (width, height))
        half = planes[1][y // 2 : (y + height + 1) // 2, x // 2 : (x + width + 1) // 2]
        assert np.array_equal(luma, planes[0][y : y + height, x : x + width])
        assert np.array_equal(np.dstack([blue, red]), half)


@pytest.mark.parametrize(
    ("x", "width", "made"), [(29999, 2769, 97), (32000, 101, 101), (32667, 101, 307)]
)
def test_large_frames_are_right_to_a_code_value(x, width, made):
    for fmt in (PixelFormat.NV12, PixelFormat.RGB24):
        color = color_for(fmt, COLORS[3])
        check(fmt, color, (32768, 2), crop=(x, 0, width, 2), size=(made, 2), most=1)


@pytest.mark.parametrize("color", COLORS, ids=str)
def test_white_black_and_gray_are_what_they_are(color):
    for fmt in (PixelFormat.NV12, PixelFormat.P010, PixelFormat.GRAY8):
        step = 2 ** (fmt.bit_depth - 8)
        top, black = (256 * step - 1, 0) if color.range == "full" else (235 * step, 16 * step)
        middle = 128 * step
        for code, shown in ((black, 0), (top, 255), ((black + top) / 2, 127.5)):
            made = matrix_of(fmt, color) @ [code, middle, middle, 1]
            assert np.allclose(made, [shown, 128, 128])


def test_rgb_becomes_bt601():
    assert np.allclose(
        matrix_of(PixelFormat.RGB24, RGB) @ [255, 0, 0, 1], [76.245, 84.97, 255.5], atol=0.01
    )
