"""A subscriber's leases: which slots it may read, and until when.

Who holds a slot is not counted but seen: a `Hold` lives as long as somebody reads, and the table
only knows it weakly. So nothing has to be undone step by step, and an interrupt (Ctrl-C, a
notebook's stop button) between any two steps, also in a finalizer, leaves nothing behind that the
next look does not put right.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeAlias

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.forks import close_in_child
from cuframes_nb._os.locks import ReadLock
from cuframes_nb._wire.control import LOCK_STRIDE

__all__ = ["Hold", "Lease", "LeaseMaker", "LeaseTable"]


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
    limit
        How many of them this subscriber may hold at a time.
    on_idle
        Called, with the table's mutex held, when the table was retired and the last hold is gone.

    Attributes
    ----------
    inherited
        Whether this is a forked child: the locks are its parent's, and so may be the mutex.
    """

    def __init__(
        self, fd: OwnedFd, index: int, slots: int, limit: int, on_idle: Callable[[], None]
    ) -> None:
        self.limit = limit
        self._fd = fd
        self.inherited = False
        self._locks = [ReadLock(slot * LOCK_STRIDE + index, 1) for slot in range(slots)]
        self._holds: list[list[weakref.ref[Hold]]] = [[] for _ in range(slots)]
        # True from before the lock is taken until after it is released: "perhaps locked".
        self._locked = [False] * slots
        self._on_idle: Callable[[], None] | None = on_idle
        # Reentrant: a finalizer may come in the midst of what follows, on the same thread. What it
        # changes is only ever recomputed, so that does no harm.
        self._mutex = threading.RLock()
        self._retired = False
        close_in_child(self)

    @property
    def held(self) -> int:
        """How many slots are leased."""
        return self._locked.count(True)

    def may_take(self, slot: int) -> bool:
        """Whether a lease on `slot` is within the limit."""
        if self._locked.count(True) < self.limit or self._locked[slot]:
            return True
        self.settle_all()
        return self.held < self.limit

    def take(self, slot: int) -> Hold | None:
        """Return a hold on `slot`, or None if the publisher is writing it."""
        hold = Hold()
        locked = self._locked
        with self._mutex:
            if True in locked:
                self._look_at_locked()  # in case a finalizer was interrupted
            self._holds[slot].append(weakref.ref(hold))
            if not locked[slot]:
                locked[slot] = True
                if not self._locks[slot].try_acquire(self._fd.fileno()):
                    locked[slot] = False
                    self._holds[slot].clear()
                    return None
        return hold

    def settle(self, slot: int) -> None:
        """Release the slot's lock if nobody holds it any more; may be called from a finalizer."""
        if self.inherited:
            return
        with self._mutex:
            self._look(slot)
            if self._retired:
                self._close_if_idle()

    def settle_all(self) -> None:
        """Do so for every slot: if a finalizer was interrupted, this makes up for it."""
        with self._mutex:
            self._look_at_locked()

    def retire(self) -> None:
        """Hand out no more; close when the last hold is gone."""
        with self._mutex:
            self._retired = True
            self._fd.let_drop()  # holds may end in a garbage cycle, in any order
            self.settle_all()
            self._close_if_idle()

    def _look_at_locked(self) -> None:
        for slot, locked in enumerate(self._locked):
            if locked:
                self._look(slot)

    def _look(self, slot: int) -> None:
        holds = self._holds[slot]
        for hold in holds:
            if hold() is not None:
                self._holds[slot] = [other for other in holds if other() is not None]
                return
        holds.clear()
        if self._locked[slot]:
            if not self._fd.closed:
                self._locks[slot].release(self._fd.fileno())
            self._locked[slot] = False

    def _abandon(self) -> None:
        self.inherited = True

    def _close_if_idle(self) -> None:
        if not any(self._locked) and self._on_idle is not None:
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


LeaseMaker: TypeAlias = Callable[[LeaseTable, int, Hold], Lease]
"""Makes the lease for a slot that was just taken."""
