"""One frame as a file."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeAlias

import numpy as np

from cuframes_nb._api.frame import Frame
from cuframes_nb._api.subscribe import subscribe
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._cuda.nvjpeg.painter import Picture
from cuframes_nb._cuda.nvjpeg.pictures import PictureEncoder
from cuframes_nb._views.downloads import as_numpy
from cuframes_nb.errors import DeviceError, InvalidArgumentError, UnsupportedError
from cuframes_nb.formats import PixelFormat
from cuframes_nb.sinks.feed import check_source
from cuframes_nb.sinks.files import as_path, jpeg, png, write_whole

__all__ = ["snapshot"]

_QUALITY: Final = 92
"""Of JPEG."""

_Content: TypeAlias = Callable[[BinaryIO], object]


def snapshot(
    source: str | os.PathLike[str] | Subscriber | Frame,
    path: str | os.PathLike[str],
    *,
    timeout: float | None = 5.0,
) -> Path:
    """Save the newest frame of a stream, in full size.

    Parameters
    ----------
    source
        The stream's key or address; a `Subscriber` or a `Frame`, which stay their owner's.
    path
        The file, which is replaced if it is there, and never seen half written. Its suffix says
        what is in it:

        ``.png``
            ``frame.rgb()``, 8 bits, without loss.
        ``.jpg``, ``.jpeg``
            The same with quality 92 and chroma of half the size. Frames on a GPU are encoded there
            by nvJPEG, which the extras ``cuda13`` and ``cuda12`` bring; others need simplejpeg or
            Pillow.
        ``.npy``
            ``frame.array`` as it is, for ``numpy.load``.
        ``.yuv``, ``.nv12``
            The planes of a YUV frame as they are, one behind the other, without padding. ``.nv12``
            takes NV12 only.
    timeout
        Seconds to wait for the stream, and then for its first frame; None for ever.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    FrameTimeout
        If there is no frame in time.
    InvalidArgumentError
        If the suffix is not known, or not for such frames.
    UnsupportedError
        If the frame is not one array (``.npy``, odd width), or a library is missing (``.jpg``).
    OSError
        If the file cannot be written; names it.
    CuframesError
        As :func:`cuframes_nb.subscribe`.
    """
    target = as_path(path)
    try:
        content = _CONTENTS[target.suffix.lower()]
    except KeyError:
        raise InvalidArgumentError(
            f"{target.name!r} does not say what to save: its name must end in one of "
            f"{', '.join(_CONTENTS)}"
        ) from None
    with _one_frame(source, timeout) as frame:
        write = content(frame)  # all that can be wrong with the frame, before there is a file
        return write_whole(target, write)


@contextmanager
def _one_frame(source: Any, timeout: float | None) -> Iterator[Frame]:
    """Yield the newest frame."""
    if isinstance(source, Frame):
        yield source
        return
    if isinstance(source, Subscriber):
        with source.latest() or source.next(timeout) as frame:
            yield frame
        return
    check_source(source)
    with subscribe(source, timeout=timeout, name="snapshot") as own, own.next(timeout) as frame:
        yield frame


def _png(frame: Frame) -> _Content:
    data = png(as_numpy(frame.rgb()))
    return lambda file: file.write(data)


def _jpeg(frame: Frame) -> _Content:
    data = _gpu_jpeg(frame) or jpeg(as_numpy(frame.rgb()), _QUALITY)
    return lambda file: file.write(data)


def _gpu_jpeg(frame: Frame) -> bytes | None:
    """Return a frame on a GPU as JPEG, encoded there; None where that cannot be done."""
    if frame.device == "cpu":
        return None
    whole = (0, 0, frame.width, frame.height)
    picture = Picture(
        frame.planes, frame.format, frame.color, whole, whole[2:], is_queued=True
    )  # a copy may not be made yet
    try:
        with contextlib.closing(PictureEncoder(int(frame.device.removeprefix("cuda:")))) as encoder:
            return encoder.encode(picture, _QUALITY)
    except (UnsupportedError, DeviceError):  # it is tried on the CPU, which says more if it must
        return None


def _npy(frame: Frame) -> _Content:
    array = as_numpy(frame.array)
    return lambda file: np.save(file, array, allow_pickle=False)


def _planes(frame: Frame) -> _Content:
    if not frame.format.is_yuv:
        raise InvalidArgumentError(
            f"a frame of format {frame.format} has no YUV planes to save: write .png or .npy"
        )
    planes = [as_numpy(plane) for plane in frame.planes]
    return lambda file: [file.write(plane.tobytes()) for plane in planes]


def _nv12(frame: Frame) -> _Content:
    if frame.format is not PixelFormat.NV12:
        raise InvalidArgumentError(
            f"a frame of format {frame.format} is no NV12: write .yuv, .npy or .png"
        )
    return _planes(frame)


_CONTENTS: Final[dict[str, Callable[[Frame], _Content]]] = {
    ".png": _png,
    ".jpg": _jpeg,
    ".jpeg": _jpeg,
    ".npy": _npy,
    ".yuv": _planes,
    ".nv12": _nv12,
}
