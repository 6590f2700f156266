"""What the user's functions may return, and what becomes of it: pictures and shapes."""

import base64
import contextlib
import io
import itertools
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from PIL import Image

import cuframes_nb as cf
from cuframes_nb._viewer import shapes
from cuframes_nb._viewer.colormaps import COLORMAPS, colormap
from cuframes_nb._viewer.images import as_pixels, host_array
from cuframes_nb._viewer.shapes import as_json
from cuframes_nb._views import downloads

RGB = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
GRAY = RGB[..., 0].copy()


class Torch:
    """Looks like a tensor on a GPU that needs a gradient."""

    def __init__(self, array, steps=()):
        self._array, self._steps = array, steps
        self.shape = array.shape

    def detach(self):
        return Torch(self._array, (*self._steps, "detach"))

    def cpu(self):
        return Torch(self._array, (*self._steps, "cpu"))

    def numpy(self):
        assert self._steps == ("detach", "cpu")
        return self._array.view()

    def tolist(self):
        return self._array.tolist()

    def __array__(self, dtype=None, copy=None):
        raise TypeError("can't convert cuda:0 device type tensor to numpy")


class Cupy:
    """Looks like an array of CuPy."""

    def __init__(self, array):
        self.__cuda_array_interface__ = {}
        self._array = array
        self.shape = array.shape
        self.device = SimpleNamespace(id=3)

    def get(self):
        return self._array.copy()

    def __array__(self, dtype=None, copy=None):
        raise TypeError("implicit conversion to a NumPy array is not allowed")


KINDS = [np.asarray, Torch, Cupy]


@pytest.fixture(autouse=True)
def without_cuda(monkeypatch):
    """Stand in for what makes a GPU current."""
    monkeypatch.setattr(downloads, "activated", lambda _: contextlib.nullcontext())


# --- Pictures -------------------------------------------------------------------------------------


def test_arrays_of_every_library_become_arrays_of_numpy():
    for kind in (*KINDS, np.ndarray.tolist):
        assert np.array_equal(host_array(kind(RGB)), RGB)


def test_what_is_a_picture_becomes_pixels():
    for array, pixels in [
        (RGB, RGB),
        (GRAY, GRAY),
        (np.moveaxis(RGB, 2, 0), RGB),
        (np.dstack([RGB, GRAY]), RGB),
        (np.moveaxis(np.dstack([RGB, GRAY]), 2, 0), RGB),
        (GRAY[..., None], GRAY),
        (GRAY[None], GRAY),
        (GRAY > 50, np.where(GRAY > 50, 255, 0)),
        (RGB > 50, np.where(RGB > 50, 255, 0)),
        (RGB / 255, RGB),
        ((RGB / 255).astype(np.float32), RGB),
        (np.array([[[-1.0, 0.5, 7.0]]]), [[[0, 128, 255]]]),
        (np.array([[[np.nan, np.inf, -np.inf]]]), [[[0, 255, 0]]]),
        (RGB[::-1, ::2], RGB[::-1, ::2]),
        (np.broadcast_to(np.uint8(7), (3, 2)), np.full((3, 2), 7)),
        (RGB[:3, :3], RGB[:3, :3]),
    ]:
        for kind in KINDS:
            found = as_pixels(kind(array))
            assert found.dtype == np.uint8
            assert found.flags.c_contiguous
            assert np.array_equal(found, pixels)


def test_halves_are_exact_enough():
    found = as_pixels((RGB / 255).astype(np.float16))
    assert abs(found.astype(int) - RGB).max() <= 1


def test_pixels_keep_nobody_else_s_memory():
    for array in [GRAY, RGB, RGB[::2], np.dstack([RGB, RGB])[..., :3]]:
        found = as_pixels(array.view())
        assert not np.shares_memory(found, array)


def test_an_array_of_its_own_is_not_copied():
    own = GRAY.copy()
    assert as_pixels(own) is own


def test_other_numbers_are_a_heat_map():
    for dtype in [np.int8, np.uint16, np.int64, np.float16, np.float64]:
        values = np.array([[0, 1], [2, 3]], dtype)
        assert np.array_equal(as_pixels(values), cf.Heatmap(values).pixels())


def test_what_is_no_picture_is_refused():
    for array in [
        np.zeros((0, 5), np.uint8),
        np.zeros((0, 0)),
        np.zeros((5, 0, 3), np.uint8),
        np.zeros(5, np.uint8),
        np.zeros(()),
        np.zeros((2, 2, 3, 3), np.uint8),
        np.zeros((5, 5, 6), np.uint8),
        np.zeros((5, 5, 2), np.uint8),
        np.zeros((5, 5, 3), np.uint16),
        np.zeros((5, 5), complex),
        np.zeros((5, 5), "U3"),
        np.zeros((5, 5), object),
        np.zeros((5, 5), "datetime64[s]"),
    ]:
        for kind in KINDS:
            with pytest.raises(cf.InvalidArgumentError, match=r"is no picture|is not empty"):
                as_pixels(kind(array))


def test_what_is_no_array_is_refused():
    for value in [None, "text", b"bytes", object(), {}, [[1], [2, 3]], 1 + 2j]:
        with pytest.raises(cf.InvalidArgumentError, match="is no picture: return an array"):
            as_pixels(value)


@given(
    arrays.arrays(
        st.sampled_from([np.uint8, np.bool_, np.int32, np.float16, np.float32, np.float64, object]),
        arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5),
    )
)
def test_whatever_array_it_is_there_are_pixels_or_a_clear_error(array):
    try:
        pixels = as_pixels(array)
    except cf.InvalidArgumentError:
        return
    assert pixels.dtype == np.uint8
    assert pixels.size
    assert pixels.ndim == 2 or pixels.shape[2:] == (3,)


# --- Heat maps ------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", COLORMAPS)
def test_a_heat_map_goes_from_the_first_color_to_the_last(name):
    colors = colormap(name)
    pixels = cf.Heatmap(np.arange(256).reshape(16, 16), name).pixels()
    assert np.array_equal(pixels.reshape(-1, 3), colors)


def test_more_is_brighter():
    for name in ["viridis", "magma", "gray"]:
        luma = colormap(name) @ [0.2126, 0.7152, 0.0722]
        assert (np.diff(luma) > -0.5).all()
        assert (np.diff(luma[::8]) > 0).all()


@pytest.mark.parametrize(
    ("name", "first", "middle", "last"),
    [
        ("viridis", (68, 1, 84), (33, 145, 140), (253, 231, 37)),
        ("magma", (0, 0, 4), (183, 55, 121), (252, 253, 191)),
        ("turbo", (48, 18, 59), (164, 252, 60), (122, 4, 3)),
        ("gray", (0, 0, 0), (128, 128, 128), (255, 255, 255)),
    ],
)
def test_color_maps_have_the_colors_that_they_are_known_for(name, first, middle, last):
    colors = colormap(name).astype(int)
    assert abs(colors[[0, 127, 255]] - [first, middle, last]).max() <= 16
    assert colors.shape == (256, 3)


def gray(values, **options):
    return cf.Heatmap(np.asarray(values), "gray", **options).pixels()[..., 0].tolist()


def test_limits_are_the_first_and_the_last_color():
    assert gray([[0.0, 5.0, 10.0, -99.0, 99.0]], limits=(0, 10)) == [[0, 128, 255, 0, 255]]
    assert gray([[0.0, 5.0, 10.0]], limits=(10, 0)) == [[255, 128, 0]]
    assert gray([[1, 2]], limits=np.array([0, 2])) == [[128, 255]]


def test_whatever_the_numbers_are_a_heat_map_has_colors():
    for values, colors in [
        ([[7, 7]], [[0, 0]]),
        ([[math.nan, math.nan]], [[0, 0]]),
        ([[math.nan, 1.0, 3.0]], [[0, 0, 255]]),
        ([[math.inf, -math.inf, 1.0, 3.0]], [[255, 0, 0, 255]]),
        ([[math.inf, 5.0]], [[0, 0]]),
        ([[-1e300, 1e300, 0.0]], [[0, 255, 128]]),
        ([[-3e38, 3e38]], [[0, 255]]),
        (np.array([[-3e38, 3e38]], np.float32), [[0, 255]]),
        ([[2**63 - 1, -(2**63)]], [[255, 0]]),
        ([[False, True]], [[0, 255]]),
    ]:
        assert gray(values) == colors


def test_heat_maps_take_arrays_of_every_library():
    for kind in KINDS:
        assert np.array_equal(as_pixels(cf.Heatmap(kind(GRAY))), cf.Heatmap(GRAY).pixels())


def test_wrong_heat_maps_are_refused():
    with pytest.raises(cf.InvalidArgumentError, match="'jet' is not known; use one of viridis"):
        cf.Heatmap(GRAY, "jet")
    for limits in [(1,), (1, 2, 3), 5, ("a", "b"), (0, math.nan), (0, math.inf), (0, 10**400)]:
        with pytest.raises(cf.InvalidArgumentError, match="must be a pair of numbers"):
            cf.Heatmap(GRAY, limits=limits)
    for values in [RGB, np.zeros((0, 3)), np.zeros(3)]:
        with pytest.raises(cf.InvalidArgumentError, match="two dimensions"):
            cf.Heatmap(values).pixels()


# --- Shapes ---------------------------------------------------------------------------------------

STYLE = {"label": "", "color": "#ffb000", "width": 2.0, "fill": 0.0}


@pytest.mark.parametrize(
    ("shape", "json_"),
    [
        (cf.Box(1, 2, 3, 4.256), {"kind": "box", "xywh": [1, 2, 3, 4.26]}),
        (cf.Points([(1, 2), [3, 4]]), {"kind": "points", "points": [[1, 2], [3, 4]], "radius": 3}),
        (
            cf.Line(np.array([[1, 2], [3, 4]]), closed=True),
            {"kind": "line", "points": [[1, 2], [3, 4]], "closed": True},
        ),
        (cf.Polygon(Torch(np.ones((3, 2)))), {"kind": "polygon", "points": [[1, 1]] * 3}),
        (cf.Text(1, 2, 3), {"kind": "text", "at": [1, 2], "text": "3"}),
    ],
)
def test_each_shape_has_its_form(shape, json_):
    assert as_json(shape) == [STYLE | json_]


def test_shapes_have_a_style():
    style = {"label": "a <b>&", "color": "rgb(1 2 3)", "width": 0.5, "fill": 0.25}
    assert as_json(cf.Box(0, 0, 1, 1, **style)) == [style | {"kind": "box", "xywh": [0, 0, 1, 1]}]


def test_text_stays_text():
    for text in ["<script>alert(1)</script>", "&amp;", "'\"\\\n\0", "é😀"]:
        found = as_json([cf.Text(0, 0, text), cf.Box(0, 0, 1, 1, label=text)])
        assert found[0]["text"] == found[1]["label"] == text


def test_what_is_no_character_can_be_sent():
    found = as_json([cf.Text(0, 0, "a\udc80"), cf.Box(0, 0, 1, 1, label="\ud800", color="\udfff")])
    json.dumps(found, ensure_ascii=False).encode()
    assert found[0]["text"] == "a?"


def test_an_array_of_four_columns_is_boxes():
    for dtype in [int, np.float32, np.uint8]:
        for kind in KINDS:
            found = as_json(kind(np.array([[1, 2, 3, 4], [5, 6, 7, 8]], dtype)))
            assert [shape["xywh"] for shape in found] == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_an_empty_array_is_no_boxes():
    for kind, shape in itertools.product(KINDS, [(0, 4), (0,), (0, 6)]):
        assert as_json(kind(np.zeros(shape))) == []


def test_shapes_may_be_nested_and_made_one_by_one():
    box, boxes = cf.Box(0, 0, 1, 1), np.ones((2, 4))
    assert as_json(None) == as_json([]) == as_json([None, [[]]]) == []
    assert len(as_json([box, [box, (box, boxes)], None, (box for _ in range(3))])) == 8


def test_too_many_shapes_are_refused():
    box = cf.Box(0, 0, 1, 1)
    assert len(as_json([box] * shapes.MAX_SHAPES)) == shapes.MAX_SHAPES
    for many in ([box] * (shapes.MAX_SHAPES + 1), np.ones((6000, 4)), itertools.repeat(box)):
        with pytest.raises(cf.InvalidArgumentError, match="more than 5000 shapes"):
            as_json(many)


def test_what_is_no_finite_number_is_refused():
    for number in [math.nan, math.inf, -math.inf, 10**400, None, "x", [], 1j]:
        wrong = [
            cf.Box(number, 0, 1, 1),
            cf.Box(0, 0, 1, 1, width=number),
            cf.Box(0, 0, 1, 1, fill=number),
            cf.Points([(0, number)]),
            cf.Points([(0, 0)], radius=number),
            cf.Line([(0, 0), (number, 0)]),
            cf.Polygon([(number, 0)]),
            cf.Text(number, 0, ""),
            cf.Mask(GRAY, roi=(0, 0, 1, number)),
        ]
        for shape in wrong:
            with pytest.raises(cf.InvalidArgumentError, match="cannot be drawn"):
                as_json(shape)


def test_what_are_no_points_is_refused():
    for points in [None, 5, [1, 2], [(1, 2, 3)], [("a", "b")], {"a": 1}, "xyz"]:
        for shape in (cf.Points(points), cf.Line(points), cf.Polygon(points)):
            with pytest.raises(cf.InvalidArgumentError, match="cannot be drawn"):
                as_json(shape)


def test_what_is_no_shape_is_refused():
    for value in [5, "text", b"xy", object(), {"a": 1}, [5], [["text"]], 1.5]:
        with pytest.raises(cf.InvalidArgumentError, match="an overlay returns shapes"):
            as_json(value)


def test_an_array_of_something_else_is_refused():
    for array in [np.ones((2, 5)), np.ones(4), np.ones((2, 2, 4)), np.array([[None] * 4])]:
        with pytest.raises(cf.InvalidArgumentError):
            as_json(array)


def test_an_error_is_short_however_large_the_shape():
    with pytest.raises(cf.InvalidArgumentError) as caught:
        as_json(cf.Points([(i, math.nan) for i in range(10_000)]))
    assert len(str(caught.value)) < 400


# --- Masks ----------------------------------------------------------------------------------------


def bits(shape):
    """Return what a browser sees of a mask."""
    with Image.open(io.BytesIO(base64.b64decode(shape["bits"]))) as image:
        assert image.size == tuple(shape["size"])
        assert image.mode == "1"
        return np.asarray(image)


def test_a_mask_comes_through():
    for dtype in [bool, np.uint8, np.float32, np.int64]:
        for kind, size in itertools.product(KINDS, [(1, 1), (3, 17), (40, 8), (5, 33)]):
            mask = np.random.default_rng(1).integers(0, 2, size).astype(dtype)
            (found,) = as_json(cf.Mask(kind(mask), color="red", fill=0.5))
            assert np.array_equal(bits(found), mask != 0)
            assert found["roi"] is None
            assert (found["kind"], found["color"], found["fill"]) == ("mask", "red", 0.5)


def test_a_mask_may_cover_a_part():
    (found,) = as_json(cf.Mask([[0, 1], [2, -1]], roi=(1, 2, 30.5, 40)))
    assert found["roi"] == [1, 2, 30.5, 40]
    assert bits(found).tolist() == [[False, True], [True, True]]


def test_what_is_no_mask_is_refused():
    for mask in [np.ones(3), np.ones((2, 2, 2)), np.ones((0, 3)), "text", None, [[1], [1, 2]]]:
        with pytest.raises(cf.InvalidArgumentError):
            as_json(cf.Mask(mask))


def test_a_mask_s_part_has_four_numbers():
    for roi in [(1, 2, 3), (1, 2, 3, 4, 5), 5, "abcd"]:
        with pytest.raises(cf.InvalidArgumentError):
            as_json(cf.Mask(GRAY, roi=roi))


# --- Missing libraries ----------------------------------------------------------------------------


def test_masks_and_scaling_say_what_to_install(monkeypatch):
    from cuframes_nb._viewer.picture import resized

    monkeypatch.setitem(__import__("sys").modules, "PIL", None)
    for use in (
        lambda: as_json(cf.Mask(GRAY)),
        lambda: resized(GRAY, (2, 2)),
    ):
        with pytest.raises(cf.UnsupportedError, match=r"install 'cuframes-nb\[lab\]'"):
            use()
