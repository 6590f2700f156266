"""How soon a thread that computes in Python lets the others go on.

For each picture the viewer's thread and the one that sends need the interpreter about eight times,
and each time a cell that computes may keep it for `sys.getswitchinterval`, 5 ms. That is longer
than a picture takes. Much shorter turns cost the cell itself hardly anything: it gives the
interpreter away only if another thread asks for it.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from typing import Final

__all__ = ["short_turns"]

_SHORT: Final = 0.001
"""Seconds; benchmarks.md, "The live view"."""


class _Turns:
    """The length of turns, which is the whole process's: short while anybody needs that."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._before: float | None = None  # None if it is not ours to put back

    def begin(self) -> None:
        with self._lock:
            self._users += 1
            if self._users == 1 and (now := sys.getswitchinterval()) > _SHORT:
                self._before = now
                sys.setswitchinterval(_SHORT)

    def end(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users or self._before is None:
                return
            before, self._before = self._before, None
            if _is_short(sys.getswitchinterval()):  # or else somebody has set it meanwhile
                sys.setswitchinterval(before)


_turns: Final = _Turns()


@contextlib.contextmanager
def short_turns() -> Iterator[None]:
    """Make turns short for as long as this lasts, on any thread.

    Afterwards they are as long as before, unless somebody else has set them meanwhile.
    """
    _turns.begin()
    try:
        yield
    finally:
        _turns.end()


def _is_short(seconds: float) -> bool:
    return abs(seconds - _SHORT) < 1e-6  # the interpreter keeps whole microseconds
