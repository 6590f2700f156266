"""JPEG made on a GPU: a picture encoded and its size read again."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from cuframes_nb._doctor.checks import Check, Status
from cuframes_nb.errors import DeviceError, UnsupportedError

__all__ = ["look_at_jpeg"]

_NAME: Final = "JPEG on a GPU"
_SIDE: Final = 64
_WITHOUT: Final = "nothing has to be done: pictures are encoded by the CPU"


def look_at_jpeg() -> Iterator[Check]:
    """Yield whether pictures of frames on each GPU are encoded there."""
    from cuframes_nb._cuda.devices import device_count

    try:
        count = device_count()
    except DeviceError as error:
        yield Check("GPU", _NAME, Status.MISSING, str(error), _WITHOUT)
        return
    for ordinal in range(count):
        yield _look(ordinal)


def _look(ordinal: int) -> Check:
    name = f"JPEG on GPU {ordinal}"
    try:
        found = _encoded(ordinal)
    except (UnsupportedError, ImportError) as error:
        return Check("GPU", name, Status.MISSING, str(error), _WITHOUT)
    except DeviceError as error:
        return Check("GPU", name, Status.FAILED, str(error), _WITHOUT)
    return Check("GPU", name, Status.OK, found)


def _encoded(ordinal: int) -> str:
    """Encode a gray picture on a GPU; return by what.

    Raises
    ------
    UnsupportedError, ImportError
        If something is not there.
    DeviceError
        If it does not work.
    """
    from cuframes_nb._cuda.devices import activated
    from cuframes_nb._cuda.nvjpeg.binding import load
    from cuframes_nb._cuda.nvjpeg.painter import Picture
    from cuframes_nb._cuda.nvjpeg.pictures import PictureEncoder
    from cuframes_nb.color import ColorSpec
    from cuframes_nb.formats import PixelFormat

    library = load()
    with contextlib.closing(PictureEncoder(ordinal)) as encoder:
        import cupy

        with activated(ordinal):
            gray = cupy.full((_SIDE, _SIDE), 128, cupy.uint8)
        whole = (0, 0, _SIDE, _SIDE)
        color = ColorSpec("bt709", "full")
        picture = Picture((gray,), PixelFormat.GRAY8, color, whole, whole[2:], is_queued=True)
        data = encoder.encode(picture, 90)
    if not data.startswith(b"\xff\xd8") or not data.endswith(b"\xff\xd9"):
        raise DeviceError(f"what nvJPEG made is no JPEG: {data[:16].hex()}...")
    return f"a picture of {len(data)} bytes by nvJPEG {library.version}, {library.path}"
