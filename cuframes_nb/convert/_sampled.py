"""The CPU path for float results and for resizing: float32, band by band.

Every output row and column has *taps*: which samples of a plane it is made of, and with which
weights. Without resizing there is one, and chroma has the same one for two neighbours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._matrix import WORD_SHIFT
from cuframes_nb.convert._pixels import SITINGS, Pixels
from cuframes_nb.convert._placing import Placement
from cuframes_nb.convert._taps import Taps, axis_taps
from cuframes_nb.formats import PixelFormat

__all__ = ["as_stored", "sample"]

BAND_PIXELS: Final = 65536
"""Output pixels at a time. Fewer pay more for each NumPy call, more leave the cache of a core."""


def sample(
    picture: tuple[Sequence[npt.NDArray[Any]], PixelFormat, ColorSpec],
    placement: Placement,
    pixels: Pixels,
    out: npt.NDArray[Any],
) -> None:
    """Write what `placement` takes of a picture into `out`, which has its target's size.

    `out` is (height, width, 1 or 3). bfloat16 is stored as the uint16 of its bits.
    """
    planes, fmt, color = picture
    left, top, width, height = placement.source
    rows, columns = out.shape[:2]
    # Sizes that agree in one direction only are a resize in both: chroma is interpolated.
    kind = pixels.interpolation if placement.resized else "nearest"
    shift_x, shift_y = SITINGS[pixels.siting]
    luma_x, chroma_x = axis_taps(left, width, columns, kind, shift_x)
    luma_y, chroma_y = axis_taps(top, height, rows, kind, shift_y)
    matrix = pixels.matrix(fmt, color)
    band = max(1, BAND_PIXELS // columns)
    for begin in range(0, rows, band):
        end = min(begin + band, rows)
        part_y, part_cy = luma_y.part(begin, end), chroma_y.part(begin, end)
        values = [_gather(plane, fmt, part_y, luma_x) for plane in _components(planes[0], fmt)]
        if fmt.is_semiplanar and len(matrix) == 3:
            values += [_gather(planes[1][..., i], fmt, part_cy, chroma_x) for i in (0, 1)]
        _finish(values, matrix, pixels, out[begin:end])


def _components(plane: npt.NDArray[Any], fmt: PixelFormat) -> list[npt.NDArray[Any]]:
    """Return luma, or R, G and B, apart."""
    return [plane] if fmt.is_yuv else [plane[..., i] for i in range(3)]


def _gather(
    plane: npt.NDArray[Any], fmt: PixelFormat, rows: Taps, columns: Taps
) -> npt.NDArray[np.float32]:
    """Return code values of `plane` (height, width) at the taps."""
    start, end = columns.bounds
    plane = plane[:, start:end]
    values = _rows(plane, fmt, rows.indices[0])
    if rows.weights is not None:
        values *= rows.weights[0][:, None]
        for index, weight in zip(rows.indices[1:], rows.weights[1:], strict=True):
            values += _rows(plane, fmt, index) * weight[:, None]
    result: npt.NDArray[np.float32] = values.take(columns.indices[0] - start, axis=1)
    if columns.weights is not None:
        result *= columns.weights[0]
        for index, weight in zip(columns.indices[1:], columns.weights[1:], strict=True):
            result += values.take(index - start, axis=1) * weight
    return result


def _rows(
    plane: npt.NDArray[Any], fmt: PixelFormat, index: npt.NDArray[np.intp]
) -> npt.NDArray[np.float32]:
    rows = plane[index]
    shift = WORD_SHIFT.get(fmt, 0)
    if shift:
        rows >>= shift  # indexing made a copy
    return np.asarray(rows, dtype=np.float32)


def _finish(
    values: list[npt.NDArray[np.float32]],
    matrix: npt.NDArray[np.float32],
    pixels: Pixels,
    out: npt.NDArray[Any],
) -> None:
    """Apply `matrix` to one (gray) or three planes of code values and store the band."""
    for channel, row in enumerate(matrix):
        if len(values) == 1 and channel and (row == matrix[0]).all():
            out[..., channel] = out[..., 0]
            continue
        total = values[0] * row[0]
        for value, factor in zip(values[1:], row[1:3], strict=False):
            if factor:
                total += value * factor
        total += row[3]
        total.clip(pixels.low[channel], pixels.high[channel], out=total)
        out[..., channel] = as_stored(total, pixels.dtype)


def as_stored(values: npt.NDArray[np.float32], dtype: str) -> npt.NDArray[Any]:
    """Return values, none of which is too large, as they are stored; they may be written over."""
    if dtype == "uint8":
        values += np.float32(0.5)
        return values.astype(np.uint8)
    if dtype == "bfloat16":  # the upper half of a float32, rounded half to even
        bits = values.view(np.uint32)
        return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)
    return values
