"""Conversion in GPU memory agrees with the reference to one code value, whatever the geometry."""

import itertools

import numpy as np
import pytest

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import from_rgb, to_rgb
from cuframes_nb.convert.reference import resize_reference, rgb_reference, yuv_reference
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

cupy = pytest.importorskip("cupy")
pytestmark = pytest.mark.gpu

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
    """Return a poisoned device array whose rows are `padding` items longer than its pixels."""
    itemsize = np.dtype(dtype).itemsize
    row = int(np.prod(shape[1:])) + padding
    store = cupy.full((shape[0], row * itemsize), POISON, cupy.uint8).view(dtype)
    strides = [store.strides[0], *np.cumprod([itemsize, *shape[:1:-1]])[::-1].tolist()]
    return cupy.ndarray(shape, dtype, store.data, tuple(strides))


def frame(fmt, width, height, paddings=(0, 0), seed=0):
    """Return planes on the device of random codes over everything that the words can hold."""
    rng = np.random.default_rng(seed)
    planes = []
    for shape, padding in zip(fmt.plane_shapes(width, height), paddings, strict=False):
        plane = strided(shape, fmt.dtype, padding)
        plane[...] = cupy.asarray(rng.integers(0, 2 ** (8 * fmt.itemsize), shape).astype(fmt.dtype))
        planes.append(plane)
    return tuple(planes)


def on_host(planes):
    return tuple(cupy.asnumpy(plane) for plane in planes)


def as_codes(reference):
    return np.rint(reference * 255).clip(0, 255).astype(int)


def assert_close(found, expected, tolerance=1):
    found = cupy.asnumpy(found).astype(int)
    assert found.shape == expected.shape
    difference = np.abs(found - expected.astype(int))
    assert difference.max() <= tolerance, np.argwhere(difference > tolerance)[:5]


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("color", COLORS, ids=str)
def test_every_parity_of_size(fmt, color):
    color = color_for(fmt, color)
    for width, height in ((64, 48), (63, 48), (64, 47), (63, 47), (1, 1)):
        planes = frame(fmt, width, height, (5, 12))
        expected = as_codes(rgb_reference(on_host(planes), fmt, color))
        for layout, shape in (("hwc", (height, width, 3)), ("chw", (3, height, width))):
            out = cupy.full(shape, POISON, cupy.uint8)
            assert to_rgb(planes, fmt, color, layout=layout, out=out) is out
            assert_close(out if layout == "hwc" else out.transpose(1, 2, 0), expected)


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("crop", [(3, 5, 21, 10), (2, 4, 20, 11), (32, 20, 1, 1)])
def test_crop(fmt, crop):
    color = color_for(fmt, COLORS[2])
    planes = frame(fmt, 33, 21, (3, 4))
    x, y, width, height = crop
    expected = as_codes(rgb_reference(on_host(planes), fmt, color))
    out = to_rgb(planes, fmt, color, crop=crop)
    assert_close(out, expected[y : y + height, x : x + width])


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("float16", 5e-4)])
@pytest.mark.parametrize("layout", ["hwc", "chw"])
def test_floats_are_0_to_1_and_clipped(fmt, dtype, tolerance, layout):
    color = color_for(fmt, COLORS[2])
    planes = frame(fmt, 33, 21, (3, 4))
    found = cupy.asnumpy(to_rgb(planes, fmt, color, dtype=dtype, layout=layout))
    assert found.dtype == dtype
    if layout == "chw":
        found = found.transpose(1, 2, 0)
    expected = rgb_reference(on_host(planes), fmt, color).clip(0, 1)
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=0)


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("size", [(16, 16), (80, 50), (33, 9), (1, 1), (200, 3)])
@pytest.mark.parametrize("crop", [None, (3, 5, 21, 10), (32, 20, 1, 1)])
def test_resizing_agrees_with_the_reference(fmt, size, crop):
    color = color_for(fmt, COLORS[2])
    planes = frame(fmt, 33, 21, (3, 4))
    expected = resize_reference(on_host(planes), fmt, color, size, crop)
    out = cupy.full((size[1], size[0], 3), POISON, cupy.uint8)
    to_rgb(planes, fmt, color, size=size, crop=crop, out=out)
    assert_close(out, as_codes(expected))
    exact = to_rgb(planes, fmt, color, size=size, crop=crop, dtype="float32")
    np.testing.assert_allclose(cupy.asnumpy(exact), expected.clip(0, 1), atol=1e-4, rtol=0)


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
        from_rgb(cupy.asarray(rgb), planes, fmt, color)
        expected = list(yuv_reference(rgb[..., :3] / 255, fmt, color))
        if fmt is PixelFormat.RGBA32 and channels == 4:
            expected[0][..., 3] = rgb[..., 3]
        for plane, wanted in zip(on_host(planes), expected, strict=True):
            assert_close(plane >> shift, wanted >> shift)
            assert not (plane & (2**shift - 1)).any()


def test_outputs_of_any_strides_are_written_and_nothing_else():
    planes = frame(NV12, 23, 15, (7, 2))
    store = cupy.full((15, 46, 4), POISON, cupy.uint8)
    out = store[:, ::2, :3]
    to_rgb(planes, NV12, COLORS[0], out=out)
    assert_close(out, as_codes(rgb_reference(on_host(planes), NV12, COLORS[0])))
    assert (cupy.asnumpy(store)[:, 1::2] == POISON).all()
    assert (cupy.asnumpy(store)[..., 3] == POISON).all()


def test_padding_of_planes_is_left_as_it_is():
    store = cupy.full((4, 32), POISON, cupy.uint8)
    luma = store[:, :6]
    rgb = cupy.full((4, 6, 3), 200, cupy.uint8)[:, ::-1]
    from_rgb(rgb, (luma,), "gray8", ColorSpec("bt709", "full"))
    assert (cupy.asnumpy(store)[:, :6] == 200).all()
    assert (cupy.asnumpy(store)[:, 6:] == POISON).all()


def test_work_is_queued_on_the_current_stream():
    planes = frame(NV12, 64, 48)
    expected = as_codes(rgb_reference(on_host(planes), NV12, COLORS[0]))
    late = cupy.zeros_like(planes[0])
    cupy.cuda.Device().synchronize()
    stream = cupy.cuda.Stream(non_blocking=True)
    with stream:
        late[...] = planes[0]
        out = to_rgb((late, planes[1]), NV12, COLORS[0])
        back = [cupy.empty_like(plane) for plane in planes]
        from_rgb(out, back, NV12, COLORS[0])
    stream.synchronize()
    assert_close(out, expected)
    wanted = yuv_reference(cupy.asnumpy(out) / 255, NV12, COLORS[0])
    for plane, reference in zip(back, wanted, strict=True):
        assert_close(plane, reference)


def test_planes_whose_pixels_lie_apart_are_refused():
    planes = frame(NV12, 16, 8)
    with pytest.raises(InvalidArgumentError, match="must follow each other"):
        to_rgb((planes[0][:, ::-1], planes[1]), NV12, COLORS[0])


def test_arrays_of_two_memories_are_refused():
    planes = frame(NV12, 16, 8)
    with pytest.raises(InvalidArgumentError, match="pass all in one memory"):
        to_rgb((planes[0], cupy.asnumpy(planes[1])), NV12, COLORS[0])
    with pytest.raises(InvalidArgumentError, match="pass all in one memory"):
        to_rgb(planes, NV12, COLORS[0], out=np.empty((8, 16, 3), np.uint8))
    with pytest.raises(InvalidArgumentError, match="pass all in one memory"):
        from_rgb(np.zeros((8, 16, 3), np.uint8), planes, NV12, COLORS[0])
