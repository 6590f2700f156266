"""What a page may ask about the frame on screen."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import numpy as np

from cuframes_nb._api.frame import Frame
from cuframes_nb._viewer import messages
from cuframes_nb._viewer.images import Pixels, host_array
from cuframes_nb._viewer.picture import fitted, rgb_pixels
from cuframes_nb.sinks.files import png, write_whole

__all__ = ["histogram_of", "pixel_of", "write_snapshot"]

_COUNTED: Final = (320, 180)
"""Histograms are of a picture that fits into this: a hundredth second, and as true."""

_SMALL: Final = 6
"""Compression of PNG files: zlib's default."""


def pixel_of(frame: Frame, asked: messages.Probe) -> dict[str, Any] | None:
    """Return the answer to a probe; None if the pixel lies outside of the frame."""
    x, y = asked.x, asked.y
    if x >= frame.width or y >= frame.height:
        return None
    corner = (x & ~1, y & ~1)
    width, height = min(2, frame.width - corner[0]), min(2, frame.height - corner[1])
    rgb = rgb_pixels(frame, (*corner, width, height), None)[y - corner[1], x - corner[0]]
    return messages.probe(
        asked, seq=frame.seq, yuv=_code_values(frame, x, y), rgb=[int(v) for v in rgb]
    )


def _code_values(frame: Frame, x: int, y: int) -> list[int] | None:
    """Return Y, U and V as they are in the slot; P010 has its 10 bits in the upper ones."""
    if not frame.format.is_yuv:
        return None
    shift = 6 if frame.y.dtype == np.uint16 else 0
    values = [int(host_array(frame.y[y : y + 1, x : x + 1])[0, 0])]
    if frame.format.is_semiplanar:
        chroma = host_array(frame.uv[y // 2 : y // 2 + 1, x // 2 : x // 2 + 1])[0, 0]
        values += [int(chroma[0]), int(chroma[1])]
    return [value >> shift for value in values]


def histogram_of(frame: Frame, cam: int) -> dict[str, Any]:
    """Return how often each luma, red, green and blue occurs, of 8 bits each."""
    rgb = rgb_pixels(frame, None, fitted((frame.width, frame.height), _COUNTED, 1.0))
    luma = rgb @ np.array([0.2126, 0.7152, 0.0722])  # of the picture, Rec. ITU-R BT.709
    if frame.format.is_yuv:
        step = max(1, frame.width // _COUNTED[0])
        rows = host_array(frame.y[::step, ::step])
        luma = rows >> 8 if rows.dtype == np.uint16 else rows
    red, green, blue = (_counts(rgb[..., i]) for i in range(3))
    return messages.histogram(cam, frame.seq, y=_counts(luma), r=red, g=green, b=blue)


def _counts(values: Any) -> list[int]:
    counts: list[int] = np.bincount(values.astype(np.uint8).ravel(), minlength=256).tolist()
    return counts


def write_snapshot(pixels: Pixels, path: Path) -> tuple[Path, bytes]:
    """Write a picture as PNG; return where, and the file."""
    data = png(pixels, _SMALL)
    return write_whole(path.expanduser().resolve(), lambda file: file.write(data)), data
