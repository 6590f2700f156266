"""Which frames of a connection are held, and which may be given back."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from cuframes_nb._os.forks import close_in_child
from cuframes_nb._runtime.leases import Hold

__all__ = ["Ledger"]

_H = TypeVar("_H", bound=Hold)


class Ledger(Generic[_H]):
    """The frames that were taken from one connection and not given back.

    Who holds a frame is seen, not counted: a `Hold` lives as long as somebody reads, and the ledger
    knows it weakly. Only the connection's thread looks; whoever lets go just wakes it. So a
    finalizer on any thread touches neither a lock nor the connection.

    Parameters
    ----------
    wake
        Wakes the connection's thread; never waits.

    Attributes
    ----------
    inherited
        Whether this is a forked child, which has nothing to give back.
    """

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._held: dict[int, tuple[weakref.ref[_H], bytes]] = {}
        self.inherited = False
        close_in_child(self)

    def __len__(self) -> int:
        return len(self._held)

    def enter(self, number: int, hold: _H, token: bytes) -> None:
        """Note that frame `number` is held as long as `hold` lives."""
        self._held[number] = (weakref.ref(hold), token)

    def settle(self, number: int) -> None:
        """Have somebody look whether frame `number` is still held; from any thread or finalizer."""
        del number  # the thread looks at all of them
        if not self.inherited:
            self._wake()

    def give_back(self) -> Iterator[bytes]:
        """Yield the tokens of frames that nobody holds any more, which are then forgotten."""
        for number, (hold, token) in list(self._held.items()):
            if hold() is None:
                del self._held[number]
                yield token

    def holds(self) -> Iterator[_H]:
        """Yield those that live."""
        for hold, _ in self._held.values():
            if (alive := hold()) is not None:
                yield alive

    def _abandon(self) -> None:
        self.inherited = True
