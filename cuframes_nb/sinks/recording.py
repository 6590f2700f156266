"""Recording a stream into a film."""

from __future__ import annotations

import atexit
import contextvars
import logging
import math
import os
import threading
import time
import traceback
from collections.abc import Callable
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from cuframes_nb._api.frame import Frame
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._core.clock import now_ns
from cuframes_nb.errors import FrameTimeout, InvalidArgumentError
from cuframes_nb.sinks.belt import Belt
from cuframes_nb.sinks.codecs import check_codec, container_for
from cuframes_nb.sinks.feed import EndOfFeed, Feed, check_source
from cuframes_nb.sinks.files import as_path
from cuframes_nb.sinks.film import Plan, plan
from cuframes_nb.sinks.info import RecordingInfo
from cuframes_nb.sinks.pixels import Downloads, shape_of
from cuframes_nb.sinks.reel import Reel

__all__ = ["Recording", "record"]

_log = logging.getLogger("cuframes_nb.sinks")

_LOOK_SECONDS: Final = 0.1
"""How often a recorder that waits for frames looks whether to stop."""

_PROGRESS_SECONDS: Final = 1.0

_WAITING_BYTES: Final = 128 << 20
"""Of pictures that wait to be encoded: a second and more of 1920x1080 at 30 frames a second."""


class _Picture(NamedTuple):
    """A frame on its way from the thread that takes to the one that writes."""

    plan: Plan
    picture: Any  # PyAV's VideoFrame
    pts_ns: int
    published_ns: int
    anew: bool


class Recording:
    """Records a stream into a film, in the background.

    It begins at once. As a context manager it stops at the end of the block; without one it runs
    until its limit, `stop`, or the end of the program, which stops it.

    Two threads work. One takes a frame, copies it once, from the slot into the layout that the
    encoder wants, and gives the slot back: that takes a millisecond or a few, where encoding may
    take tens, and a ring of four slots has none to spare for so long. The other encodes and writes.
    What waits between them is bounded; when the encoder does not keep up, frames are skipped and
    counted. The publisher never waits: it is subscribed to in order if its policy is
    ``"drop-oldest"``, which waits for nobody, else for the newest frame.

    Parameters
    ----------
    source
        The stream's key or address, or a `Subscriber`. A stream that is named so is subscribed to:
        when its publisher dies the recording goes on once it is back, and when it closes the
        stream the recording ends. A `Subscriber` stays its owner's, who leaves it alone meanwhile:
        with ``reconnect=True`` the recording goes on after either.
    path
        The file; ``.mp4``, ``.mov`` or ``.mkv`` says its kind. It is replaced if it is there. It
        can be played while it is written, and after this process was killed.
    codec
        ``"h264"``, ``"hevc"``, ``"av1"``; ``"ffv1"`` (``.mkv`` only) loses nothing. ``"auto"`` is
        H.264, encoded on the GPU that holds the frames if it can.
    duration
        Seconds to record, from the first frame; and how long to wait for that. None for no limit.
    frames
        Frames to record. None for no limit.
    quality
        1 to 100, as the encoder understands it; None for a good one.
    on_progress
        Is called with a `RecordingInfo` about once a second and at the end, on the writing thread.
        What it raises ends the recording, whose file is finished.

    Raises
    ------
    InvalidArgumentError
        If a value is wrong.
    UnsupportedError
        If PyAV is not installed, or its FFmpeg has no such encoder.
    OSError
        If the file cannot be written; names it.
    CuframesError
        As :func:`cuframes_nb.subscribe`, if there is no such stream.

    Notes
    -----
    Matrix, range, primaries and transfer are those of the frames, and tagged. NV12 and P010 are
    recorded as they are, 8 and 10 bits. RGB stays RGB in FFV1; the other codecs get BT.709 or
    BT.601, limited. Gray gets neutral chroma there. But for FFV1, an odd width or height becomes
    even: the last column or row is repeated.

    Times are the frames' `pts_ns`, the first at 0, to 1/90000 s (``.mkv``: 1/1000 s).

    When the frames' size, format or colours change, the file is finished and another begun, whose
    name has a number: ``cam1-2.mp4``, or the next that is free.
    """

    def __init__(
        self,
        source: str | os.PathLike[str] | Subscriber,
        path: str | os.PathLike[str],
        *,
        codec: str = "auto",
        duration: float | None = None,
        frames: int | None = None,
        quality: int | None = None,
        on_progress: Callable[[RecordingInfo], object] | None = None,
    ) -> None:
        check_source(source)
        self._path = as_path(path)
        container = container_for(self._path)
        check_codec(codec, quality, container)
        self._codec, self._quality = codec, quality
        self._duration, self._frames = _seconds(duration), _count(frames)
        self._on_progress = _function(on_progress)
        self._feed = Feed(source, f"record {self._path.name}")
        try:
            self._reel = Reel(self._path, container, now_ns())
        except BaseException:
            self._feed.close()
            raise
        self._belt: Belt[_Picture] = Belt(_WAITING_BYTES)
        self._stopping = threading.Event()
        self._over = threading.Event()
        self._skipped = 0
        self._why = self._ended = ""
        self._error: BaseException | None = None
        # Daemons: a program that ends does not wait for them for ever, but stops them.
        self._taker = self._thread("taker", self._take)
        self._writer = self._thread("writer", self._write)
        atexit.register(self.close)
        self._taker.start()
        self._writer.start()

    @property
    def info(self) -> RecordingInfo:
        """What the recording is at now."""
        return self._reel.info(self._skipped, self._ended)

    @property
    def running(self) -> bool:
        """Whether it has not ended yet."""
        return not self._over.is_set()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the recording ends by itself.

        Parameters
        ----------
        timeout
            Seconds, None for ever.

        Returns
        -------
        bool
            Whether it has ended. What it came to, or what went wrong, is told by `stop`.
        """
        return self._over.wait(timeout)

    def stop(self) -> RecordingInfo:
        """End the recording and finish the file. Idempotent, from any thread.

        Frames that were taken and wait are still written.

        Returns
        -------
        RecordingInfo
            What it came to.

        Raises
        ------
        FrameTimeout
            If no frame came within `duration`; no file is made then.
        OSError
            If the file could not be written, as when the disk is full. What was written until then
            can be played.
        Exception
            Whatever else ended the recording.
        """
        self._end("stopped")
        if self._error is not None:
            raise self._error
        return self.info

    def close(self) -> None:
        """End the recording as `stop` does, and raise nothing. Idempotent, from any thread."""
        self._end("stopped")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback_: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
        else:  # which is what is to be told
            self.close()

    def __repr__(self) -> str:
        info = self.info
        return f"<Recording {str(self._path)!r} {info.ended or 'running'}, {info.frames} frames>"

    def _thread(self, what: str, work: Callable[[], None]) -> threading.Thread:
        return threading.Thread(
            target=contextvars.copy_context().run,  # prints where the caller prints
            args=(work,),
            name=f"cuframes {what} {self._path.name}",
            daemon=True,
        )

    def _end(self, why: str) -> None:
        self._why = self._why or why
        self._stopping.set()
        if threading.current_thread() is self._writer:
            return  # called by `on_progress`, and a thread cannot wait for itself
        self._taker.join()
        self._writer.join()

    def _fail(self, error: BaseException) -> None:
        """Keep the first error; the variables on its way here must not keep slots."""
        traceback.clear_frames(error.__traceback__)
        if self._error is None:
            self._error, self._why = error, "failed"
        self._stopping.set()

    # --- Taking -----------------------------------------------------------------------------------

    def _take(self) -> None:
        try:
            why = self._take_all()
            self._why = self._why or why
        except BaseException as error:  # noqa: BLE001  told by `stop`
            self._fail(error)
        finally:
            self._skipped = self._feed.skipped
            self._feed.close()
            self._belt.close()

    def _take_all(self) -> str:
        """Put frames on the belt until it is time to end; return why it was."""
        downloads = Downloads()
        current: Plan | None = None
        life = self._feed.life
        taken = 0
        deadline = self._deadline()
        while not self._stopping.is_set():
            left = deadline - time.monotonic()
            if left <= 0:
                if not taken:
                    raise FrameTimeout(f"no frame came within {self._duration:g} s: no film")
                return "duration"
            try:
                frame = self._feed.next(min(_LOOK_SECONDS, left))
            except EndOfFeed as end:
                return str(end)
            if frame is None:
                continue
            if not taken:
                deadline = self._deadline()
            with frame:
                current = self._plan_for(frame, current)
                picture = current.painter.paint(downloads.planes(frame))
                times = frame.pts_ns, frame.published_ns
            anew, life = life != self._feed.life, self._feed.life
            if not self._belt.put(_Picture(current, picture, *times, anew), current.painter.nbytes):
                return "stopped"
            self._skipped = self._feed.skipped
            taken += 1
            if taken == self._frames:
                return "frames"
        return "stopped"

    def _deadline(self) -> float:
        return math.inf if self._duration is None else time.monotonic() + self._duration

    def _plan_for(self, frame: Frame, current: Plan | None) -> Plan:
        shape = shape_of(frame)
        if current is not None and current.shape == shape:
            return current
        return plan(shape, self._codec, self._quality, on_gpu=frame.device != "cpu")

    # --- Writing ----------------------------------------------------------------------------------

    def _write(self) -> None:
        try:
            self._write_all()
        except BaseException as error:  # noqa: BLE001  told by `stop`
            self._fail(error)
        finally:
            self._belt.close(empty=True)
            self._taker.join()
            self._reel.abandon()
            self._ended = self._why
            self._report()
            self._tell()
            atexit.unregister(self.close)
            self._over.set()

    def _write_all(self) -> None:
        told = time.monotonic()
        while (item := self._belt.get()) is not None:
            how, picture, pts_ns, published_ns, anew = item
            self._reel.write(how, picture, pts_ns, published_ns, anew=anew, fps=self._feed.fps)
            if time.monotonic() - told >= _PROGRESS_SECONDS:
                told = time.monotonic()
                self._report()
        self._reel.finish()

    def _report(self) -> None:
        if self._on_progress is not None:
            try:
                self._on_progress(self.info)
            except BaseException as error:  # noqa: BLE001  told by `stop`
                self._fail(error)
                self._ended = self._ended and "failed"

    def _tell(self) -> None:
        """Log, once, what it came to."""
        info = self.info
        _log.info(
            "%s: %d frames, %.1f s, %d bytes, by %s; %s",
            self._path, info.frames, info.seconds, info.nbytes, info.encoder, info.ended,
        )  # fmt: skip
        if info.skipped:
            _log.warning(
                "%s: %d of the stream's frames are not in the film: they came faster than they "
                "were taken or encoded",
                self._path,
                info.skipped,
            )


def record(
    source: str | os.PathLike[str] | Subscriber,
    path: str | os.PathLike[str],
    *,
    codec: str = "auto",
    duration: float | None = None,
    frames: int | None = None,
    quality: int | None = None,
    on_progress: Callable[[RecordingInfo], object] | None = None,
) -> RecordingInfo:
    """Record a stream into a film, and return when that is done.

    Parameters
    ----------
    source, path, codec, duration, frames, quality, on_progress
        As :class:`cuframes_nb.Recording`, which does it in the background. Without `duration` and
        `frames` it records until the stream ends or an interrupt (Ctrl-C, the stop button) comes.

    Returns
    -------
    RecordingInfo
        What it came to.

    Raises
    ------
    CuframesError, OSError
        As :class:`cuframes_nb.Recording` and its `stop`.
    KeyboardInterrupt
        If it is interrupted before `duration` or `frames` is reached. The file is finished before.
        Where there is no limit, an interrupt is how a recording ends, and it returns.
    """
    recording = Recording(
        source, path, codec=codec, duration=duration, frames=frames, quality=quality,
        on_progress=on_progress,
    )  # fmt: skip
    try:
        recording.wait()
    except KeyboardInterrupt:
        recording._end("interrupted")  # noqa: SLF001  of this module
        if duration is not None or frames is not None:
            raise
    except BaseException:
        recording.close()
        raise
    return recording.stop()


def _seconds(duration: Any) -> float | None:
    if duration is None:
        return None
    is_number = isinstance(duration, int | float) and not isinstance(duration, bool)
    if not is_number or not 0 < duration < math.inf:
        raise InvalidArgumentError(
            f"duration is {duration!r}; it must be a number of seconds above 0, or None"
        )
    return float(duration)


def _count(frames: Any) -> int | None:
    if frames is None:
        return None
    if not isinstance(frames, int) or isinstance(frames, bool) or frames < 1:
        raise InvalidArgumentError(f"frames is {frames!r}; it must be 1 or more, or None")
    return frames


def _function(on_progress: Any) -> Any:
    if on_progress is not None and not callable(on_progress):
        raise InvalidArgumentError(f"on_progress is {on_progress!r}; it must be a function")
    return on_progress
