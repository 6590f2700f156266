"""A subscriber's leases: which slots it may read, and until when.

Who holds a slot is not counted but seen: a `Hold` lives as long as somebody reads, and the table
only knows it weakly. So nothing has to be undone step by step, and an interrupt (Ctrl-C, a
notebook's stop button) between any two steps, also in a finalizer, leaves nothing behind that the
next look does not put right.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.locks import ReadLock
from cuframes_nb._wire.control import LOCK_STRIDE

__all__ = ["Hold", "Lease", "LeaseTable"]


class Hold:
    """Lives as long as a slot is being read."""

    __slots__ = ("__weakref__",)


class LeaseTable:
    """The read locks that one subscriber holds in one epoch.

    Several holds on one slot share its lock, which is released after the last of them.

    Parameters
    ----------
    fd
        This subscriber's own open file description of the control block.
    index
        The lock byte that the publisher gave to this subscriber.
    slots
        How many slots there are.
    on_idle
        Called, with the table's mutex held, when the table was retired and the last hold is gone.
    """

    def __init__(self, fd: OwnedFd, index: int, slots: int, on_idle: Callable[[], None]) -> None:
        self._fd = fd
        self._pid = os.getpid()
        self._locks = [ReadLock(slot * LOCK_STRIDE + index, 1) for slot in range(slots)]
        self._holds: list[list[weakref.ref[Hold]]] = [[] for _ in range(slots)]
        # True from before the lock is taken until after it is released: "perhaps locked".
        self._locked = [False] * slots
        self._on_idle: Callable[[], None] | None = on_idle
        # Reentrant: a finalizer may come in the midst of what follows, on the same thread. What it
        # changes is only ever recomputed, so that does no harm.
        self._mutex = threading.RLock()
        self._retired = False

    @property
    def held(self) -> int:
        """How many slots are leased."""
        return self._locked.count(True)

    def take(self, slot: int) -> Hold | None:
        """Return a hold on `slot`, or None if the publisher is writing it."""
        hold = Hold()
        with self._mutex:
            if True in self._locked:
                for other, locked in enumerate(self._locked):
                    if locked:
                        self._look(other)  # in case a finalizer was interrupted
            self._holds[slot].append(weakref.ref(hold))
            if not self._locked[slot]:
                self._locked[slot] = True
                if not self._locks[slot].try_acquire(self._fd.fileno()):
                    self._locked[slot] = False
                    self._holds[slot].clear()
                    return None
        return hold

    def settle(self, slot: int) -> None:
        """Release the slot's lock if nobody holds it any more; may be called from a finalizer."""
        if os.getpid() != self._pid:
            return  # a forked child: the lock is its parent's, and so may be the mutex
        with self._mutex:
            self._look(slot)
            self._close_if_idle()

    def settle_all(self) -> None:
        """Do so for every slot: if a finalizer was interrupted, this makes up for it."""
        with self._mutex:
            for slot in range(len(self._locks)):
                self._look(slot)

    def holds(self, slot: int) -> bool:
        """Whether `slot` is leased."""
        return self._locked[slot]

    def retire(self) -> None:
        """Hand out no more; close when the last hold is gone."""
        with self._mutex:
            self._retired = True
            self._fd.let_drop()  # holds may end in a garbage cycle, in any order
            self.settle_all()
            self._close_if_idle()

    def _look(self, slot: int) -> None:
        holds = [hold for hold in self._holds[slot] if hold() is not None]
        self._holds[slot] = holds
        if not holds and self._locked[slot]:
            if not self._fd.closed:
                self._locks[slot].release(self._fd.fileno())
            self._locked[slot] = False

    def _close_if_idle(self) -> None:
        if self._retired and not any(self._locked) and self._on_idle is not None:
            on_idle, self._on_idle = self._on_idle, None  # it holds us
            on_idle()


class Lease:
    """The right to read one slot, for as long as this object lives.

    Frames and arrays hold it; when the last of them goes, the slot goes back.

    Parameters
    ----------
    table
        Where the slot goes back.
    slot
        Which one.
    hold
        From ``table.take(slot)``.
    """

    __slots__ = ("__weakref__", "_hold", "_slot", "_table")

    def __init__(self, table: LeaseTable, slot: int, hold: Hold) -> None:
        self._table = table
        self._slot = slot
        self._hold: Hold | None = hold

    def touch(self) -> None:
        """Note that the frame's own claim ends here; only GPU leases care."""

    def record_stream(self, stream: object) -> None:
        """Note that work on `stream` reads the slot; only GPU leases care."""

    def __del__(self) -> None:
        self._hold = None
        self._table.settle(self._slot)
