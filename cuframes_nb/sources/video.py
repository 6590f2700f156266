"""Video files, decoded by PyAV straight into the slots of a publisher."""

from __future__ import annotations

import contextlib
import errno
import itertools
import logging
import math
import os
from collections.abc import Callable, Generator, Iterator
from typing import Any, Final

from cuframes_nb._api.publisher import Publisher
from cuframes_nb._api.pyav import import_av
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb.errors import CuframesError, InvalidArgumentError, UnsupportedError
from cuframes_nb.sources._addresses import redacted, scheme_of
from cuframes_nb.sources._ahead import Ahead
from cuframes_nb.sources._decoding import decode, rate_of, time_ns, video_stream
from cuframes_nb.sources._nvdec import Coded, Nvdec, check_decoder
from cuframes_nb.sources._picture import Picture
from cuframes_nb.sources.playing import Source, play

__all__ = ["VideoFile", "publish_video"]

_log = logging.getLogger("cuframes_nb.sources")

_URL_SECONDS: Final = 10.0
"""For a server to answer, and to send more of a film."""

_LOOK_BACK_US: Final = (0, 10_000_000, None)
"""How far before the start to look for a key frame, one after the other; None is at the beginning.

Most containers find it by themselves, MPEG-TS does not."""

_AHEAD_NS: Final = 1_000_000_000
"""So long before its end, a film that loops is opened again."""


class VideoFile(Source):
    """A video file, or a film at a URL, as a source of frames.

    Where the publisher's frames are on a GPU that can decode the film, it does: each plane goes
    from the decoder's surface into the slot by one copy on the device. Else the CPU decodes. 4:2:0
    frames of 8 and 10 bits go from the decoder's memory into the slot in one pass, up to a GPU by
    one copy a plane. Other formats are converted by FFmpeg first. A film that was
    shot upright and says so comes out upright. Packets that cannot be decoded are left out and
    logged.

    Parameters
    ----------
    path
        File name or URL. A user and password in a URL appear in no log and no error.
    loop
        Begin again at the end, without a jump in time.
    start
        Seconds of the film to leave out at its beginning, each time.
    stream
        Which of its video streams, counted from 0.
    size
        Width and height in pixels to scale to; None for the film's.
    fps
        Frames a second to play at; None for the film's own times.
    decoder
        ``"gpu"``: NVDEC, or an error from `prepare`. ``"cpu"``: FFmpeg's own. ``"auto"``: NVDEC
        where the frames are published in that GPU's memory, it can decode the film, and no `size`
        is asked for.

    Attributes
    ----------
    decoded_by
        What decodes, for people.

    Raises
    ------
    OSError
        If it cannot be opened.
    InvalidArgumentError
        If it holds no video that can be decoded, or nothing after `start`, or no such stream.
    UnsupportedError
        If PyAV is not installed.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        loop: bool = False,
        start: float = 0.0,
        stream: int = 0,
        size: tuple[int, int] | None = None,
        fps: float | None = None,
        decoder: str = "auto",
    ) -> None:
        self._av = import_av()
        check_decoder(decoder)
        if not (math.isfinite(start) and start >= 0):
            raise InvalidArgumentError(f"start is {start!r}; it is seconds from the beginning")
        if fps is not None and not fps > 0:
            raise InvalidArgumentError(f"fps is {fps!r}; it is a positive rate, or None")
        self._path = os.fspath(path)
        self._label = redacted(self._path)
        self._loop, self._start, self._stream = loop, start, stream
        self._size, self._rate = size, fps
        self._decoder = decoder
        self._nvdec: Nvdec | None = None
        self._coded: Coded | None = None
        self._begun: Iterator[tuple[int, Picture]] | None = None
        self._length_ns = 0
        self._begin()

    @property
    def path(self) -> str:
        """What was opened."""
        return self._path

    @property
    def decoded_by(self) -> str:
        """What decodes it, for people."""
        return "the CPU" if self._nvdec is None else self._nvdec.name

    def prepare(self, publisher: Publisher) -> None:
        """Decode where the publisher's frames are, if that is possible.

        Raises
        ------
        UnsupportedError
            If it is not, and the decoder was to be ``"gpu"``.
        """
        if self._decoder == "cpu" or (self._decoder == "auto" and publisher.device == "cpu"):
            self._decode_by(None)
            return
        try:
            self._decode_by(self._nvdec_for(publisher))
        except (OSError, CuframesError) as error:
            self._decode_by(None)
            if self._decoder == "gpu":
                raise UnsupportedError(f"{self._label} is not decoded on a GPU: {error}") from None
            _log.info("%s: not decoded on the GPU: %s", self._label, error)
        _log.info("%s: decoded by %s", self._label, self.decoded_by)

    def frames(self) -> Iterator[tuple[int, Picture]]:
        """Yield each frame with its time in nanoseconds from the first.

        `width`, `height`, `format` and `color` are those of the last frame yielded.
        """
        offset, number = 0, 0
        while True:
            end = offset
            begun, self._begun = self._begun, None
            with Ahead(self._one_pass) as following:
                for at_ns, picture in begun or self._one_pass():
                    self._look_at(picture)
                    due = offset + at_ns if self._rate is None else int(number * 1e9 / self._rate)
                    yield due, picture
                    end = offset + at_ns + self._duration_ns(picture.frame)
                    number += 1
                    if self._loop and 0 < self._length_ns < end - offset + _AHEAD_NS:
                        following.begin()
                if not self._loop or end == offset:
                    return
                self._begun = following.take()
            offset = end
            _log.debug("%s: again from the start", self._label)

    def close(self) -> None:
        """Close the file, if it was opened and not played yet."""
        self._begun = None

    def write(self, slot: WritableSlot, frame: Any) -> None:
        """Copy a decoded frame into `slot`, once."""
        frame.write(slot)

    def _nvdec_for(self, publisher: Publisher) -> Nvdec:
        if self._size is not None:
            raise UnsupportedError("a size is asked for, and NVDEC's frames are not scaled")
        if self._coded is None:
            raise UnsupportedError("nothing of it was decoded yet")
        return Nvdec(publisher.device, self._coded)

    def _decode_by(self, nvdec: Nvdec | None) -> None:
        """Have the frames to come decoded by the CPU or on a GPU, of which the first is tried."""
        if nvdec is self._nvdec:
            return
        self._nvdec = nvdec
        first = self._begin()
        if nvdec is not None:
            nvdec.check(first.frame)

    def _begin(self) -> Picture:
        """Begin the next pass; return its first frame, which tells what they are.

        The pass is kept: opening a film takes as long as decoding many frames of it.
        """
        self.close()
        pictures = self._one_pass()
        first = next(pictures, None)
        if first is None:
            after = f" after {self._start:g} s" if self._start else ""
            raise InvalidArgumentError(f"{self._label} holds no frame of video{after}")
        self._look_at(first[1])
        self._begun = itertools.chain([first], pictures)
        return first[1]

    def _one_pass(self) -> Generator[tuple[int, Picture]]:
        """Yield the frames of one pass with their times from the first, which never go back."""
        origin: int | None = None
        before = step = 0
        for at_ns, frame in self._from_start():
            origin = at_ns if origin is None else origin
            due = at_ns - origin
            if due < before:  # joined films begin again in the middle
                due = before + step
                origin = at_ns - due
            before, step = due, self._duration_ns(frame)
            picture = Picture.of(frame, self._nvdec)
            yield due, picture.scaled(*self._size) if self._size else picture

    def _from_start(self) -> Generator[tuple[int, Any]]:
        """Yield what is decoded from the start on, with its time in the film."""
        start = int(self._start * 1e9)
        for back_us in _LOOK_BACK_US if start else (None,):
            number = -1
            with contextlib.closing(self._decoded(back_us)) as frames:
                for number, (at_ns, frame) in enumerate(frames):
                    if number == 0 and back_us is not None and at_ns > start:
                        break  # the key frame is further back
                    if at_ns >= start or not start:
                        yield at_ns, frame
                else:
                    if number >= 0:
                        return

    def _decoded(self, back_us: int | None) -> Generator[tuple[int, Any]]:
        """Yield the frames after the key frame that is found so far before the start.

        None are yielded if the container cannot be searched, which may leave it anywhere.
        """
        with self._open() as container, self._told():
            stream = video_stream(container, self._stream, self._label)
            if self._nvdec is None:
                stream.thread_type = "AUTO"
            else:
                self._nvdec.set_up(stream)
            own = rate_of(stream)
            self.fps = self._rate or own
            origin_us = container.start_time or 0
            self._length_ns = (container.duration or 0) * 1000 - int(self._start * 1e9)
            begin_us = origin_us + int(self._start * 1e6)
            if back_us is not None and not self._seek(
                container, max(origin_us, begin_us - back_us)
            ):
                return
            for number, frame in enumerate(decode(container, stream, self._label)):
                if number == 0 and self._nvdec is None:
                    self._coded = Coded.of(stream, frame)
                yield time_ns(frame, number, own) - origin_us * 1000, frame

    def _seek(self, container: Any, at_us: int) -> bool:
        """Go to the key frame before a time; return whether the container can."""
        try:
            container.seek(at_us)
        except self._av.error.FFmpegError:
            return False
        return True

    def _open(self) -> Any:
        timeout = _URL_SECONDS if scheme_of(self._path) else None
        open_ = self._av.open if self._nvdec is None else self._nvdec.open
        with self._told():
            container = open_(self._path, timeout=timeout)
        if container.format.name == "tty":  # FFmpeg draws any text
            container.close()
            raise InvalidArgumentError(f"{self._label} cannot be read as video: it is text")
        return container

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        """Raise FFmpeg's errors as ours. Its own have the URL with its password, so they go."""
        try:
            yield
        except self._av.error.ExitError:  # PyAV's way to say that its timeout is over
            text = f"no answer within {_URL_SECONDS:g} s"
            raise OSError(errno.ETIMEDOUT, text, self._label) from None
        except self._av.error.FFmpegError as error:
            if isinstance(error, OSError):
                raise OSError(error.errno, error.strerror, self._label) from None
            raise InvalidArgumentError(
                f"{self._label} cannot be read as video: {error.strerror}"
            ) from None

    def _look_at(self, picture: Picture) -> None:
        self.width, self.height = picture.width, picture.height
        self.format, self.color = picture.format, picture.color

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
