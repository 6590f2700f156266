"""What a conversion must give, written to be read rather than to be fast: NumPy in float64.

Tests hold every fast path against this module. The equations are those of Rec. ITU-T H.273
(07/2021) clause 8.3 for a bit depth *n*::

    limited  Y = 2**(n-8) * (219 * E'Y + 16)     Cb, Cr = 2**(n-8) * (224 * E'Pb, E'Pr + 128)
    full     Y = (2**n - 1) * E'Y                Cb, Cr = (2**n - 1) * E'Pb, E'Pr + 2**(n-1)

    E'Y = Kr R + (1 - Kr - Kb) G + Kb B     E'Pb = (B - E'Y) / (2 (1 - Kb))
                                            E'Pr = (R - E'Y) / (2 (1 - Kr))

A chroma sample belongs to its block of 2x2 luma samples, and without resizing it applies to them
as it is. At odd sizes the last column and row of blocks are cut. With resizing its centre counts,
which by Chroma420SampleLocType of H.273 clause 8.7 is

==== ========== ====================================================================================
type name       centre, seen from the centre of the block's first luma sample, in luma samples
==== ========== ====================================================================================
0    left       0 right, 1/2 down; what H.264 (E.2.1) and H.265 (E.3.1) mean by saying nothing
1    center     1/2 right, 1/2 down
2    topleft    0 right, 0 down
==== ========== ====================================================================================

Resizing looks at nothing outside the rectangle that is resized: what would lie there is replaced by
the nearest sample inside. Luma and chroma are each resized at their own resolution:

nearest
    the pixel whose square holds the centre of the new one, with the chroma of its block;
bilinear
    between the four samples around the centre, without a filter against aliasing;
area
    the mean over the new pixel's square, each sample being constant over its own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._placing import Placement
from cuframes_nb.formats import PixelFormat

__all__ = ["picture_reference", "resize_reference", "rgb_reference", "yuv_reference"]


def rgb_reference(
    planes: Sequence[npt.NDArray[Any]], fmt: PixelFormat, color: ColorSpec
) -> npt.NDArray[np.float64]:
    """Return R, G, B of shape (height, width, 3), nominally 0..1, not clipped."""
    codes = [_code_values(plane, fmt) for plane in planes]
    if not fmt.is_yuv:
        return codes[0][:, :, :3] / 255
    height, width = codes[0].shape
    if fmt is PixelFormat.GRAY8:
        return _decode(codes[0], None, fmt, color)
    full = codes[1].repeat(2, axis=0).repeat(2, axis=1)[:height, :width]
    return _decode(codes[0], full, fmt, color)


def resize_reference(
    planes: Sequence[npt.NDArray[Any]],
    fmt: PixelFormat,
    color: ColorSpec,
    size: tuple[int, int],
    crop: tuple[int, int, int, int] | None = None,
    *,
    interpolation: str = "bilinear",
    siting: str = "left",
) -> npt.NDArray[np.float64]:
    """Return the frame, or a rectangle of it, resized: (height, width, 3), not clipped."""
    codes = [_code_values(plane, fmt) for plane in planes]
    left, top, width, height = crop or (0, 0, codes[0].shape[1], codes[0].shape[0])
    if interpolation == "nearest":
        rgb = rgb_reference(planes, fmt, color)
        return rgb[_nearest(top, height, size[1])][:, _nearest(left, width, size[0])]
    weights = _area_weights if interpolation == "area" else _bilinear_weights
    shift_x, shift_y = _SITINGS[siting]
    down, across = weights(top, height, size[1], 1, 0), weights(left, width, size[0], 1, 0)
    first = _resample(codes[0], down, across)
    if not fmt.is_yuv:
        return first[:, :, :3] / 255
    if fmt is PixelFormat.GRAY8:
        return _decode(first, None, fmt, color)
    down = weights(top, height, size[1], 2, shift_y)
    across = weights(left, width, size[0], 2, shift_x)
    return _decode(first, _resample(codes[1], down, across), fmt, color)


def picture_reference(
    planes: Sequence[npt.NDArray[Any]],
    fmt: PixelFormat,
    color: ColorSpec,
    placement: Placement,
    *,
    channels: str = "rgb",
    interpolation: str = "bilinear",
    siting: str = "left",
    fill: float = 0,
    mean: Sequence[float] = (0, 0, 0),
    std: Sequence[float] = (1, 1, 1),
) -> npt.NDArray[np.float64]:
    """Return what a frame becomes in a result with borders: (height, width, channels), normalised.

    Values are clipped to 0..1 before `mean` and `std` apply.
    """
    left, top, columns, rows = placement.target
    make = functools.partial(
        _inner,
        fmt=fmt,
        color=color,
        placement=placement,
        interpolation=interpolation,
        siting=siting,
    )
    picture = _gray(planes, fmt, make) if channels == "gray" else make(planes)
    if channels == "bgr":
        picture = picture[..., ::-1]
    result = np.full((placement.size[1], placement.size[0], picture.shape[2]), fill / 255)
    result[top : top + rows, left : left + columns] = picture.clip(0, 1)
    count = picture.shape[2]
    return np.asarray((result - np.array(mean)[:count]) / np.array(std)[:count])


def yuv_reference(
    rgb01: npt.NDArray[np.float64], fmt: PixelFormat, color: ColorSpec
) -> tuple[npt.NDArray[Any], ...]:
    """Return the planes of `fmt`, rounded, for R, G, B in 0..1 of shape (height, width, 3).

    Chroma is the mean over its block, at cut blocks over what is there.
    """
    if not fmt.is_yuv:
        opaque = np.ones((*rgb01.shape[:2], 1))
        every = rgb01 if fmt is PixelFormat.RGB24 else np.concatenate([rgb01, opaque], axis=2)
        return (np.rint(255 * every).clip(0, 255).astype(np.uint8),)
    kr, kb = color.luma_weights
    red, green, blue = np.moveaxis(rgb01, 2, 0)
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    luma_span, chroma_span, black, middle = _levels(fmt, color)
    planes = [_store(luma * luma_span + black, fmt)]
    if fmt.is_semiplanar:
        difference = np.stack([(blue - luma) / (2 - 2 * kb), (red - luma) / (2 - 2 * kr)], axis=2)
        planes.append(_store(_block_means(difference) * chroma_span + middle, fmt))
    return tuple(planes)


def _levels(fmt: PixelFormat, color: ColorSpec) -> tuple[float, float, float, float]:
    """Return the spans of luma and chroma, black and the middle of chroma, in code values."""
    depth = fmt.bit_depth
    if color.range == "full":
        return 2**depth - 1, 2**depth - 1, 0, 2 ** (depth - 1)
    step = 2 ** (depth - 8)
    return 219 * step, 224 * step, 16 * step, 128 * step


def _code_values(plane: npt.NDArray[Any], fmt: PixelFormat) -> npt.NDArray[np.float64]:
    return (plane >> 6 if fmt is PixelFormat.P010 else plane).astype(np.float64)


def _store(values: npt.NDArray[np.float64], fmt: PixelFormat) -> npt.NDArray[Any]:
    codes = np.rint(values).clip(0, 2**fmt.bit_depth - 1).astype(fmt.dtype)
    return codes << 6 if fmt is PixelFormat.P010 else codes


def _decode(
    luma: npt.NDArray[np.float64],
    chroma: npt.NDArray[np.float64] | None,
    fmt: PixelFormat,
    color: ColorSpec,
) -> npt.NDArray[np.float64]:
    """Return R, G, B for luma (h, w) and chroma (h, w, 2) in code values; gray without chroma."""
    luma_span, chroma_span, black, middle = _levels(fmt, color)
    y = (luma - black) / luma_span
    if chroma is None:
        return np.stack([y, y, y], axis=2)
    pb, pr = np.moveaxis((chroma - middle) / chroma_span, 2, 0)
    kr, kb = color.luma_weights
    red = y + 2 * (1 - kr) * pr
    blue = y + 2 * (1 - kb) * pb
    green = (y - kr * red - kb * blue) / (1 - kr - kb)
    return np.stack([red, green, blue], axis=2)


def _block_means(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return means over blocks of 2x2 of (h, w, n)."""
    height, width, _ = values.shape
    rows, columns = np.arange(0, height, 2), np.arange(0, width, 2)
    sums = np.add.reduceat(np.add.reduceat(values, rows, axis=0), columns, axis=1)
    row_counts = np.minimum(2, height - rows)
    column_counts = np.minimum(2, width - columns)
    counts = row_counts[:, None, None] * column_counts[None, :, None]
    return np.asarray(sums / counts, dtype=np.float64)


def _inner(
    planes: Sequence[npt.NDArray[Any]],
    *,
    fmt: PixelFormat,
    color: ColorSpec,
    placement: Placement,
    interpolation: str,
    siting: str,
) -> npt.NDArray[np.float64]:
    """Return the picture alone, R, G, B."""
    x, y, width, height = crop = placement.source
    size = placement.target[2:]
    if size == (width, height):
        return rgb_reference(planes, fmt, color)[y : y + height, x : x + width]
    options = {"interpolation": interpolation, "siting": siting}
    return resize_reference(planes, fmt, color, size, crop, **options)


def _gray(
    planes: Sequence[npt.NDArray[Any]],
    fmt: PixelFormat,
    picture: Callable[..., npt.NDArray[np.float64]],
) -> npt.NDArray[np.float64]:
    """Return what `picture` makes of luma alone, or of RGB the sum that BT.601 weighs."""
    if not fmt.is_yuv:
        return np.asarray(picture(planes) @ np.array([[0.299], [0.587], [0.114]]))
    if fmt.is_semiplanar:
        middle = 2 ** (fmt.bit_depth - 1)
        codes = middle << 6 if fmt is PixelFormat.P010 else middle
        planes = (planes[0], np.full_like(planes[1], codes))
    return picture(planes)[..., :1]


# --- Resampling: a matrix for each axis -----------------------------------------------------------

_SITINGS: Final = {"left": (0.0, 0.5), "center": (0.5, 0.5), "topleft": (0.0, 0.0)}


def _resample(
    plane: npt.NDArray[np.float64], down: npt.NDArray[np.float64], across: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return `plane` (h, w) or (h, w, n), resized by the weights for its rows and columns."""
    rows = np.tensordot(down, plane[:, : across.shape[1]][: down.shape[1]], axes=1)
    return np.asarray(np.moveaxis(np.tensordot(across, rows, axes=(1, 1)), 0, 1))


def _nearest(start: int, extent: int, count: int) -> npt.NDArray[np.intp]:
    """Return which of `extent` pixels from `start` on hold the centres of `count` pixels."""
    return start + (2 * np.arange(count) + 1) * extent // (2 * count)


def _bilinear_weights(
    start: int, extent: int, count: int, step: int, shift: float
) -> npt.NDArray[np.float64]:
    """Return what each sample counts in each of `count` pixels: (pixels, samples).

    Samples are `step` pixels apart, their centres `shift` pixels behind those of their first ones.
    """
    low, high = start // step, (start + extent - 1) // step
    inside = ((np.arange(count) + 0.5) * (extent / count) - 0.5).clip(0, extent - 1)
    positions = ((start + inside - shift) / step).clip(low, high)
    distances = np.abs(positions[:, None] - np.arange(high + 1))
    return np.asarray((1 - distances).clip(0, None))


def _area_weights(
    start: int, extent: int, count: int, step: int, shift: float
) -> npt.NDArray[np.float64]:
    """Return the same for means over the pixels' own extents."""
    low, high = start // step, (start + extent - 1) // step
    edges = start + np.arange(count + 1) * (extent / count)
    # A sample's own extent is `step` pixels around its centre.
    edges = (edges - shift - 0.5) / step + 0.5
    begins = np.arange(high + 1, dtype=np.float64)
    ends = begins + 1
    begins[: low + 1], ends[-1] = -np.inf, np.inf  # replace what would lie outside
    first, last = edges[:-1, None], edges[1:, None]
    overlaps = (np.minimum(last, ends) - np.maximum(first, begins)).clip(0, None)
    overlaps[:, :low] = 0
    return np.asarray(overlaps / (last - first))
