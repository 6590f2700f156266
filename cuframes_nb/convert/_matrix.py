"""The linear maps between code values and 8-bit RGB, for the fast paths.

``reference`` writes the same equations down a second time and in another form, so that a slip here
does not go unseen.
"""

from __future__ import annotations

import functools
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.formats import PixelFormat

__all__ = ["WORD_SHIFT", "decode_matrix", "encode_matrix"]

WORD_SHIFT: Final = {PixelFormat.P010: 6}
"""Unused low bits of a stored word; formats not named have none."""


def decode_matrix(fmt: PixelFormat, color: ColorSpec) -> npt.NDArray[np.float64]:
    """Return the (3, 4) matrix from ``(y, u, v, 1)`` in code values to R, G, B in 0..255.

    For gray, U and V count for nothing; for RGB formats it is the identity.
    """
    if not fmt.is_yuv:
        return np.eye(3, 4)
    decode, encode = _yuv_matrices(fmt.bit_depth, color.range, *color.luma_weights)
    if fmt is PixelFormat.GRAY8:
        scale, black = decode[0, 0], encode[0, 3]
        return np.tile([scale, 0.0, 0.0, -scale * black], (3, 1))
    return decode


def encode_matrix(fmt: PixelFormat, color: ColorSpec) -> npt.NDArray[np.float64]:
    """Return the (3, 4) matrix from ``(r, g, b, 1)`` in 0..255 to Y, U, V in code values."""
    return _yuv_matrices(fmt.bit_depth, color.range, *color.luma_weights)[1]


@functools.lru_cache(maxsize=32)
def _yuv_matrices(
    depth: int, range_: str, kr: float, kb: float
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """Return the decoding and the encoding matrix: H.273 (07/2021) clause 8.3."""
    luma = np.array([kr, 1 - kr - kb, kb])
    pb = (np.array([0.0, 0.0, 1.0]) - luma) / (2 * (1 - kb))
    pr = (np.array([1.0, 0.0, 0.0]) - luma) / (2 * (1 - kr))
    step = 2.0 ** (depth - 8)
    if range_ == "full":
        luma_span = chroma_span = 2.0**depth - 1
        black = 0.0
    else:
        luma_span, chroma_span, black = 219 * step, 224 * step, 16 * step
    linear = np.stack([luma * luma_span, pb * chroma_span, pr * chroma_span]) / 255
    offset = np.array([[black], [128 * step], [128 * step]])
    inverse = np.linalg.inv(linear)
    return (
        _frozen(np.hstack([inverse, -inverse @ offset])),
        _frozen(np.hstack([linear, offset])),
    )


def _frozen(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    array.flags.writeable = False
    return array
