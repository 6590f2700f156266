"""When the next frame is likely to come."""

from __future__ import annotations

from typing import Final

__all__ = ["Cadence"]

_WEIGHT: Final = 0.125
"""Of the newest period in the running mean: a change of rate is followed within some ten frames."""


class Cadence:
    """The rhythm of a stream, from when its frames were published.

    Parameters
    ----------
    spin_ns
        For how long before and after the expected moment to look without sleeping.
    """

    __slots__ = ("_last_ns", "_period_ns", "_seq", "_spin_ns")

    def __init__(self, spin_ns: int) -> None:
        self._spin_ns = spin_ns
        self._seq = self._last_ns = 0
        self._period_ns = 0.0

    def note(self, seq: int, published_ns: int) -> None:
        """Note that a frame was published."""
        frames = seq - self._seq
        if self._seq and frames > 0:
            period = (published_ns - self._last_ns) / frames
            before = self._period_ns
            self._period_ns = period if not before else before + _WEIGHT * (period - before)
        else:  # the first, or that of another publisher
            self._period_ns = 0.0
        self._seq, self._last_ns = seq, published_ns

    def plan(self, now_ns: int) -> tuple[float, float]:
        """Return for how many seconds to sleep, and for how many then to look without sleeping.

        The second is 0 while no rhythm is known, or when the frame is overdue.
        """
        if self._period_ns <= 0:
            return 0.0, 0.0
        expected = self._last_ns + self._period_ns
        start = max(now_ns, expected - self._spin_ns)
        spin = expected + self._spin_ns - start
        return (start - now_ns) / 1e9, max(0.0, spin) / 1e9
