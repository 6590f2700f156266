"""One file that is being written."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, Final

from cuframes_nb._api.pyav import import_av
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.sinks._av import encoder_named
from cuframes_nb.sinks.codecs import Container, Encoder, candidates, options_for
from cuframes_nb.sinks.pixels import Painter, Shape, choices, tag

__all__ = ["Film", "FilmFile", "Plan", "plan"]

_KEY_SECONDS: Final = 2
"""Between key frames, from which a player can start."""

_USUAL_FPS: Final = 30.0
"""Where the stream does not say."""


class FilmFile:
    """The descriptor behind a film, as the file object that PyAV writes to.

    Opened before there is a frame, so that a path that cannot be written is told at once. What is
    there is emptied only at the first `flush`, and a file that was made and never written is
    removed by `close`.

    FFmpeg's writes are kept until `flush`, which `Film` calls when FFmpeg is done with a frame: so
    a failure is not raised through its layers, and the file ends with a whole fragment or cluster,
    also if the disk is full.

    Parameters
    ----------
    path
        Where to write.

    Raises
    ------
    OSError
        If it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._pid = os.getpid()
        self._made = True
        try:
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            self._made = False
            self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        self._is_regular = stat.S_ISREG(os.fstat(self._fd).st_mode)
        self._waiting: list[tuple[int, bytes]] = []
        self._at = self._end = 0
        self.nbytes = 0  #: that are written

    def write(self, data: bytes) -> int:
        """Take `data`, to be written at this place."""
        self._waiting.append((self._at, data))
        self._at += len(data)
        self._end = max(self._end, self._at)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Go to a place in the file."""
        self._at = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._end}[whence] + offset
        return self._at

    def tell(self) -> int:
        """Return the place in the file."""
        return self._at

    def flush(self) -> None:
        """Write what waits.

        Raises
        ------
        OSError
            If that cannot be; names the file, which is then as it was before.
        """
        waiting, self._waiting = self._waiting, []
        # A child that was forked has this object and the descriptor, and no business with them.
        if not waiting or self._fd < 0 or os.getpid() != self._pid:
            return
        try:
            if self.nbytes == 0 and self._is_regular:
                os.ftruncate(self._fd, 0)
            for at, data in _joined(waiting):
                self._write_at(at, memoryview(data))
        except OSError as error:
            if self._is_regular:
                with contextlib.suppress(OSError):
                    os.ftruncate(self._fd, self.nbytes)
            raise OSError(error.errno, error.strerror, str(self.path)) from error
        self.nbytes = self._end

    def _write_at(self, at: int, data: memoryview) -> None:
        while data:
            count = os.pwrite(self._fd, data, at)
            data, at = data[count:], at + count

    def close(self) -> None:
        """Close the file; remove it if it was made for nothing. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd < 0:
            return
        os.close(fd)
        if self._made and self.nbytes == 0 and os.getpid() == self._pid:
            with contextlib.suppress(OSError):
                self.path.unlink()


def _joined(pieces: list[tuple[int, bytes]]) -> Iterator[tuple[int, bytes]]:
    """Yield places and bytes, with those that follow each other put together."""
    start, run = pieces[0][0], [pieces[0][1]]
    end = start + len(run[0])
    for at, data in pieces[1:]:
        if at != end:
            yield start, b"".join(run)
            start, end, run = at, at, []
        run.append(data)
        end += len(data)
    yield start, b"".join(run)


class Plan:
    """How frames of one shape are encoded."""

    def __init__(self, shape: Shape, encoder: Encoder, pixels: str, quality: int | None) -> None:
        self.shape = shape
        self.encoder = encoder
        self.painter = Painter(shape, pixels, lossless=encoder.lossless, any_size=encoder.any_size)
        self._options = options_for(encoder, quality)

    def set_up(self, context: Any, ticks: int, fps: float) -> None:
        """Tell an encoder that is not yet open what will come.

        Parameters
        ----------
        context
            PyAV's codec context.
        ticks
            A second's, in the times of the frames.
        fps
            Nominal frames a second, 0 if unknown; the frames' times are their own.
        """
        painter = self.painter
        rate = Fraction(fps or _USUAL_FPS).limit_denominator(1001)
        context.width, context.height = painter.size
        context.pix_fmt = painter.pixels
        context.time_base = Fraction(1, ticks)
        context.framerate = rate
        context.gop_size = 1 if self.encoder.lossless else max(1, round(_KEY_SECONDS * rate))
        tag(context, painter.color)
        context.options = dict(self._options)


def plan(shape: Shape, codec: str, quality: int | None, *, on_gpu: bool) -> Plan:
    """Return how to encode frames of a shape.

    Raises
    ------
    UnsupportedError
        If none of this FFmpeg's encoders for the codec takes such frames; says why.
    """
    reasons = []
    for encoder in candidates(codec, on_gpu=on_gpu):
        known = {str(format_.name) for format_ in encoder_named(encoder.name).video_formats or ()}
        wanted = choices(shape.format, lossless=encoder.lossless)
        pixels = next((name for name in wanted if name in known), None)
        if pixels is None:
            reasons.append(f"{encoder.name} takes no {' or '.join(wanted)}")
            continue
        found = Plan(shape, encoder, pixels, quality)
        # A GPU's encoder is there or not; the others fail only for what they cannot do at all.
        failure = _trial(found)
        if failure is None:
            return found
        reasons.append(f"{encoder.name} does not open: {failure}")
    raise UnsupportedError(
        f"frames of {shape.format} at {shape.width}x{shape.height} cannot be recorded as "
        f"{codec} here: {'; '.join(reasons)}"
    )


def _trial(found: Plan) -> str | None:
    """Open and close an encoder; return what it said against that."""
    av = import_av()
    context = av.CodecContext.create(found.encoder.name, "w")
    try:
        found.set_up(context, 90_000, 0)
        context.open()
    except (av.error.FFmpegError, ValueError) as error:
        return str(getattr(error, "strerror", None) or error)
    return None


class Film:
    """A film on its way into a file.

    Parameters
    ----------
    file
        Where to; closed with the film, also if this raises.
    container
        What kind of file.
    how
        How its frames are encoded.
    fps
        Nominal frames a second, 0 if unknown.

    Raises
    ------
    OSError
        If it cannot be written.
    UnsupportedError
        If FFmpeg refuses.
    """

    def __init__(self, file: FilmFile, container: Container, how: Plan, fps: float) -> None:
        self._av = import_av()
        self._file = file
        self.plan = how
        self._time_base = Fraction(1, container.ticks)
        self._output: Any = None
        self._stream: Any = None
        with self._failing():
            # Container options: PyAV hands what is called "options" to the encoder as well.
            self._output = self._av.open(
                file, "w", format=container.muxer, container_options=dict(container.options)
            )
            self._stream = self._output.add_stream(how.encoder.name)
            how.set_up(self._stream.codec_context, container.ticks, fps)
            if how.encoder.codec == "hevc" and container.muxer in {"mp4", "mov"}:
                self._stream.codec_context.codec_tag = "hvc1"  # Apple's players know no other
            self._output.start_encoding()

    @property
    def path(self) -> Path:
        """Where it is written."""
        return self._file.path

    @property
    def nbytes(self) -> int:
        """Size of the file so far."""
        return self._file.nbytes

    def write(self, picture: Any, tick: int) -> None:
        """Encode a picture that `plan.painter` made, to be shown at `tick`.

        Raises
        ------
        OSError, UnsupportedError
            As the constructor; the film is closed then.
        """
        picture.pts = tick
        picture.time_base = self._time_base
        with self._failing():
            self._output.mux(self._stream.encode(picture))

    def finish(self) -> None:
        """Write what the encoder still holds, and close the file.

        Raises
        ------
        OSError, UnsupportedError
            As `write`; the file is closed then as well.
        """
        with self._failing():
            self._output.mux(self._stream.encode(None))
            self._output.close()
        self._let_go()

    def abandon(self) -> None:
        """Close the file as it is, with what makes it complete if that is possible. Idempotent."""
        with contextlib.suppress(Exception):
            if self._output is not None:
                self._output.close()
                self._file.flush()
        self._let_go()

    def _let_go(self) -> None:
        self._output = self._stream = None  # encoders hold memory and threads
        self._file.close()

    @contextlib.contextmanager
    def _failing(self) -> Iterator[None]:
        """Write what a block made; what goes wrong is raised as an error of ours, at the end."""
        try:
            yield
            self._file.flush()
        except self._av.error.FFmpegError as error:
            self.abandon()
            raise UnsupportedError(
                f"{self.path} cannot be written as {self.plan.encoder.codec}: {error}"
            ) from error
        except OSError:
            self._let_go()  # as it is: nothing more can be written
            raise
        except BaseException:
            self.abandon()
            raise
