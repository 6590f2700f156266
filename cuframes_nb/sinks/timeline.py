"""When each frame is shown, in the ticks of a file."""

from __future__ import annotations

from typing import Final

__all__ = ["Timeline"]

_SECOND_NS: Final = 1_000_000_000

_STALE_NS: Final = _SECOND_NS
"""A first frame that is older than this was on show before the recording began."""


class Timeline:
    """Turns the frames' times into ticks: the first at 0, each after the one before.

    Times are the frames' own (`pts_ns`), and their distances are kept. Two things cannot be:

    * A frame that is not after the one before is put one tick behind it, and counted.
    * A clock that starts anew (the publisher did, or the times went back by more than a second)
      goes on from where the frames' times of publication say, which are those of one clock for all
      processes of a machine.

    Parameters
    ----------
    ticks
        A second's.
    started_ns
        When the recording began (:func:`cuframes_nb.now_ns`). A frame that was published long
        before is shown from then on, not from when it was published.
    """

    def __init__(self, ticks: int, started_ns: int) -> None:
        self._ticks = ticks
        self._started_ns = started_ns
        self._origin_ns: int | None = None
        self._at_ns = self._published_ns = 0
        self.last = -1  #: tick of the newest frame
        self.retimed = 0  #: frames that were put behind another

    @property
    def seconds(self) -> float:
        """From the first frame to the newest."""
        return max(0, self.last) / self._ticks

    def place(self, pts_ns: int, published_ns: int, *, anew: bool) -> int:
        """Return the tick of a frame.

        Parameters
        ----------
        pts_ns, published_ns
            The frame's times.
        anew
            Whether its publisher is another than that of the frame before.
        """
        if self._origin_ns is None:
            waited_ns = self._started_ns - published_ns
            self._origin_ns = pts_ns + (waited_ns if waited_ns > _STALE_NS else 0)
        elif anew or pts_ns - self._origin_ns < self._at_ns - _SECOND_NS:
            since_ns = max(0, published_ns - self._published_ns)
            self._origin_ns = pts_ns - (self._at_ns + since_ns)
        at_ns = max(0, pts_ns - self._origin_ns)
        tick = (at_ns * self._ticks + _SECOND_NS // 2) // _SECOND_NS
        if tick <= self.last:
            tick = self.last + 1
            self.retimed += 1
        else:
            self._at_ns = at_ns
        self._published_ns = published_ns
        self.last = tick
        return tick
