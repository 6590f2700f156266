"""Cameras and other streams that happen now: RTSP, HTTP, V4L2, whatever FFmpeg opens."""

from __future__ import annotations

import contextlib
import errno
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from cuframes_nb._api.publisher import Publisher
from cuframes_nb._api.pyav import import_av
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb._core.clock import now_ns
from cuframes_nb.errors import (
    AccessDeniedError,
    ClosedError,
    InvalidArgumentError,
    UnsupportedError,
)
from cuframes_nb.sources._addresses import redacted, scheme_of, with_credentials
from cuframes_nb.sources._decoding import decode, frame_ns, rate_of, video_stream
from cuframes_nb.sources._nvdec import Coded, Nvdec, check_decoder
from cuframes_nb.sources._picture import Picture
from cuframes_nb.sources._retrying import Backoff, LiveClock
from cuframes_nb.sources.playing import Source

__all__ = ["LiveVideo"]

_log = logging.getLogger("cuframes_nb.sources")

_KEPT: Final = 2
"""Frames that wait for the player; of more, the oldest go."""
_NAP_SECONDS: Final = 0.1
"""How often who waits for a frame looks whether to stop."""
_JOIN_SECONDS: Final = 1.0
"""For a reader to end; one that waits for a camera's answer ends by itself, later."""
_TO_KNOW_RATE: Final = 5
"""Frames until it is known how many come in a second, if the camera does not say."""
_STEADY_SECONDS: Final = 10.0
"""A camera that was up for so long is tried again at once."""


class _Taken(NamedTuple):
    """A frame, and when it was taken."""

    pts_ns: int
    picture: Picture
    fps: float


class _RefusedError(Exception):
    """The camera answered, and trying again would not change what it says."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class LiveVideo(Source):
    """A camera or another live stream, as a source of frames.

    A thread reads and decodes; the newest frame is published at once. A camera that does not
    answer, or stops sending, is tried again after a while that doubles up to fifteen seconds, and
    its stream goes on, with the same subscribers, when frames come again. Meanwhile ``info.state``
    of the stream is ``"stalled"``.

    A frame's ``pts_ns`` is when it was taken, as far as that can be known: the camera's own time
    (RTP, V4L2), moved to ``CLOCK_MONOTONIC`` by the frame that arrived fastest lately.

    Parameters
    ----------
    where
        URL (``rtsp://``, ``http://``, ``udp://`` ...), or ``/dev/video0``, or the 0 of that. A user
        and password in it appear in no log, no error and no property.
    credentials
        User and password, instead of those in the URL.
    transport
        Of RTSP: ``"tcp"`` loses nothing, ``"udp"`` is a little earlier, and loses.
    timeout
        Seconds without an answer or a frame after which the connection is given up.
    retry
        Whether to try again. If not, a camera that goes ends the stream with an error.
    stream
        Which of its video streams, counted from 0.
    size, fps
        What a V4L2 camera is asked for; it may give something else.
    options
        Further options of FFmpeg, by name.
    decoder
        ``"gpu"``: NVDEC, or an error. ``"cpu"``: FFmpeg's own. ``"auto"``: NVDEC where the frames
        are published in that GPU's memory and it can decode the video. The camera is connected
        again for it.

    Attributes
    ----------
    decoded_by
        What decodes, for people.

    Raises
    ------
    InvalidArgumentError
        If a value is wrong.
    UnsupportedError
        If PyAV is not installed.

    Examples
    --------
    ::

        with LiveVideo("rtsp://192.168.1.20/stream1") as camera, camera.publisher("cam1") as pub:
            play(camera, pub)
    """

    is_live = True

    def __init__(
        self,
        where: str | int,
        *,
        credentials: tuple[str, str] | None = None,
        transport: str = "tcp",
        timeout: float = 10.0,
        retry: bool = True,
        stream: int = 0,
        size: tuple[int, int] | None = None,
        fps: float | None = None,
        options: Mapping[str, str] | None = None,
        decoder: str = "auto",
    ) -> None:
        self._av = import_av()
        check_decoder(decoder)
        if transport not in {"tcp", "udp"}:
            raise InvalidArgumentError(f"transport is {transport!r}; it is 'tcp' or 'udp'")
        if not (math.isfinite(timeout) and timeout > 0):
            raise InvalidArgumentError(f"timeout is {timeout!r}; it is a number of seconds")
        url = f"/dev/video{where}" if isinstance(where, int) else where
        self.label = redacted(url)
        self._url = url if credentials is None else with_credentials(url, *credentials)
        self._format, self._options = _how_to_open(url, transport, size, fps)
        self._options.update(options or {})
        self._timeout, self._retry, self._stream = timeout, retry, stream
        self.width = self.height = 0
        self.format, self.fps, self.color = "nv12", 0.0, None
        self._frames: deque[_Taken] = deque(maxlen=_KEPT)
        self._came = threading.Condition()
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None
        self._ended = False
        self._error: Exception | None = None
        self._skipped = self._failures = 0
        self._was_up = False
        self._decoder = decoder
        self._device: str | None = None  # where to decode, before that was tried
        self._nvdec: Nvdec | None = None
        self._is_moving = False

    # --- For its player ---------------------------------------------------------------------------

    def connect(
        self, timeout: float | None = None, *, stop: Callable[[], bool] = lambda: False
    ) -> bool:
        """Wait for the first frame, so that it is known what the frames are.

        Parameters
        ----------
        timeout
            Seconds, None for as long as it takes.
        stop
            Asked ten times a second.

        Returns
        -------
        bool
            False if `stop` said so first.

        Raises
        ------
        AccessDeniedError
            If the camera refuses user or password.
        InvalidArgumentError
            If there is no such stream, or no video in it.
        OSError
            If it cannot be reached within `timeout`, or at all with ``retry=False``.
        ClosedError
            After `close`.
        """
        self._start()
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while not stop():
            with self._came:
                if not self._frames and not self._ended:
                    self._came.wait(_NAP_SECONDS)
                if self._frames:
                    self._look_at(self._frames[0])
                    return True
            if self._ended:
                raise self._why() or OSError(errno.ENODATA, "it ended", self.label)
            if time.monotonic() >= deadline:
                raise self._why() or OSError(
                    errno.ETIMEDOUT, f"no frame within {timeout:g} s", self.label
                )
        return False

    def publisher(self, key: str, **options: Any) -> Publisher:
        """Return a publisher for these frames, when the first is there.

        `options` are those of :class:`cuframes_nb.Publisher`; errors are those of `connect`, which
        has the camera's `timeout` here, and again as long for the camera to send a frame.
        """
        if not self.width:
            self.connect(2 * self._timeout)
        return super().publisher(key, **options)

    def prepare(self, publisher: Publisher) -> None:
        """Decode where the publisher's frames are, if that is possible.

        If it is not, and the decoder was to be ``"gpu"``, `frames` raises `UnsupportedError`.
        """
        if self._decoder == "gpu" or (self._decoder == "auto" and publisher.device != "cpu"):
            self._device = publisher.device

    def frames(self) -> Iterator[tuple[int, Picture] | None]:
        """Yield each frame with its ``pts_ns``; None ten times a second while there is none.

        Raises
        ------
        OSError, CuframesError
            With ``retry=False``, when the camera goes; as `connect`.
        """
        self._start()
        while True:
            with self._came:
                if not self._frames and not self._ended:
                    self._came.wait(_NAP_SECONDS)
                taken = self._frames.popleft() if self._frames else None
            if taken is not None:
                self._look_at(taken)
                yield taken.pts_ns, taken.picture
            elif not self._ended:
                yield None
            elif (error := self._why()) is not None:
                raise error
            else:
                return

    def write(self, slot: WritableSlot, frame: Any) -> None:
        """Copy a decoded frame into `slot`, once."""
        frame.write(slot)

    @property
    def decoded_by(self) -> str:
        """What decodes it, for people."""
        nvdec = self._nvdec
        return "the CPU" if nvdec is None else nvdec.name

    @property
    def skipped(self) -> int:
        """Frames that were decoded and not published, since newer ones were there."""
        return self._skipped

    @property
    def failures(self) -> int:
        """How often there was no connection, or it broke."""
        return self._failures

    def close(self) -> None:
        """Let the camera go, once.

        A connection that waits for the camera ends by itself, at the latest after `timeout`.
        """
        self._stopping.set()
        with self._came:
            self._ended = True
            self._frames.clear()
            self._came.notify_all()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(_JOIN_SECONDS)

    def _start(self) -> None:
        if self._stopping.is_set():
            raise ClosedError(f"the source {self.label} was closed")
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="cuframes-camera", daemon=True)
            self._thread.start()

    def _look_at(self, taken: _Taken) -> None:
        picture = taken.picture
        self.width, self.height = picture.width, picture.height
        self.format, self.color, self.fps = picture.format, picture.color, taken.fps

    def _why(self) -> Exception | None:
        """Return the last error; without its traceback, which has the frames' variables."""
        return None if self._error is None else self._error.with_traceback(None)

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        backoff, clock = Backoff(), LiveClock()
        try:
            while not self._stopping.is_set():
                began = time.monotonic()
                try:
                    self._connection(clock)
                    self._error = None
                except _RefusedError as refused:
                    self._error = refused.error
                    if not self._was_up:
                        return
                except OSError as error:
                    self._error = error
                except Exception as error:  # noqa: BLE001  a mistake here is the player's to tell
                    self._error = error
                    return
                if self._is_moving:
                    self._is_moving = False
                    continue
                if self._stopping.is_set() or not self._retry:
                    return
                if time.monotonic() - began > _STEADY_SECONDS:
                    backoff.reset()
                self._failures += 1
                self._rest(backoff.next())
        finally:
            with self._came:
                self._ended = True
                self._came.notify_all()

    def _rest(self, seconds: float) -> None:
        why = self._error.strerror if isinstance(self._error, OSError) else self._error
        _log.warning("%s: %s; trying again in %g s", self.label, why or "the stream ended", seconds)
        self._stopping.wait(seconds)

    def _connection(self, clock: LiveClock) -> None:
        """Open the camera and take its frames until it ends."""
        open_ = self._av.open if self._nvdec is None else self._nvdec.open
        try:
            with open_(
                self._url,
                format=self._format,
                options=self._options,
                timeout=(self._timeout, self._timeout),
            ) as container:
                self._take(container, clock)
        except InvalidArgumentError as error:  # no video in it
            raise _RefusedError(error) from None
        except (self._av.error.FFmpegError, ValueError) as error:
            raise self._told(error) from None  # FFmpeg's has the URL with its password, so it goes

    def _told(self, error: Any) -> Exception:
        """Return FFmpeg's error as ours: `_RefusedError` where trying again would not help."""
        kinds, says = self._av.error, getattr(error, "strerror", error)
        if isinstance(error, kinds.ExitError):  # PyAV's way to say that its timeout is over
            text = f"no answer or frame within {self._timeout:g} s"
            return OSError(errno.ETIMEDOUT, text, self.label)
        if isinstance(error, kinds.HTTPUnauthorizedError | kinds.HTTPForbiddenError):
            text = f"{self.label} refuses this user or password: {says}"
            return _RefusedError(AccessDeniedError(text))
        if isinstance(error, FileNotFoundError | PermissionError):
            return _RefusedError(OSError(error.errno, says, self.label))
        # A camera that is stuck sends nothing, which is invalid data, too: that may change.
        final = (ValueError, LookupError, kinds.HTTPClientError)
        if isinstance(error, final) and not isinstance(error, kinds.InvalidDataError):
            return _RefusedError(InvalidArgumentError(f"{self.label} cannot be opened: {says}"))
        number = error.errno if isinstance(error, OSError) else errno.EIO
        return OSError(number, says, self.label)

    def _take(self, container: Any, clock: LiveClock) -> None:
        stream = video_stream(container, self._stream, self.label)
        # Threads that take a frame each would hold back as many frames as there are threads.
        stream.thread_type = "SLICE"
        has_times = container.format.name != "mpjpeg"  # it counts 25 a second, whatever comes
        fps = rate_of(stream) if has_times else 0.0
        times: list[int] = []
        with contextlib.closing(decode(container, stream, self.label)) as frames:
            for frame in frames:
                arrived = now_ns()
                if self._stopping.is_set() or self._moves(stream, frame):
                    return
                at_ns = frame_ns(frame) if has_times else None
                if not fps:
                    times.append(arrived if at_ns is None else at_ns)
                    if len(times) < _TO_KNOW_RATE:
                        continue
                    fps = _rate(times)
                if not self._was_up or self._error is not None:
                    _log.info("%s: frames come", self.label)
                self._was_up, self._error = True, None
                self._put(_Taken(clock.map(at_ns, arrived), Picture.of(frame, self._nvdec), fps))

    def _moves(self, stream: Any, frame: Any) -> bool:
        """Return whether to connect again, to decode on the publisher's GPU from then on."""
        device, self._device = self._device, None
        try:
            if device is not None:
                self._nvdec = Nvdec(device, Coded.of(stream, frame))
                self._is_moving = True
            elif self._nvdec is not None:
                self._nvdec.check(frame)
        except UnsupportedError as error:
            self._nvdec = None
            if self._decoder == "gpu":
                raise UnsupportedError(f"{self.label} is not decoded on a GPU: {error}") from None
            _log.info("%s: not decoded on the GPU: %s", self.label, error)
        return self._is_moving

    def _put(self, taken: _Taken) -> None:
        with self._came:
            if self._ended:
                return
            self._skipped += len(self._frames) == _KEPT
            self._frames.append(taken)
            self._came.notify_all()


def _how_to_open(
    url: str, transport: str, size: tuple[int, int] | None, fps: float | None
) -> tuple[str | None, dict[str, str]]:
    """Return FFmpeg's format, None if it is to find out, and its options."""
    scheme = scheme_of(url)
    if not scheme and url.startswith("/dev/"):
        asked = {"video_size": size and f"{size[0]}x{size[1]}", "framerate": fps and f"{fps:g}"}
        return "v4l2", {name: value for name, value in asked.items() if value}
    if size or fps:
        raise InvalidArgumentError("size and fps can be asked of a V4L2 camera only")
    options = {"fflags": "nobuffer"}  # what FFmpeg looks at first is not played late
    if scheme in {"rtsp", "rtsps"}:
        # The camera describes itself, so a tenth of a second (in microseconds) is enough to look.
        options |= {"rtsp_transport": transport, "analyzeduration": "100000"}
    return None, options


def _rate(times: list[int]) -> float:
    """Return frames a second, as people set them: of 29.6, 30."""
    seconds = (times[-1] - times[0]) / 1e9
    return float(max(1, round((len(times) - 1) / seconds))) if seconds > 0 else 0.0
