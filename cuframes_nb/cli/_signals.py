"""Ctrl-C, for a command that has other processes to bring home."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any, Final, Self

__all__ = ["Interrupts", "deaf_children"]

_NUMBERS: Final = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Notes the first SIGINT or SIGTERM instead of raising; the second raises.

    Use it as a context manager, on the main thread.
    """

    def __init__(self) -> None:
        self.came = False
        self._before: dict[int, Any] = {}

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._note) for number in _NUMBERS}
        return self

    def __exit__(self, *exc_info: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        del number, frame
        if self.came:
            raise KeyboardInterrupt
        self.came = True


@contextlib.contextmanager
def deaf_children() -> Iterator[None]:
    """Have processes started in this block ignore Ctrl-C: their parent tells them when to end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
