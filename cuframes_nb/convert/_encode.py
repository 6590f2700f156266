"""RGB to the planes of a frame in main memory: float32, band by band."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._matrix import WORD_SHIFT, encode_matrix
from cuframes_nb.formats import PixelFormat

__all__ = ["from_rgb"]

BAND_PIXELS: Final = 65536
"""Pixels at a time. Fewer pay more for each NumPy call, more leave the cache of a core."""


def from_rgb(
    rgb: npt.NDArray[np.uint8],
    fmt: PixelFormat,
    color: ColorSpec,
    planes: Sequence[npt.NDArray[Any]],
) -> None:
    """Write uint8 (height, width, 3 or 4) into the planes of a frame.

    Chroma is the mean over its 2x2 block. Alpha goes into RGBA32 and nowhere else; where none is
    given it is 255. Arguments are taken to be right.
    """
    if not fmt.is_yuv:
        copy_rgb(rgb, planes[0])
        return
    matrix = encode_matrix(fmt, color).astype(np.float32)
    height, width = rgb.shape[:2]
    band = max(2, BAND_PIXELS // width & ~1)
    for begin in range(0, height, band):
        rows = rgb[begin : begin + band]
        channels = [rows[..., channel].astype(np.float32) for channel in range(3)]
        _write(channels, matrix[0], fmt, planes[0][begin : begin + band])
        if fmt.is_semiplanar:
            means = [_block_means(channel) for channel in channels]
            part = planes[1][begin >> 1 : (begin + band) >> 1]
            _write(means, matrix[1], fmt, part[..., 0])
            _write(means, matrix[2], fmt, part[..., 1])


def copy_rgb(rgb: Any, plane: Any) -> None:  # NumPy or CuPy arrays, whose slices work alike
    """Copy RGB or RGBA pixels into RGB or RGBA ones."""
    source, target = rgb.shape[2], plane.shape[2]
    if source == target:
        plane[...] = rgb
        return
    for channel in range(3):
        plane[..., channel] = rgb[..., channel]
    if target == 4:
        plane[..., 3] = 255


def _write(
    channels: Sequence[npt.NDArray[np.float32]],
    weights: npt.NDArray[np.float32],
    fmt: PixelFormat,
    out: npt.NDArray[Any],
) -> None:
    """Store the weighted sum of the channels as rounded code values, shifted into place."""
    total = channels[0] * weights[0]
    for channel, weight in zip(channels[1:], weights[1:3], strict=True):
        total += channel * weight
    total += weights[3] + np.float32(0.5)
    # Only the largest chroma of full range is beyond what a code can say: 255.5 at 8 bits.
    np.minimum(total, np.float32(2**fmt.bit_depth - 1), out=total)
    codes = total.astype(out.dtype)
    shift = WORD_SHIFT.get(fmt, 0)
    if shift:
        codes <<= shift
    out[...] = codes


def _block_means(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return means over blocks of 2x2; blocks cut at the edge count what they have."""
    below = values[1::2]
    rows = np.concatenate([values[: 2 * len(below) : 2] + below, 2 * values[2 * len(below) :: 2]])
    right = rows[:, 1::2]
    pairs = right.shape[1]
    means = np.empty((len(rows), (rows.shape[1] + 1) // 2), np.float32)
    np.add(rows[:, : 2 * pairs : 2], right, out=means[:, :pairs])
    means[:, pairs:] = 2 * rows[:, 2 * pairs :: 2]
    means *= np.float32(0.25)
    return means
