"""Inputs of networks made in main memory: laid out, normalised, and in any library's array."""

import ctypes
import sys
import types

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import Options, Picture, Pixels, placement_of, render
from cuframes_nb.convert._outputs import Buffer, buffer_of
from cuframes_nb.convert._sampled import as_stored
from cuframes_nb.convert.reference import picture_reference
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError
from cuframes_nb.formats import PixelFormat

NV12, P010, GRAY8, RGB24, RGBA32 = PixelFormat
BT709 = ColorSpec("bt709", "limited")
RGB = ColorSpec("rgb", "full")
POISON = 0xA5
ATOL = {"uint8": 1, "float16": 5e-4, "float32": 1e-5}


def frame(fmt, width, height, seed=0):
    rng = np.random.default_rng(seed)
    planes = tuple(
        rng.integers(0, 2 ** (8 * fmt.itemsize), shape).astype(fmt.dtype)
        for shape in fmt.plane_shapes(width, height)
    )
    return Picture(planes, fmt, BT709 if fmt.is_yuv else RGB)


def poisoned(shape, dtype):
    itemsize = np.dtype(dtype).itemsize
    return np.full((*shape[:-1], shape[-1] * itemsize), POISON, np.uint8).view(dtype)


def pixels_of(*options, **named):
    return Pixels.of(Options(*options, **named))


def as_hwc(found, layout):
    if len(layout) == 4:
        found, layout = found[0], layout[1:]
    return found.transpose([layout.index(axis) for axis in "hwc"])


@pytest.mark.parametrize("fmt", list(PixelFormat))
@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "area"])
@pytest.mark.parametrize("fit", ["letterbox", "cover", "stretch"])
def test_every_way_agrees_with_the_reference(fmt, interpolation, fit):
    picture = frame(fmt, 37, 23)
    crop = (3, 5, 31, 17)
    ways = zip(
        ("hwc", "chw", "nhwc", "nchw"),
        ("uint8", "float16", "float32", "uint8"),
        ("rgb", "bgr", "gray", "bgr"),
        ("left", "center", "topleft", "left"),
        strict=True,
    )
    for layout, dtype, channels, siting in ways:
        for size in ((24, 24), (50, 17), (31, 40), (7, 1), None):
            pixels = pixels_of(layout, dtype, channels, interpolation, siting, 114)
            placement = placement_of(37, 23, crop, size, fit)
            out = poisoned(pixels.shape(1, placement.size), dtype)
            assert render([picture], [placement], pixels, out) is out
            wanted = picture_reference(
                *picture,
                placement,
                channels=channels,
                interpolation=interpolation,
                siting=siting,
                fill=114,
            )
            if dtype == "uint8":
                wanted = np.rint(wanted * 255)
            np.testing.assert_allclose(
                as_hwc(out, layout).astype(float), wanted, atol=ATOL[dtype], rtol=0
            )


@given(
    interpolation=st.sampled_from(["nearest", "bilinear", "area"]),
    width=st.integers(1, 30),
    height=st.integers(1, 30),
    columns=st.integers(1, 60),
    rows=st.integers(1, 60),
)
def test_any_size_to_any_size(interpolation, width, height, columns, rows):
    picture = frame(NV12, width, height)
    pixels = pixels_of("hwc", "float32", "rgb", interpolation)
    placement = placement_of(width, height, None, (columns, rows))
    out = poisoned((rows, columns, 3), "float32")
    render([picture], [placement], pixels, out)
    wanted = picture_reference(*picture, placement, interpolation=interpolation)
    np.testing.assert_allclose(out, wanted, atol=1e-5, rtol=0)


def test_mean_and_std_apply_channel_by_channel():
    picture = frame(NV12, 20, 10)
    mean, std = (0.485, 0.456, 0.406), [0.229, 0.224, 0.225]
    pixels = pixels_of("nchw", "float32", mean=mean, std=std, fill=114)
    placement = placement_of(20, 10, None, (16, 16), "letterbox")
    found = render([picture], [placement], pixels)
    wanted = picture_reference(*picture, placement, mean=mean, std=std, fill=114)
    np.testing.assert_allclose(as_hwc(found, "nchw"), wanted, atol=1e-5)
    assert np.isfinite(found).all()


def test_bilinear_upscaling_is_pillow_s():
    """Without chroma and without shrinking there is one definition, to which Pillow's is equal."""
    picture = frame(RGB24, 17, 11)
    pixels = pixels_of("hwc", "uint8")
    found = render([picture], [placement_of(17, 11, None, (40, 30))], pixels)
    image = Image.fromarray(picture.planes[0])
    theirs = np.asarray(image.resize((40, 30), Image.Resampling.BILINEAR))
    assert np.abs(found.astype(int) - theirs).max() <= 1


def test_area_shrinking_by_whole_numbers_is_a_mean():
    picture = frame(RGB24, 24, 12)
    pixels = pixels_of("hwc", "float32", interpolation="area")
    found = render([picture], [placement_of(24, 12, None, (8, 4))], pixels)
    means = picture.planes[0].reshape(4, 3, 8, 3, 3).mean(axis=(1, 3)) / 255
    np.testing.assert_allclose(found, means, atol=1e-6)
    image = Image.fromarray(picture.planes[0])
    theirs = np.asarray(image.resize((8, 4), Image.Resampling.BOX))
    assert np.abs(np.rint(found * 255).astype(int) - theirs).max() <= 1


def test_nearest_takes_what_pillow_takes():
    """At sizes where no centre lies between two pixels, which is a matter of taste."""
    picture = frame(RGB24, 24, 12)
    pixels = pixels_of("hwc", "uint8", interpolation="nearest")
    image = Image.fromarray(picture.planes[0])
    for size in ((16, 8), (48, 36), (32, 4)):
        found = render([picture], [placement_of(24, 12, None, size)], pixels)
        np.testing.assert_array_equal(found, image.resize(size, Image.Resampling.NEAREST))


def test_a_batch_holds_frames_of_any_kind():
    pictures = [frame(fmt, 20 + i, 10 + 3 * i, seed=i) for i, fmt in enumerate(PixelFormat)]
    placements = [
        placement_of(p.planes[0].shape[1], p.planes[0].shape[0], None, (16, 16), "letterbox")
        for p in pictures
    ]
    pixels = pixels_of("nchw", "float32", fill=114)
    found = render(pictures, placements, pixels)
    assert found.shape == (5, 3, 16, 16)
    for picture, placement, one in zip(pictures, placements, found, strict=True):
        wanted = picture_reference(*picture, placement, fill=114)
        np.testing.assert_allclose(as_hwc(one, "chw"), wanted, atol=1e-5)


def test_frames_of_different_sizes_need_one_size():
    pictures = [frame(NV12, 20, 10), frame(NV12, 22, 10)]
    placements = [placement_of(20, 10, None, None), placement_of(22, 10, None, None)]
    with pytest.raises(InvalidArgumentError, match="say which size="):
        render(pictures, placements, pixels_of("nchw"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "nwhc"}, "use one of hwc, chw, nhwc, nchw"),
        ({"channels": "rgba"}, "use one of rgb, bgr, gray"),
        ({"interpolation": "cubic"}, "use one of bilinear, nearest, area"),
        ({"siting": "bottom"}, "use one of left, center, topleft"),
        ({"dtype": "float64"}, "use one of uint8, float16, bfloat16, float32"),
        ({"dtype": object()}, "use one of uint8"),
        ({"fill": 256}, "from 0 to 255"),
        ({"fill": "gray"}, "use a number"),
        ({"mean": 0.5}, "uint8 has no mean"),
        ({"dtype": "float32", "mean": (1, 2)}, r"one for each of 3 channel"),
        ({"dtype": "float32", "mean": float("nan")}, "use a number"),
        ({"dtype": "float32", "std": (1, 0, 1)}, "above 0"),
        ({"dtype": "float32", "std": np.zeros(3)}, "above 0"),
        ({"dtype": "float32", "channels": "gray", "std": [1, 1, 1]}, "each of 1 channel"),
    ],
)
def test_wrong_options_say_what_to_use(options, message):
    with pytest.raises(InvalidArgumentError, match=message):
        pixels_of(**options)


def test_names_of_types_are_those_of_any_library():
    torch_like = type("dtype", (), {"__str__": lambda _: "torch.bfloat16"})()
    assert pixels_of(dtype=torch_like).dtype == "bfloat16"
    assert pixels_of(dtype=np.float16).dtype == "float16"
    assert pixels_of(dtype="f4").dtype == "float32"


# --- Arrays of other libraries --------------------------------------------------------------------


class Foreign:
    """An array that offers DLPack alone, as another library's; of bfloat16 if that is asked for."""

    def __init__(self, array, *, bfloat16=False):
        self._array, self._bfloat16 = array, bfloat16

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self):
        capsule = self._array.__dlpack__()
        if self._bfloat16:
            get = ctypes.pythonapi.PyCapsule_GetPointer
            get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
            code = get(capsule, b"dltensor") + 8 + 4 + 4 + 4
            ctypes.c_uint8.from_address(code).value = 4  # kDLBfloat
        return capsule


@pytest.mark.parametrize("dtype", ["uint8", "float16", "float32"])
def test_an_array_of_another_library_is_written_to(dtype):
    picture, pixels = frame(NV12, 20, 10), pixels_of("hwc", dtype)
    store = poisoned((10, 40, 3), dtype)
    out = Foreign(store[:, ::2])
    placement = placement_of(20, 10, None, None)
    assert render([picture], [placement], pixels, out) is out
    np.testing.assert_array_equal(store[:, ::2], render([picture], [placement], pixels))
    assert (store[:, 1::2] == poisoned((1, 1, 1), dtype)).all()


def test_bfloat16_of_another_library_is_written_to():
    picture, placement = frame(NV12, 20, 10), placement_of(20, 10, None, (16, 16), "letterbox")
    bits = np.zeros((1, 3, 16, 16), np.uint16)
    render([picture], [placement], pixels_of("nchw", "bfloat16"), Foreign(bits, bfloat16=True))
    whole = render([picture], [placement], pixels_of("nchw", "float32"))
    back = (bits.astype(np.uint32) << 16).view(np.float32)
    np.testing.assert_allclose(back, whole, rtol=2**-8)


def test_bfloat16_is_rounded_half_to_even():
    values = np.array([1, 1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -0.7, 0], np.float32)
    bits = as_stored(values.copy(), "bfloat16").astype(np.uint32) << 16
    back = bits.view(np.float32).tolist()
    assert back[:4] == [1, 1, 1 + 2**-6, 1 + 2**-7]
    assert back[4] == pytest.approx(-0.7, rel=2**-8)
    assert back[5] == 0


def test_new_arrays_of_bfloat16_need_their_package(monkeypatch):
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    picture, placement = frame(NV12, 8, 8), placement_of(8, 8, None, None)
    with pytest.raises(UnsupportedError, match=r"ml_dtypes.*or pass out="):
        render([picture], [placement], pixels_of("hwc", "bfloat16"))


def test_new_arrays_of_bfloat16_are_of_its_package_s_type(monkeypatch):
    stand_in = types.SimpleNamespace(bfloat16=np.dtype("V2"))
    monkeypatch.setitem(sys.modules, "ml_dtypes", stand_in)
    picture, placement = frame(NV12, 8, 8), placement_of(8, 8, None, None)
    found = render([picture], [placement], pixels_of("hwc", "bfloat16"))
    assert found.dtype == stand_in.bfloat16
    whole = render([picture], [placement], pixels_of("hwc", "float32"))
    np.testing.assert_array_equal(found.view(np.uint16), as_stored(whole, "bfloat16"))


def test_results_that_do_not_fit_are_refused():
    picture, placement = frame(NV12, 20, 10), placement_of(20, 10, None, None)
    read_only = np.zeros((10, 20, 3), np.uint8)
    read_only.flags.writeable = False
    for out, message in (
        (Foreign(np.zeros((10, 20, 4), np.uint8)), r"needs uint8 of shape \(10, 20, 3\)"),
        (Foreign(np.zeros((10, 20, 3), np.int8)), "out is int8"),
        (Foreign(np.zeros((10, 20, 3), np.uint8), bfloat16=True), "out is bfloat8"),
        (Foreign(read_only), "read-only or cannot be shared"),
        (object(), "pass an array of NumPy"),
    ):
        with pytest.raises(InvalidArgumentError, match=message):
            render([picture], [placement], pixels_of("hwc"), out)


def test_gpu_arrays_are_no_place_for_a_host_frame(monkeypatch):
    buffer = Buffer(4096, (10, 20, 3), (60, 3, 1), "uint8", 0)
    monkeypatch.setattr("cuframes_nb.convert.cpu.buffer_of", lambda *_: buffer)
    picture, placement = frame(NV12, 20, 10), placement_of(20, 10, None, None)
    with pytest.raises(InvalidArgumentError, match="pass all in one memory"):
        render([picture], [placement], pixels_of("hwc"), object())


def test_a_buffer_says_where_items_lie():
    array = np.zeros((4, 6, 3), np.float32)[::2, ::-1]
    found = buffer_of(Foreign(array), None)
    assert found.address == array.__array_interface__["data"][0]
    assert (found.shape, found.strides) == (array.shape, array.strides)
    assert (found.dtype, found.device) == ("float32", None)
    assert np.shares_memory(found.as_numpy(), array)
