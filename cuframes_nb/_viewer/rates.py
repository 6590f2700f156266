"""Holding a rate, and telling one."""

from __future__ import annotations

from collections import deque
from typing import Final

__all__ = ["Meter", "Throttle"]

_SECOND_US: Final = 1_000_000


class Throttle:
    """Holds sending to bytes and messages a second, on average.

    Sizes and arrivals of pictures vary, so both may run ahead a little and then wait for longer.
    """

    _AHEAD_US: Final = 30_000

    def __init__(self, bytes_per_s: float, fps: float | None) -> None:
        self._bytes_per_s = bytes_per_s
        self._fps = fps
        self._debt = 0.0  # bytes that were sent ahead of the rate; negative for some that may be
        self._debt_at_us = 0
        self._message_us = 0

    def set(self, bytes_per_s: float, fps: float | None, now_us: int) -> None:
        """Change the rates; what was sent before is paid back at the greater of the two."""
        self._pay(now_us)
        self._debt *= min(1.0, bytes_per_s / self._bytes_per_s)
        self._bytes_per_s, self._fps = bytes_per_s, fps

    def next_us(self, now_us: int) -> int:
        """Return when the next message may go; `now_us` or earlier for now."""
        self._pay(now_us)
        return max(self._message_us, now_us + int(max(0.0, self._debt) * 1e6 / self._bytes_per_s))

    def sent(self, nbytes: int, now_us: int) -> None:
        """Note that a message goes out."""
        self._pay(now_us)
        self._debt += nbytes
        if self._fps is not None:
            every_us = 1e6 / self._fps
            self._message_us = int(max(self._message_us, now_us - every_us / 4) + every_us)

    def _pay(self, now_us: int) -> None:
        passed_us = max(0, now_us - self._debt_at_us)
        ahead = self._AHEAD_US * self._bytes_per_s / 1e6
        self._debt = max(self._debt - passed_us * self._bytes_per_s / 1e6, -ahead)
        self._debt_at_us += passed_us


class Meter:
    """What was sent in the last second."""

    def __init__(self) -> None:
        self._sent: deque[tuple[int, int]] = deque()
        self._nbytes = 0

    def sent(self, nbytes: int, now_us: int) -> None:
        """Note that a message goes out."""
        self._sent.append((now_us, nbytes))
        self._nbytes += nbytes
        self.tick(now_us)

    def tick(self, now_us: int) -> None:
        """Forget what is older than a second."""
        while self._sent and self._sent[0][0] <= now_us - _SECOND_US:
            self._nbytes -= self._sent.popleft()[1]

    @property
    def messages(self) -> int:
        """How many messages."""
        return len(self._sent)

    @property
    def nbytes(self) -> int:
        """How many bytes."""
        return self._nbytes
