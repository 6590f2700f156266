"""Files that are there as a whole or not at all, and pictures as the bytes of a file."""

from __future__ import annotations

import contextlib
import io
import os
import secrets
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from cuframes_nb.errors import InvalidArgumentError, UnsupportedError

__all__ = ["as_path", "jpeg", "png", "write_whole"]

_SIGNATURE: Final = b"\x89PNG\r\n\x1a\n"
_COLOUR_TYPES: Final = {1: 0, 3: 2, 4: 6}
"""PNG's number for gray, RGB and RGBA by the count of components: PNG, 11.2.2."""

_FILTER_UP: Final = 2
"""Each byte less the one above it: PNG, 9.2."""


def as_path(path: Any) -> Path:
    """Return a path that a user gave.

    Raises
    ------
    InvalidArgumentError
        If it is none.
    """
    if not isinstance(path, str | os.PathLike) or not isinstance(os.fspath(path), str):
        raise InvalidArgumentError(f"a file is named by a path, as in 'cam1.mp4', not by {path!r}")
    return Path(path)


def write_whole(path: str | os.PathLike[str], write: Callable[[BinaryIO], object]) -> Path:
    """Write a file so that it is never seen half written.

    It is written beside `path` and takes its name when it is complete; a file that was there is
    replaced then, and is left as it was if this fails.

    Parameters
    ----------
    path
        Where the file shall be.
    write
        Is given the open file, and writes it.

    Raises
    ------
    OSError
        If it cannot be written; names `path`.
    """
    path = as_path(path)
    draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with draft.open("xb") as file:
            write(file)
        draft.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(error, OSError) and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
    return path


def png(pixels: NDArray[np.uint8], level: int = 4) -> bytes:
    """Return a picture as a PNG file, without loss; needs no other library.

    Parameters
    ----------
    pixels
        Shape ``(height, width)`` for gray, ``(height, width, 3)`` for RGB, or 4 for RGBA; in host
        memory, of any strides.
    level
        Of compression, by zlib: 1 is the fastest, 9 the smallest.
    """
    height, width = pixels.shape[:2]
    components = pixels.shape[2] if pixels.ndim == 3 else 1
    rows = np.ascontiguousarray(pixels).reshape(height, width * components)
    lines = np.empty((height, 1 + rows.shape[1]), np.uint8)
    lines[:, 0] = _FILTER_UP
    lines[0, 1:] = rows[0]
    np.subtract(rows[1:], rows[:-1], out=lines[1:, 1:])  # modulo 256, as PNG wants it
    header = struct.pack(">IIBBBBB", width, height, 8, _COLOUR_TYPES[components], 0, 0, 0)
    return b"".join(
        (
            _SIGNATURE,
            _chunk(b"IHDR", header),
            _chunk(b"IDAT", zlib.compress(lines.tobytes(), level)),
            _chunk(b"IEND", b""),
        )
    )


def jpeg(rgb: NDArray[np.uint8], quality: int = 92) -> bytes:
    """Return a picture as a JPEG file, by simplejpeg or Pillow, whichever there is.

    Parameters
    ----------
    rgb
        Shape ``(height, width, 3)``, in host memory.
    quality
        1 to 100.

    Raises
    ------
    UnsupportedError
        If neither library is installed.
    """
    try:
        import simplejpeg
    except ImportError:
        return _pillow_jpeg(rgb, quality)
    return bytes(
        simplejpeg.encode_jpeg(
            np.ascontiguousarray(rgb), quality=quality, colorspace="RGB", colorsubsampling="420"
        )
    )


def _pillow_jpeg(rgb: NDArray[np.uint8], quality: int) -> bytes:
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            f"writing JPEG needs simplejpeg or Pillow ({error}): pip install pillow, or write .png"
        ) from error
    file = io.BytesIO()
    Image.fromarray(rgb).save(file, "jpeg", quality=quality)
    return file.getvalue()


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)
