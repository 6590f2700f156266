"""A subscriber's leases: which slots it may read, and until when.

Giving back must work from a finalizer, on any thread and at any point of any code, so it only posts
a note. Whoever holds the mutex, or gets it, settles the notes; nobody ever waits for it in a
finalizer, and no note is left behind (see `LeaseTable._settle`).
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.locks import ReadLock
from cuframes_nb._wire.control import LOCK_STRIDE

__all__ = ["Lease", "LeaseTable"]


class LeaseTable:
    """The read locks that one subscriber holds in one epoch.

    Several leases on one slot share its lock, which is released with the last of them.

    Parameters
    ----------
    fd
        This subscriber's own open file description of the control block.
    index
        The lock byte that the publisher gave to this subscriber.
    slots
        How many slots there are.
    on_idle
        Called, with the table's mutex held, when the table was retired and the last lease is back.
    """

    def __init__(self, fd: OwnedFd, index: int, slots: int, on_idle: Callable[[], None]) -> None:
        self._fd = fd
        self._locks = [ReadLock(slot * LOCK_STRIDE + index, 1) for slot in range(slots)]
        self._counts = [0] * slots
        self.held = 0  #: how many slots are leased
        self._on_idle: Callable[[], None] | None = on_idle
        self._mutex = threading.Lock()
        self._notes: deque[int] = deque()
        self._retired = False

    def take(self, slot: int) -> bool:
        """Take a lease on `slot`; False if the publisher is writing it."""
        with self._mutex:
            taken = self._counts[slot] > 0
            if not taken and self._locks[slot].try_acquire(self._fd.fileno()):
                self.held += 1
                taken = True
            self._counts[slot] += taken
        if self._notes:
            self._settle()
        return taken

    def give_back(self, slot: int) -> None:
        """Give one lease on `slot` back; never waits, and may be called from a finalizer."""
        self._notes.append(slot)
        self._settle()

    def holds(self, slot: int) -> bool:
        """Whether a lease on `slot` is out."""
        return self._counts[slot] > 0

    def retire(self) -> None:
        """Hand out no more; close when the last lease is back."""
        with self._mutex:
            self._retired = True
            self._fd.let_drop()  # leases may end in a garbage cycle, in any order
            self._close_if_idle()
        self._settle()

    def _settle(self) -> None:
        # A note posted while somebody else holds the mutex is theirs to settle: they look again
        # after they let go, and whoever posted after that look gets the mutex.
        while self._notes and self._mutex.acquire(blocking=False):
            try:
                while self._notes:
                    self._unlock(self._notes.popleft())
                self._close_if_idle()
            finally:
                self._mutex.release()

    def _unlock(self, slot: int) -> None:
        self._counts[slot] -= 1
        if not self._counts[slot]:
            self.held -= 1
            if not self._fd.closed:  # in a forked child it is, and the lock is the parent's
                self._locks[slot].release(self._fd.fileno())

    def _close_if_idle(self) -> None:
        if self._retired and not self.held and self._on_idle is not None:
            on_idle, self._on_idle = self._on_idle, None  # it holds us
            on_idle()


class Lease:
    """The right to read one slot, for as long as this object lives.

    Frames and arrays hold it; when the last of them goes, the slot goes back.
    """

    __slots__ = ("__weakref__", "_slot", "_table")

    def __init__(self, table: LeaseTable, slot: int) -> None:
        # The lease exists once the lock is held: `table.take(slot)` returned True.
        self._table = table
        self._slot = slot

    def touch(self) -> None:
        """Note that the frame's own claim ends here; only GPU leases care."""

    def record_stream(self, stream: object) -> None:
        """Note that work on `stream` reads the slot; only GPU leases care."""

    def __del__(self) -> None:
        self._table.give_back(self._slot)
