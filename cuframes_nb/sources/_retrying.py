"""When to try again, and what time a frame that arrives was taken at. Pure."""

from __future__ import annotations

from typing import Final

__all__ = ["Backoff", "LiveClock"]

_FIRST_SECONDS: Final = 0.5
_LONGEST_SECONDS: Final = 15.0

_WINDOW_NS: Final = 5_000_000_000
"""Clocks drift: what was the fastest arrival so long ago, at most twice, says no more."""

_JUMP_NS: Final = 10_000_000_000
"""No frame is so much later than another on its way: the camera's clock was set."""


class Backoff:
    """Waits twice as long from failure to failure, up to fifteen seconds."""

    def __init__(self) -> None:
        self._seconds = _FIRST_SECONDS

    def next(self) -> float:
        """Return for how many seconds to wait before the next try."""
        seconds = self._seconds
        self._seconds = min(2 * seconds, _LONGEST_SECONDS)
        return seconds

    def reset(self) -> None:
        """Begin again: it went well."""
        self._seconds = _FIRST_SECONDS


class LiveClock:
    """Maps a camera's times to ours.

    How long a frame was on its way is not known, but the one that came fastest lately tells by how
    much the clocks differ; so a frame that was held up keeps its distance to the one before.
    """

    def __init__(self) -> None:
        self._least: int | None = None  # difference of the clocks, and in this window and the last
        self._windows = (0, 0)
        self._window_began = 0
        self._last = 0

    def map(self, at_ns: int | None, arrived_ns: int) -> int:
        """Return when a frame was taken, in our time: rising, and never after it arrived.

        Parameters
        ----------
        at_ns
            The camera's time of the frame, None if it has none.
        arrived_ns
            When it came, in our time.
        """
        if at_ns is None:
            self._last = max(self._last + 1, arrived_ns)
            return self._last
        apart = arrived_ns - at_ns
        if self._least is None or abs(apart - self._least) > _JUMP_NS:
            self._windows, self._window_began = (apart, apart), arrived_ns
        elif arrived_ns - self._window_began > _WINDOW_NS:
            self._windows, self._window_began = (self._windows[1], apart), arrived_ns
        else:
            self._windows = (self._windows[0], min(self._windows[1], apart))
        self._least = min(self._windows)
        self._last = max(self._last + 1, at_ns + self._least)
        return self._last
