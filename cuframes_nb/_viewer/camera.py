"""One stream of a view: its subscription, what is made of its frames, and the one on screen."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from cuframes_nb._api.frame import Frame
from cuframes_nb._api.subscribe import subscribe
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._core.clock import now_ns
from cuframes_nb._viewer import shapes
from cuframes_nb._viewer.images import DevicePixels, Pixels, on_host, shown_pixels
from cuframes_nb._viewer.picture import (
    Drawn,
    Rect,
    Scaler,
    Size,
    aligned,
    fitted,
    resized,
    rgb_pixels,
)
from cuframes_nb.errors import (
    CuframesError,
    FrameTimeout,
    LeaseLimitError,
    PublisherGoneError,
    StreamNotFoundError,
)

__all__ = ["Camera", "Shot"]

_RETRY_SECONDS: Final = 0.5
_RATE_SECONDS: Final = 1.0
_HISTOGRAM_SECONDS: Final = 0.5
_PEEK_SECONDS: Final = 0.2
_HOLDS: Final = 2
"""Frames that a view holds at once: the one on screen and the one that replaces it."""
_TEXT: Final = 4000
"""Of an error, the last so many characters are shown."""
_NOTHING: Final[Pixels] = np.empty((0, 0), np.uint8)
_KEPT: Final = "the functions of this view keep frames: keep frame.copy()"


class Shot(NamedTuple):
    """One frame as it goes to the page."""

    camera: Camera
    frame: Frame
    drawn: Drawn
    size: Size
    roi: Rect
    shapes: list[dict[str, Any]] | None

    def encoded(self) -> Shot:
        """Return it without its pixels, which may keep the frame's slot."""
        return self._replace(drawn=_NOTHING)


class _Made(NamedTuple):
    """What the user's functions made of a frame."""

    key: tuple[int, int]
    pixels: Pixels | DevicePixels | None
    shapes: list[dict[str, Any]] | None


class Camera:
    """A stream that is looked at; used by the view's thread alone.

    Parameters
    ----------
    source
        What `subscribe` takes, or a subscriber, which stays its owner's.
    name
        For people.
    process, overlay
        As `view` has them.

    Attributes
    ----------
    roi : tuple or None
        What is shown of the frame: x, y, width, height.
    shown : Frame or None
        The frame on screen.
    """

    def __init__(
        self,
        source: Any,
        name: str,
        process: Callable[[Frame], Any] | None,
        overlay: Callable[[Frame], Any] | None,
    ) -> None:
        self.name = name
        self._process = process
        self._overlay = overlay
        self._made: _Made | None = None
        self.roi: Rect | None = None
        self.shown: Frame | None = None
        self._source = source
        self._subscriber: Subscriber | None = source if isinstance(source, Subscriber) else None
        self._retry_at = self._histogram_at = 0.0
        self._text = "waiting for the stream"
        self._failed = False
        self._faults: dict[str, dict[str, Any]] = {}
        self._times: deque[tuple[int, int]] = deque()

    @property
    def address(self) -> Any:
        """What `subscribe` takes to subscribe to the stream once more."""
        return self._source.address if isinstance(self._source, Subscriber) else self._source

    # --- Frames -----------------------------------------------------------------------------------

    def take(self, seconds: float) -> Frame | None:
        """Return the next frame not yet seen, waiting for it at most so long; None without one."""
        subscriber = self._connected()
        if subscriber is None:
            time.sleep(seconds)
            return None
        try:
            # Who has nothing on screen wants a frame that was seen before, too.
            frame = subscriber.latest() if self.shown is None else None
            if frame is None:
                frame = subscriber.next(timeout=seconds)
        except FrameTimeout:
            return None
        except LeaseLimitError:
            self.fail("process", _KEPT, name="kept")
        except (CuframesError, OSError) as error:
            self._lose(error)
        else:
            self._note(frame)
            return frame
        time.sleep(seconds)  # it will be the same at once
        return None

    def peek(self, look: Callable[[Frame], bytes]) -> bytes | None:
        """Return what `look` makes of the newest frame, None without one; on any thread.

        A stream that is there but has no frame yet is waited for a moment.

        Raises
        ------
        CuframesError
            If there is no stream, or no frame came.
        """
        if isinstance(self._source, Subscriber):
            shown = self.shown
            return None if shown is None or shown.released else look(shown)
        with (
            subscribe(self._source, timeout=0, name="view") as subscriber,
            subscriber.latest() or subscriber.next(timeout=_PEEK_SECONDS) as frame,
        ):
            return look(frame)

    def histogram_due(self) -> bool:
        """Whether it is time for a histogram again; then it counts as made."""
        now = time.monotonic()
        if now < self._histogram_at:
            return False
        self._histogram_at = now + _HISTOGRAM_SECONDS
        return True

    def show(self, frame: Frame) -> None:
        """Keep `frame` as the one on screen instead of the one before."""
        kept = self._kept(frame)
        if self.shown is not None:
            self.shown.release()
        self.shown = kept

    def recent(self) -> list[Frame]:
        """Return frames to step through, the oldest first: those in the ring and the one shown."""
        shown, subscriber = self.shown, self._subscriber
        if shown is None:
            return []
        frames: list[Frame] = []
        if subscriber is not None:
            with contextlib.suppress(CuframesError, OSError):
                frames = subscriber.recent()
        others = [self._kept(frame) for frame in frames if _key(frame) != _key(shown)]
        return sorted([*others, shown], key=_when)

    # --- Pictures ---------------------------------------------------------------------------------

    def draw(self, frame: Frame, scaler: Scaler, room: Size | None, scale: float) -> Shot:
        """Make the picture that goes to the page."""
        roi = aligned(self.roi, frame.width, frame.height)
        made = self._make(frame)
        if made.pixels is None:
            size = fitted(roi[2:], room, scale)
            drawn = scaler.frame(frame, roi, size)
        else:
            pixels = _cut(made.pixels, roi, frame)
            size = fitted(_size(pixels), room, scale)
            drawn = scaler.pixels(pixels, size)
        return Shot(self, frame, drawn, size, roi, made.shapes)

    def still(self, frame: Frame, room: Size | None) -> tuple[Shot, Pixels]:
        """Make the same picture exactly: RGB or gray, smaller than the source only to fit."""
        roi = aligned(self.roi, frame.width, frame.height)
        made = self._make(frame)
        if made.pixels is None:
            pixels = rgb_pixels(frame, roi, None)
        else:
            pixels = np.ascontiguousarray(_cut(on_host(made.pixels), roi, frame))
        size = fitted(_size(pixels), room, 1.0)
        pixels = resized(pixels, size)
        return Shot(self, frame, pixels, size, roi, made.shapes), pixels

    def full(self, frame: Frame) -> Pixels:
        """Return the picture in its full size."""
        made = self._make(frame)
        return rgb_pixels(frame, None, None) if made.pixels is None else on_host(made.pixels)

    def set_functions(
        self, process: Callable[[Frame], Any] | None, overlay: Callable[[Frame], Any] | None
    ) -> None:
        """Use these from the next picture on, and forget what went wrong in those before."""
        self._process, self._overlay = process, overlay
        self._made = None
        self._faults.clear()

    def fail(self, where: str, text: str, *, name: str | None = None) -> None:
        """Note what went wrong in a function of the user's, or by it."""
        name = name or where
        count = self._faults.get(name, {"count": 0})["count"] + 1
        said = text[-_TEXT:].encode(errors="replace").decode()
        self._faults[name] = {"where": where, "text": said, "count": count}

    # --- What is known ----------------------------------------------------------------------------

    def status(self) -> dict[str, Any]:
        """Return what the read-out shows."""
        subscriber = self._subscriber
        if subscriber is not None and subscriber.closed:
            text = "the subscriber was closed"
            return {"name": self.name, "state": "closed", "text": text, **self._errors()}
        if subscriber is None:
            state = "error" if self._failed else "waiting"
            return {"name": self.name, "state": state, "text": self._text, **self._errors()}
        info, stats = subscriber.info, subscriber.stats
        why = {"live": "", "stalled": "no frame comes"}.get(info.state, "the publisher is away")
        return {
            "name": self.name, "state": "error" if self._failed else info.state,
            "text": self._text if self._failed else why,
            "width": info.width, "height": info.height, "format": str(info.format),
            "color": f"{info.color.matrix} {info.color.range}"
            + (" (assumed)" if info.color.assumed else ""),
            "memory": info.memory, "device": info.device, "fps": self.fps,
            "dropped": info.dropped, "skipped": stats.skipped, **self._errors(),
        }  # fmt: skip

    @property
    def fps(self) -> float | None:
        """Frames published each second, over the last one; None before that is known."""
        if len(self._times) < 2 or now_ns() - self._times[-1][1] > 2 * _RATE_SECONDS * 1e9:
            return None
        (first, since), (last, until) = self._times[0], self._times[-1]
        return round((last - first) / (until - since) * 1e9, 1) if until > since else None

    def rest(self) -> None:
        """Hold no frame and no subscription until there is something to look at again."""
        self.let_go()
        if self._subscriber is not None and self._subscriber is not self._source:
            self._subscriber.close()
            self._subscriber = None
        self._retry_at = 0.0

    # --- Inside -----------------------------------------------------------------------------------

    def _connected(self) -> Subscriber | None:
        if self._subscriber is not None and not self._subscriber.closed:
            return self._subscriber
        if self._subscriber is not None and self._subscriber is self._source:
            return None
        if time.monotonic() < self._retry_at:
            return None
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        try:
            self._subscriber = subscribe(self._source, timeout=0, name="view")
        except StreamNotFoundError as error:
            self._text, self._failed = str(error), False
        except (CuframesError, OSError) as error:
            self._text, self._failed = str(error), True
        else:
            self._failed = False
            self._times.clear()
        return self._subscriber

    def _lose(self, error: CuframesError | OSError) -> None:
        self._text, self._failed = str(error), not isinstance(error, PublisherGoneError)
        if self._subscriber is not self._source and self._subscriber is not None:
            self._subscriber.close()
            self._subscriber = None
        self._retry_at = time.monotonic() + _RETRY_SECONDS

    def let_go(self) -> None:
        """Give up the frame on screen."""
        if self.shown is not None:
            self.shown.release()
            self.shown = None
        self._made = None  # it may be a view of the frame

    def _kept(self, frame: Frame) -> Frame:
        """Return a frame as it can be kept: a copy, if to hold it would keep the next one away."""
        subscriber = self._subscriber
        if subscriber is None or subscriber.stats.lease_limit >= _HOLDS:
            return frame
        with frame:
            copy = frame.copy()
            if copy.device != "cpu":  # on the current stream, which pictures do not wait for
                copy.xp.cuda.get_current_stream().synchronize()
            return copy

    def _note(self, frame: Frame) -> None:
        self._failed = False
        self._faults.pop("kept", None)
        times, seen = self._times, _key(frame)
        if times and seen == times[-1]:
            return
        if times and frame.seq <= times[-1][0]:
            times.clear()  # another publisher
        times.append(seen)
        while times[-1][1] - times[0][1] > _RATE_SECONDS * 1e9:
            times.popleft()

    def _make(self, frame: Frame) -> _Made:
        """Return what the user's functions make of a frame; once for each frame."""
        if self._made is None or self._made.key != _key(frame):
            pixels = self._call("process", self._process, shown_pixels, frame)
            drawn = self._call("overlay", self._overlay, shapes.as_json, frame)
            self._made = _Made(_key(frame), pixels, drawn)
        return self._made

    def _call(
        self,
        where: str,
        function: Callable[[Frame], Any] | None,
        convert: Callable[[Any], Any],
        frame: Frame,
    ) -> Any:
        """Return what a user's function returned, converted; None if it failed."""
        if function is None:
            return None
        try:
            return convert(function(frame))
        except Exception:  # noqa: BLE001  the user's function: it is shown to the user
            self.fail(where, traceback.format_exc(limit=-8))
            return None

    def _errors(self) -> dict[str, Any]:
        return {"error": next(iter(self._faults.values()), None)}


def _key(frame: Frame) -> tuple[int, int]:
    """Return what no other frame has, of this publisher or one before."""
    return (frame.seq, frame.published_ns)


def _when(frame: Frame) -> int:
    return frame.published_ns


def _size(pixels: Pixels | DevicePixels) -> Size:
    return (pixels.shape[1], pixels.shape[0])


def _cut(pixels: Pixels | DevicePixels, roi: Rect, frame: Frame) -> Any:
    """Return of a processed picture, whatever its size, what lies in `roi` of the frame."""
    height, width = pixels.shape[:2]
    across, down = width / frame.width, height / frame.height
    left, top = int(roi[0] * across), int(roi[1] * down)
    right, bottom = round((roi[0] + roi[2]) * across), round((roi[1] + roi[3]) * down)
    return pixels[top : max(bottom, top + 1), left : max(right, left + 1)]
