"""Publishing a source in real time, or as fast as it goes."""

from __future__ import annotations

import abc
import logging
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, Self

from cuframes_nb._api.publisher import Publisher
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb._core.clock import now_ns
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import FrameTimeout, RingFullError

__all__ = ["Pace", "Source", "play"]

_log = logging.getLogger("cuframes_nb.sources")

_NAP_SECONDS: Final = 0.1
"""How often a player that waits for a frame's time looks whether it shall stop."""

_LATE_NS: Final = 1_000_000_000
"""A player this late was stopped or asleep: it goes on from there rather than in fast forward."""


class Source(abc.ABC):
    """Makes frames for a publisher.

    Attributes
    ----------
    width, height
        Size of the frames to come, in pixels.
    format
        Their pixel format.
    fps
        Nominal frames per second, 0 if unknown.
    color
        What the code values mean, None if nobody says.
    is_live
        Whether frames are of the moment they are yielded at: they are published at once, and their
        times are those of ``CLOCK_MONOTONIC``.

    As a context manager it closes at the end of the block.
    """

    is_live: bool = False
    width: int
    height: int
    format: str
    fps: float
    color: ColorSpec | None

    @abc.abstractmethod
    def frames(self) -> Iterator[tuple[int, Any] | None]:
        """Yield each frame with its time in nanoseconds from the first.

        A source that waits yields None several times a second, so that its player may stop.
        """

    @abc.abstractmethod
    def write(self, slot: WritableSlot, frame: Any) -> None:
        """Write `frame`, the last that `frames` yielded, into `slot`."""

    def prepare(self, publisher: Publisher) -> None:  # noqa: B027  most are
        """Be told where the frames will go, before the first of them.

        A source that can make its frames where the publisher's memory is does so from now on.
        """

    def close(self) -> None:  # noqa: B027  most have nothing to let go of
        """Let go of what it holds, once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def publisher(self, key: str, **options: Any) -> Publisher:
        """Return a publisher for these frames; `options` are those of :class:`Publisher`."""
        return Publisher(key, **{**self._description(), **options})

    def fit(self, publisher: Publisher) -> None:
        """Start a new epoch if the frames to come are others than `publisher` has."""
        layout = publisher.layout
        color = self.color or ColorSpec.assume(self.height, yuv=layout.format.is_yuv)
        now = (layout.width, layout.height, layout.format, publisher.color)
        if now != (self.width, self.height, self.format, color):
            publisher.reconfigure(**{**self._description(), "color": color})
            _log.info("%s: now %dx%d %s", publisher.key, self.width, self.height, self.format)

    def _description(self) -> dict[str, Any]:
        return {
            "width": self.width,
            "height": self.height,
            "format": self.format,
            "fps": self.fps,
            "color": self.color,
        }


class Pace:
    """Says when each frame is due: a fixed schedule from the first one, so nothing drifts."""

    def __init__(self) -> None:
        self._start_ns: int | None = None

    def due_ns(self, at_ns: int, now: int) -> int:
        """Return when the frame of media time `at_ns` is due; never more than a second ago.

        Parameters
        ----------
        at_ns
            Nanoseconds from the first frame.
        now
            The time (:func:`cuframes_nb.now_ns`).
        """
        if self._start_ns is None or now - (self._start_ns + at_ns) > _LATE_NS:
            self._start_ns = now - at_ns
        return self._start_ns + at_ns


def play(
    source: Source,
    publisher: Publisher,
    *,
    fast: bool = False,
    stop: Callable[[], bool] = lambda: False,
) -> int:
    """Publish a source's frames until it ends.

    Each frame's ``pts_ns`` is the time at which it is due. A frame that finds no slot free is
    dropped and counted by the publisher; with the policy ``"strict-wait"`` it waits for one.

    Parameters
    ----------
    source
        What to play. A change of its size or colours starts a new epoch.
    publisher
        Where, for example from ``source.publisher("cam1")``.
    fast
        Not in real time but as fast as it goes; ``pts_ns`` is then the time of publishing. What is
        live comes when it comes.
    stop
        Asked between frames and at least ten times a second; playing ends once it says True.

    Returns
    -------
    int
        How many frames were published.
    """
    published = 0
    pace = Pace()
    source.prepare(publisher)
    frames = source.frames()
    try:
        for item in frames:
            if item is None:
                if stop():
                    break
                continue
            at_ns, frame = item
            pts_ns = None if fast else at_ns if source.is_live else pace.due_ns(at_ns, now_ns())
            if _sleep_until(0 if pts_ns is None or source.is_live else pts_ns, stop):
                break
            source.fit(publisher)
            slot = _acquire(publisher, stop)
            if slot is not None:
                with slot:
                    slot.pts_ns = pts_ns
                    source.write(slot, frame)
                published += 1
    finally:
        getattr(frames, "close", _nothing)()  # generators have it, other iterators need not
    _log.info("%s: played %d frames", publisher.key, published)
    return published


def _acquire(publisher: Publisher, stop: Callable[[], bool]) -> WritableSlot | None:
    """Return a slot, None if there is none free, or none came free before `stop` said so."""
    while True:
        try:
            return publisher.acquire(_NAP_SECONDS)
        except RingFullError as error:
            _log.debug("%s", error)
            return None
        except FrameTimeout:
            if stop():
                return None


def _sleep_until(due: int, stop: Callable[[], bool]) -> bool:
    """Wait until `due`; True if `stop` said so first."""
    while not stop():
        left = (due - now_ns()) / 1e9
        if left <= 0:
            return False
        time.sleep(min(left, _NAP_SECONDS))
    return True


def _nothing() -> None:
    """Close what cannot be closed."""
