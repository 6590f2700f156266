"""Video files and streams, decoded by PyAV straight into the slots of a publisher."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.slot import WritableSlot
from cuframes_nb.color import PRIMARIES_CODES, TRANSFER_CODES, ColorSpec
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError
from cuframes_nb.sources._planes import Writer, write_as_they_are, write_planar
from cuframes_nb.sources.playing import Source, play

__all__ = ["VideoFile", "publish_video", "stream_color"]

_log = logging.getLogger("cuframes_nb.sources")

_DIRECT: Final[dict[str, tuple[str, Writer]]] = {
    "yuv420p": ("nv12", write_planar(0)),
    "yuvj420p": ("nv12", write_planar(0)),
    "yuv420p10le": ("p010", write_planar(6)),
    "nv12": ("nv12", write_as_they_are),
    "p010le": ("p010", write_as_they_are),
    "gray": ("gray8", write_as_they_are),
    "rgb24": ("rgb24", write_as_they_are),
    "rgba": ("rgba32", write_as_they_are),
}
"""What decoders give that goes into a slot with one copy: our format, and how."""

_AV_RANGES: Final = {1: "limited", 2: "full"}
"""FFmpeg's AVColorRange, which is not H.273's flag."""

_MATRICES: Final = {1: "bt709", 5: "bt601", 6: "bt601", 9: "bt2020"}
"""H.273 gives BT.601's matrix two code points."""

_PRIMARIES: Final = {code: name for name, code in PRIMARIES_CODES.items()}
_TRANSFERS: Final = {code: name for name, code in TRANSFER_CODES.items()}


class VideoFile(Source):
    """A video file, or anything else that FFmpeg opens, as a source of frames.

    4:2:0 frames of 8 and 10 bits go from the decoder's memory into the slot in one pass; on a GPU
    each plane is uploaded by one copy. Other formats are converted by FFmpeg first.

    Parameters
    ----------
    path
        File name or URL.
    loop
        Begin again at the end, without a jump in time.

    Raises
    ------
    OSError
        If it cannot be opened.
    InvalidArgumentError
        If it holds no video that can be decoded.
    UnsupportedError
        If PyAV is not installed.
    """

    def __init__(self, path: str | os.PathLike[str], *, loop: bool = False) -> None:
        self._av = _import_av()
        self._path = os.fspath(path)
        self._loop = loop
        first = next(self._decode(), None)
        if first is None:
            raise InvalidArgumentError(f"{self._path} holds no frame of video")
        _, frame = first
        self._look_at(frame)

    @property
    def path(self) -> str:
        """What was opened."""
        return self._path

    def frames(self) -> Iterator[tuple[int, Any]]:
        """Yield each frame with its time in nanoseconds from the first.

        `width`, `height`, `format` and `color` are those of the last frame yielded.
        """
        offset = 0
        while True:
            end = offset
            for at_ns, frame in self._decode():
                self._look_at(frame)
                yield offset + at_ns, frame
                end = offset + at_ns + self._duration_ns(frame)
            if not self._loop or end == offset:
                return
            offset = end
            _log.debug("%s: again from the start", self._path)

    def write(self, slot: WritableSlot, frame: Any) -> None:
        """Copy a decoded frame into `slot`, once."""
        name = _slot_name(frame.format)
        if name != frame.format.name:
            levels = 2 if _range(frame) == "full" else 1  # FFmpeg would make it limited
            frame = frame.reformat(format=name, src_color_range=levels, dst_color_range=levels)
        _, write = _DIRECT[name]
        write(slot, [_plane_array(plane, frame) for plane in frame.planes])

    def _decode(self) -> Iterator[tuple[int, Any]]:
        """Yield the frames of one pass with their times from the first."""
        with self._open() as container:
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            self.fps = float(stream.average_rate or stream.guessed_rate or 0)
            first = None
            for number, frame in enumerate(self._guarded(container.decode(stream))):
                at_ns = _time_ns(frame, number, self.fps)
                first = at_ns if first is None else first
                yield max(0, at_ns - first), frame

    def _open(self) -> Any:
        try:
            container = self._av.open(self._path)
        except self._av.error.FFmpegError as error:
            raise self._unreadable(error) from error
        if not container.streams.video:
            container.close()
            raise InvalidArgumentError(f"{self._path} has no video in it")
        return container

    def _guarded(self, decoded: Iterator[Any]) -> Iterator[Any]:
        try:
            yield from decoded
        except self._av.error.FFmpegError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: Any) -> Exception:  # PyAV's, each with errno and strerror
        if isinstance(error, OSError):
            return OSError(error.errno, error.strerror, self._path)
        return InvalidArgumentError(f"{self._path} cannot be read as video: {error.strerror}")

    def _look_at(self, frame: Any) -> None:
        self.width, self.height = frame.width, frame.height
        self.format, _ = _DIRECT[_slot_name(frame.format)]
        self.color = stream_color(frame)

    def _duration_ns(self, frame: Any) -> int:
        if frame.duration and frame.time_base:
            return int(frame.duration * frame.time_base * 1_000_000_000)
        return int(1e9 / (self.fps or 25))


def publish_video(
    path: str | os.PathLike[str],
    key: str,
    *,
    loop: bool = False,
    fast: bool = False,
    stop: Callable[[], bool] = lambda: False,
    **options: Any,
) -> int:
    """Publish a video file under `key` until it ends.

    Parameters
    ----------
    path
        File name or URL.
    key
        Name of the stream.
    loop, fast, stop
        As :class:`VideoFile` and :func:`play`.
    options
        As :class:`cuframes_nb.Publisher`; by default they follow the film.

    Returns
    -------
    int
        How many frames were published.

    Raises
    ------
    OSError, CuframesError
        As :class:`VideoFile` and :class:`cuframes_nb.Publisher`.
    """
    film = VideoFile(path, loop=loop)
    with film.publisher(key, **options) as publisher:
        return play(film, publisher, fast=fast, stop=stop)


def stream_color(frame: Any) -> ColorSpec | None:
    """Return what a decoded frame says about its colours, None if it says nothing.

    Parameters
    ----------
    frame
        A PyAV ``VideoFrame``. What only part of its tags say is completed by the usual assumption.
    """
    levels = _range(frame)
    matrix = _MATRICES.get(int(frame.colorspace))
    if frame.format.is_rgb or (matrix is None and levels is None):
        return None
    return ColorSpec(
        matrix or ColorSpec.assume(frame.height).matrix,
        levels or "limited",
        _PRIMARIES.get(int(frame.color_primaries)),
        _TRANSFERS.get(int(frame.color_trc)),
        assumed=matrix is None,
    )


def _range(frame: Any) -> str | None:
    if frame.format.name.startswith("yuvj"):
        return "full"  # J is for JPEG
    return _AV_RANGES.get(int(frame.color_range))


def _import_av() -> ModuleType:
    try:
        import av
        import av.error
    except ImportError as error:
        raise UnsupportedError(
            f"reading video files needs PyAV ({error}): pip install 'cuframes-nb[video]'"
        ) from error
    module: ModuleType = av
    return module


def _slot_name(format_: Any) -> str:
    """Return the decoder's format, or the one that FFmpeg is to convert it to."""
    if format_.name in _DIRECT:
        return str(format_.name)
    if format_.is_rgb or format_.has_palette:
        return "rgb24"
    return "p010le" if format_.components[0].bits > 8 else "nv12"


def _time_ns(frame: Any, number: int, fps: float) -> int:
    if frame.pts is not None and frame.time_base:
        return int(frame.pts * frame.time_base * 1_000_000_000)
    return int(number * 1e9 / (fps or 25))


def _plane_array(plane: Any, frame: Any) -> NDArray[Any]:
    """Return the samples of a plane as rows, on the decoder's memory."""
    deep = frame.format.components[0].bits > 8
    flat = np.frombuffer(plane, np.uint16 if deep else np.uint8)
    pitch = plane.line_size // flat.itemsize
    return flat[: pitch * plane.height].reshape(plane.height, pitch)
