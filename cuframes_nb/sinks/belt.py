"""What waits between the thread that takes frames and the one that writes them."""

from __future__ import annotations

import collections
import threading
from typing import Generic, TypeVar

__all__ = ["Belt"]

_T = TypeVar("_T")


class Belt(Generic[_T]):
    """A queue that is bounded by the bytes of what is in it.

    Parameters
    ----------
    room
        Bytes that may wait; one item always may.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self._changed = threading.Condition()
        self._items: collections.deque[tuple[_T, int]] = collections.deque()
        self._bytes = 0
        self._closed = False

    def put(self, item: _T, nbytes: int) -> bool:
        """Append `item`, waiting for room; return False if nobody takes it any more."""
        with self._changed:
            while self._items and self._bytes + nbytes > self._room and not self._closed:
                self._changed.wait()
            if self._closed:
                return False
            self._items.append((item, nbytes))
            self._bytes += nbytes
            self._changed.notify_all()
            return True

    def get(self) -> _T | None:
        """Return the oldest item, waiting for it; None once the belt is closed and empty."""
        with self._changed:
            while not self._items and not self._closed:
                self._changed.wait()
            if not self._items:
                return None
            item, nbytes = self._items.popleft()
            self._bytes -= nbytes
            self._changed.notify_all()
            return item

    def close(self, *, empty: bool = False) -> None:
        """Let nothing more in; with `empty`, throw away what waits. Idempotent."""
        with self._changed:
            self._closed = True
            if empty:
                self._items.clear()
                self._bytes = 0
            self._changed.notify_all()
