"""The CPU path for float output and for resizing: float32, band by band.

Every output row and column has *taps*: which one or two samples of a plane it is made of, and with
which weight. Without resizing there is one tap, and chroma has the same one for two neighbours.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._matrix import WORD_SHIFT, decode_matrix
from cuframes_nb.formats import PixelFormat

__all__ = ["to_rgb_sampled"]

BAND_PIXELS: Final = 65536
"""Output pixels at a time. Fewer pay more for each NumPy call, more leave the cache of a core."""


@dataclasses.dataclass(frozen=True, slots=True)
class _Taps:
    """Samples along one axis that make each output position.

    `second` and `weight`, the share of `second`, are None where `first` is all.
    """

    first: npt.NDArray[np.intp]
    second: npt.NDArray[np.intp] | None = None
    weight: npt.NDArray[np.float32] | None = None

    def part(self, begin: int, end: int) -> _Taps:
        """Return the taps of positions `begin` to `end`."""
        if self.second is None or self.weight is None:
            return _Taps(self.first[begin:end])
        return _Taps(self.first[begin:end], self.second[begin:end], self.weight[begin:end])


def to_rgb_sampled(
    planes: Sequence[npt.NDArray[Any]],
    fmt: PixelFormat,
    color: ColorSpec,
    out: npt.NDArray[Any],
    crop: tuple[int, int, int, int],
) -> None:
    """Write the rectangle `crop` into `out` (height, width, 3), resized where sizes differ."""
    left, top, width, height = crop
    rows, columns = out.shape[:2]
    resize = (columns, rows) != (width, height)
    luma_x, chroma_x = _axis(left, width, columns, resize=resize)
    luma_y, chroma_y = _axis(top, height, rows, resize=resize)
    scale = 1.0 if out.dtype == np.uint8 else 1 / 255
    matrix = (decode_matrix(fmt, color) * scale).astype(np.float32)
    band = max(1, BAND_PIXELS // columns)
    for begin in range(0, rows, band):
        end = min(begin + band, rows)
        part_y, part_cy = luma_y.part(begin, end), chroma_y.part(begin, end)
        if fmt.is_semiplanar:
            values = [_gather(planes[0], fmt, part_y, luma_x)]
            values += [_gather(planes[1][..., i], fmt, part_cy, chroma_x) for i in (0, 1)]
        elif fmt is PixelFormat.GRAY8:
            values = [_gather(planes[0], fmt, part_y, luma_x)]
        else:
            values = [_gather(planes[0][..., i], fmt, part_y, luma_x) for i in range(3)]
        _finish(values, matrix, out[begin:end])


def _axis(start: int, extent: int, count: int, *, resize: bool) -> tuple[_Taps, _Taps]:
    """Return the taps in luma and in chroma of `count` positions over `extent` pixels."""
    if not resize:
        index = np.arange(start, start + extent, dtype=np.intp)
        return _Taps(index), _Taps(index >> 1)
    inside = (np.arange(count) + 0.5) * (extent / count) - 0.5
    positions = start + inside.clip(0, extent - 1)
    last = start + extent - 1
    chroma = (positions / 2 - 0.25).clip(start >> 1, last >> 1)
    return _between(positions, last), _between(chroma, last >> 1)


def _between(positions: npt.NDArray[np.float64], last: int) -> _Taps:
    first = positions.astype(np.intp)
    return _Taps(first, np.minimum(first + 1, last), (positions - first).astype(np.float32))


def _gather(
    plane: npt.NDArray[Any], fmt: PixelFormat, rows: _Taps, columns: _Taps
) -> npt.NDArray[np.float32]:
    """Return code values of `plane` (height, width) at the taps."""
    start = columns.first[0]
    ends = columns.first if columns.second is None else columns.second
    plane = plane[:, start : ends[-1] + 1]
    values = _rows(plane, fmt, rows.first)
    if rows.second is not None and rows.weight is not None:
        values += (_rows(plane, fmt, rows.second) - values) * rows.weight[:, None]
    result: npt.NDArray[np.float32] = values.take(columns.first - start, axis=1)
    if columns.second is not None and columns.weight is not None:
        result += (values.take(columns.second - start, axis=1) - result) * columns.weight
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
    values: list[npt.NDArray[np.float32]], matrix: npt.NDArray[np.float32], out: npt.NDArray[Any]
) -> None:
    """Apply `matrix` to one (gray) or three planes of code values and store the band."""
    integer = out.dtype == np.uint8
    channels = 1 if len(values) == 1 else 3
    for channel in range(channels):
        row = matrix[channel]
        total = values[0] * row[0]
        for value, factor in zip(values[1:], row[1:3], strict=False):
            if factor:
                total += value * factor
        total += row[3] + (np.float32(0.5) if integer else np.float32(0))
        total.clip(0, 255 if integer else 1, out=total)
        np.copyto(out[..., channel], total, casting="unsafe")
    for channel in range(channels, 3):
        out[..., channel] = out[..., 0]
