"""Small pictures of frames, encoded with little more than NumPy and zlib."""

from __future__ import annotations

import base64
import io
import struct
import zlib
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.frame import Frame
from cuframes_nb.errors import UnsupportedError

__all__ = ["data_uri", "jpeg", "on_host", "picture", "png"]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_RGB_8_BITS: Final = bytes([8, 2, 0, 0, 0])
"""Bits, colour type, and the only compression, filters and (no) interlacing: PNG, 11.2.2."""

_FILTER_UP: Final = 2
"""Each byte less the one above it: PNG, 9.2."""


def picture(frame: Frame, width: int | None = None) -> NDArray[np.uint8]:
    """Return a frame as RGB in host memory, at most `width` pixels wide."""
    size = None
    if width is not None and width < frame.width:
        size = (width, max(1, round(frame.height * width / frame.width)))
    return on_host(frame.rgb(size=size))


def on_host(array: Any) -> NDArray[np.uint8]:
    """Return an array of NumPy or CuPy as NumPy's."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def png(rgb: NDArray[np.uint8]) -> bytes:
    """Return RGB of shape ``(height, width, 3)`` as a PNG file, without loss."""
    height, width, _ = rgb.shape
    rows = np.ascontiguousarray(rgb).reshape(height, width * 3)
    lines = np.empty((height, 1 + width * 3), np.uint8)
    lines[:, 0] = _FILTER_UP
    lines[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])  # modulo 256, as PNG wants it
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", struct.pack(">II", width, height) + _RGB_8_BITS),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), 4)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


def jpeg(rgb: NDArray[np.uint8]) -> bytes:
    """Return RGB as a JPEG file of good quality.

    Raises
    ------
    UnsupportedError
        If Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            f"writing JPEG needs Pillow ({error}): pip install pillow, or write .png"
        ) from error
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "jpeg", quality=92)
    return file.getvalue()


def data_uri(file: bytes, mime: str = "image/png") -> str:
    """Return a file as the address of an ``<img>``."""
    return f"data:{mime};base64,{base64.b64encode(file).decode()}"
