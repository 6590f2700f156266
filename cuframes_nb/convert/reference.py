"""What a conversion must give, written to be read rather than to be fast: NumPy in float64.

Tests hold every fast path against this module. The equations are those of Rec. ITU-T H.273
(07/2021) clause 8.3 for a bit depth *n*::

    limited  Y = 2**(n-8) * (219 * E'Y + 16)     Cb, Cr = 2**(n-8) * (224 * E'Pb, E'Pr + 128)
    full     Y = (2**n - 1) * E'Y                Cb, Cr = (2**n - 1) * E'Pb, E'Pr + 2**(n-1)

    E'Y = Kr R + (1 - Kr - Kb) G + Kb B     E'Pb = (B - E'Y) / (2 (1 - Kb))
                                            E'Pr = (R - E'Y) / (2 (1 - Kr))

A chroma sample belongs to its block of 2x2 luma samples; its centre is the block's centre. At odd
sizes the last column and row of blocks are cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.formats import PixelFormat

__all__ = ["resize_reference", "rgb_reference", "yuv_reference"]


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
) -> npt.NDArray[np.float64]:
    """Return the frame, or a rectangle of it, resized to `size`: (height, width, 3), not clipped.

    Bilinear with half-pixel centres, samples outside the rectangle replaced by the nearest inside;
    luma and chroma are each interpolated at their own resolution.
    """
    codes = [_code_values(plane, fmt) for plane in planes]
    left, top, width, height = crop or (0, 0, codes[0].shape[1], codes[0].shape[0])
    xs = _source_positions(left, width, size[0])
    ys = _source_positions(top, height, size[1])
    first = _bilinear(codes[0], ys, xs)
    if not fmt.is_yuv:
        return first[:, :, :3] / 255
    if fmt is PixelFormat.GRAY8:
        return _decode(first, None, fmt, color)
    chroma_xs = (xs / 2 - 0.25).clip(left // 2, (left + width - 1) // 2)
    chroma_ys = (ys / 2 - 0.25).clip(top // 2, (top + height - 1) // 2)
    return _decode(first, _bilinear(codes[1], chroma_ys, chroma_xs), fmt, color)


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


def _source_positions(start: int, extent: int, count: int) -> npt.NDArray[np.float64]:
    """Return where the centres of `count` pixels lie among `extent` pixels from `start` on."""
    inside = (np.arange(count) + 0.5) * (extent / count) - 0.5
    return start + inside.clip(0, extent - 1)


def _bilinear(
    plane: npt.NDArray[np.float64], ys: npt.NDArray[np.float64], xs: npt.NDArray[np.float64]
) -> npt.NDArray[np.float64]:
    """Return `plane` (h, w) or (h, w, n) at each pair of the positions `ys`, `xs`."""
    y0, x0 = ys.astype(int), xs.astype(int)
    y1, x1 = np.minimum(y0 + 1, len(plane) - 1), np.minimum(x0 + 1, plane.shape[1] - 1)
    tail = (1,) * (plane.ndim - 2)
    down, right = (ys - y0).reshape(-1, 1, *tail), (xs - x0).reshape(1, -1, *tail)
    above = plane[y0][:, x0] * (1 - right) + plane[y0][:, x1] * right
    below = plane[y1][:, x0] * (1 - right) + plane[y1][:, x1] * right
    return np.asarray(above * (1 - down) + below * down, dtype=np.float64)
