"""The reference is right: values that the standards and plain arithmetic give."""

import itertools

import numpy as np
import pytest

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert.reference import resize_reference, rgb_reference, yuv_reference
from cuframes_nb.formats import PixelFormat

NV12, P010, GRAY8 = PixelFormat.NV12, PixelFormat.P010, PixelFormat.GRAY8
COLORS = [
    ColorSpec(matrix, range_)
    for matrix, range_ in itertools.product(("bt601", "bt709", "bt2020"), ("limited", "full"))
]


def pixel(y, u, v, fmt=NV12):
    """Return the planes of a frame of one pixel."""
    shift = 6 if fmt is P010 else 0
    luma = np.full((1, 1), y, fmt.dtype) << shift
    return luma, np.array([[[u, v]]], fmt.dtype) << shift


def rgb8(planes, fmt, color):
    """Return the reference as 8-bit values, not rounded."""
    return rgb_reference(planes, fmt, color) * 255


@pytest.mark.parametrize("matrix", ["bt601", "bt709", "bt2020"])
@pytest.mark.parametrize(
    ("fmt", "range_", "codes"),
    [
        (NV12, "limited", (16, 235, 128)),
        (NV12, "full", (0, 255, 128)),
        (P010, "limited", (64, 940, 512)),
        (P010, "full", (0, 1023, 512)),
    ],
)
def test_black_and_white_are_where_the_range_says(matrix, fmt, range_, codes):
    black, white, middle = codes
    color = ColorSpec(matrix, range_)
    for code, value in ((black, 0), (white, 255)):
        found = rgb8(pixel(code, middle, middle, fmt), fmt, color)
        np.testing.assert_allclose(found, [[[value] * 3]], atol=1e-9)


@pytest.mark.parametrize(
    ("color", "codes", "rgb"),
    [
        # BT.709 limited colour bars at 100 %, as broadcast equipment makes them.
        (ColorSpec("bt709", "limited"), (63, 102, 240), (255, 0, 0)),
        (ColorSpec("bt709", "limited"), (173, 42, 26), (0, 255, 0)),
        (ColorSpec("bt709", "limited"), (32, 240, 118), (0, 0, 255)),
        # BT.601 limited, the same.
        (ColorSpec("bt601", "limited"), (81, 90, 240), (255, 0, 0)),
        (ColorSpec("bt601", "limited"), (145, 54, 34), (0, 255, 0)),
        (ColorSpec("bt601", "limited"), (41, 240, 110), (0, 0, 255)),
        # JPEG.
        (ColorSpec("bt601", "full"), (76, 85, 255), (255, 0, 0)),
        (ColorSpec("bt601", "full"), (150, 44, 21), (0, 255, 0)),
        (ColorSpec("bt601", "full"), (29, 255, 107), (0, 0, 255)),
    ],
)
def test_primaries_have_their_known_codes(color, codes, rgb):
    planes = yuv_reference(np.array([[rgb]]) / 255, NV12, color)
    assert (planes[0].item(), *planes[1].ravel().tolist()) == codes
    np.testing.assert_allclose(rgb8(pixel(*codes), NV12, color), [[rgb]], atol=1.5)


def test_codes_out_of_range_are_not_clipped():
    found = rgb_reference(pixel(255, 128, 128), NV12, ColorSpec("bt709", "limited"))
    np.testing.assert_allclose(found, (255 - 16) / 219)
    assert (rgb_reference(pixel(0, 128, 128), NV12, ColorSpec("bt709", "limited")) < 0).all()


def test_chroma_belongs_to_its_block_and_odd_edges_are_cut():
    luma = np.full((3, 3), 128, np.uint8)
    chroma = np.full((2, 2, 2), 128, np.uint8)
    chroma[1, 0, 1] = 200
    red = rgb_reference((luma, chroma), NV12, ColorSpec())[..., 0]
    assert red.shape == (3, 3)
    assert (red > red[0, 0]).tolist() == [[False] * 3, [False] * 3, [True, True, False]]


def test_low_bits_of_p010_words_do_not_count():
    luma, chroma = pixel(500, 400, 600, P010)
    same = rgb_reference((luma | 63, chroma | 63), P010, ColorSpec())
    np.testing.assert_array_equal(same, rgb_reference((luma, chroma), P010, ColorSpec()))


def test_gray_has_equal_channels():
    found = rgb8((np.array([[16, 126, 235]], np.uint8),), GRAY8, ColorSpec())
    np.testing.assert_allclose(found[0, :, 0], [0, 110 / 219 * 255, 255], atol=1e-9)
    assert (found == found[..., :1]).all()


def test_rgb_formats_are_copied_and_alpha_dropped():
    rgba = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    color = ColorSpec("rgb", "full")
    np.testing.assert_allclose(rgb8((rgba,), PixelFormat.RGBA32, color), rgba[..., :3])
    (back,) = yuv_reference(rgba[..., :3] / 255, PixelFormat.RGBA32, color)
    assert (back[..., :3] == rgba[..., :3]).all()
    assert (back[..., 3] == 255).all()


@pytest.mark.parametrize("fmt", [NV12, P010])
@pytest.mark.parametrize("color", COLORS, ids=str)
def test_there_and_back(fmt, color):
    rng = np.random.default_rng(1)
    blocks = rng.random((3, 4, 3)).repeat(2, axis=0).repeat(2, axis=1)[:5, :7]
    found = rgb_reference(yuv_reference(blocks, fmt, color), fmt, color)
    np.testing.assert_allclose(found, blocks, atol=2 / 2 ** (fmt.bit_depth - 1))


def test_means_of_cut_blocks_count_what_is_there():
    rgb = np.zeros((3, 3, 3))
    rgb[2, 2] = 1, 0, 0
    rgb[0, 2] = 1, 0, 0
    chroma = yuv_reference(rgb, NV12, ColorSpec("bt709", "limited"))[1]
    assert chroma[1, 1].tolist() == [102, 240]
    assert chroma[0, 1].tolist() == [115, 184]
    assert chroma[0, 0].tolist() == [128, 128]


def test_resizing_uses_half_pixel_centres():
    luma = np.array([[0, 100]], np.uint8)
    wide = resize_reference((luma,), GRAY8, ColorSpec("bt709", "full"), (4, 1)) * 255
    np.testing.assert_allclose(wide[0, :, 0], [0, 25, 75, 100])
    narrow = resize_reference((luma,), GRAY8, ColorSpec("bt709", "full"), (1, 1)) * 255
    np.testing.assert_allclose(narrow[0, 0], 50)


def test_resizing_reads_nothing_outside_the_crop():
    luma = np.full((6, 6), 255, np.uint8)
    luma[2:4, 2:4] = 10
    full = ColorSpec("bt709", "full")
    found = resize_reference((luma,), GRAY8, full, (5, 7), (2, 2, 2, 2)) * 255
    np.testing.assert_allclose(found, 10)


@pytest.mark.parametrize(
    ("siting", "chroma"),
    [
        ("center", [0, 80, 160, 240]),
        # New pixels have their centres half a pixel behind those of the first of each pair.
        ("left", [20, 100, 180, 240]),
        ("topleft", [20, 100, 180, 240]),
    ],
)
def test_chroma_lies_where_the_siting_says(siting, chroma):
    luma = np.full((2, 8), 128, np.uint8)
    samples = np.full((1, 4, 2), 128, np.uint8)
    samples[..., 1] = [0, 80, 160, 240]
    color = ColorSpec("bt709", "full")
    for interpolation in ("bilinear", "area"):
        red = resize_reference(
            (luma, samples), NV12, color, (4, 1), interpolation=interpolation, siting=siting
        )
        expected = (128 + 2 * (1 - 0.2126) * (np.array(chroma) - 128)) / 255
        np.testing.assert_allclose(red[0, :, 0], expected, atol=1e-12)


def test_left_chroma_lies_between_two_rows():
    luma = np.full((8, 2), 128, np.uint8)
    samples = np.full((4, 1, 2), 128, np.uint8)
    samples[:, 0, 1] = [0, 80, 160, 240]
    color = ColorSpec("bt709", "full")
    same = [
        resize_reference((luma, samples), NV12, color, (2, 4), siting=s) for s in ("left", "center")
    ]
    np.testing.assert_allclose(same[0], same[1], atol=1e-12)
    moved = resize_reference((luma, samples), NV12, color, (2, 4), siting="topleft")
    assert (moved[:3, :, 0] > same[0][:3, :, 0]).all()
