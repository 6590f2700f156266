"""Which of the user's buffers are on loan to subscribers, in this process.

A ring on the user's own memory is in this book from its beginning until nobody can read it any
more, which may be after its publisher was closed. Until then the book keeps the buffers alive,
and no other ring may have the same bytes.
"""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Final

from cuframes_nb._os.forks import close_in_child
from cuframes_nb._runtime.ring import Ring
from cuframes_nb._wire.control import RingState
from cuframes_nb.errors import InUseError

__all__ = ["LOANS", "Loans", "PassedBy", "end_ring"]

_GRACE_SECONDS: Final = 1.0
"""How long frames stay readable that were left in a ring which ended, for those who are slow."""

_LOOK_AGAIN_SECONDS: Final = 0.02
"""A lease that ends makes no sound."""

PassedBy = Callable[[], int | None]
"""Tells up to which frame every subscriber has come that takes them in order; None without any."""


class _Ending:
    """A ring that has ended and that somebody may still read."""

    def __init__(self, ring: Ring, passed: PassedBy, grace: float) -> None:
        self.ring = ring
        self.passed = passed
        self.patience = time.monotonic() + grace

    def settle(self, passed: int | None) -> bool:
        """Take back what can be taken back by now; return whether that is all of it."""
        if time.monotonic() < self.patience:
            return False
        left = [slot for slot in range(self.ring.slots) if not self.ring.reclaim(slot, passed)]
        return not left


class Loans:
    """The book of a process.

    A publisher may be collected, and its ring end, between any two instructions of any thread: so
    the mutex can be taken again by its holder, lists are replaced rather than changed, and nothing
    that belongs to a publisher or a user is called or dropped while it is held.
    """

    def __init__(self) -> None:
        self._mutex = threading.RLock()
        self._live: tuple[weakref.ref[Ring], ...] = ()
        self._ending: tuple[_Ending, ...] = ()
        self._thread: threading.Thread | None = None
        close_in_child(self)

    def begin(self, ring: Ring, before: Ring | None, passed: int | None) -> None:
        """Note a new ring, if no other has any of its bytes.

        Parameters
        ----------
        ring
            On the user's memory.
        before
            The epoch before, which may have the same bytes where nobody reads them: it gives them
            up.
        passed
            Up to which frame those have come who take each in order; None without any.

        Raises
        ------
        InUseError
            If somebody reads them, or they belong to another publisher; nothing was changed.
        """
        with self._mutex:
            for other in [ref() for ref in self._live]:
                if other is None or other is before:
                    continue
                for number, _ in _shared(ring, other):
                    raise InUseError(
                        f"buffer {number} is one of another publisher in this process, too: close "
                        f"that one first, or publish copies with pub.write(array)"
                    )
            old: list[tuple[Ring, int | None]] = [(ending.ring, None) for ending in self._ending]
            if before is not None:
                old.append((before, passed))
            _take_over(ring, old)
            self._live = (*self._live, weakref.ref(ring))

    def end(self, ring: Ring, passed: PassedBy, *, reachable: bool) -> None:
        """Note that a ring was closed, and keep it until nobody can read it.

        Parameters
        ----------
        ring
            Closed by its publisher.
        passed
            Asked again and again, while frames are left; see `PassedBy`.
        reachable
            Whether subscribers may still come to take what is left in it.
        """
        ending = _Ending(ring, passed, _GRACE_SECONDS if reachable else 0.0)
        now_passed = passed()
        with self._mutex:
            self._live = tuple(ref for ref in self._live if ref() not in {None, ring})
            if ending.settle(now_passed):
                gone = [ring.let_go()]
            else:
                gone = []
                self._ending = (*self._ending, ending)
                self._start()
        gone.clear()

    def try_free(self, ring: Ring, slot: int) -> bool:
        """Take a slot back from a ring that has ended; return whether it is."""
        with self._mutex:
            return ring.gone or ring.reclaim(slot, None)

    def find(self, address: int) -> tuple[Ring, int] | None:
        """Return the ring that has ended, and its slot, whose buffer begins at an address."""
        for ending in self._ending:
            if address in ending.ring.addresses:
                return ending.ring, ending.ring.addresses.index(address)
        return None

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="cuframes-loans", daemon=True)
            with contextlib.suppress(RuntimeError):  # at the interpreter's end nothing starts
                self._thread.start()

    def _watch(self) -> None:
        while True:
            time.sleep(_LOOK_AGAIN_SECONDS)
            passed = {ending: ending.passed() for ending in self._ending}
            with self._mutex:
                over = [e for e in self._ending if e in passed and e.settle(passed[e])]
                gone = [ending.ring.let_go() for ending in over]
                self._ending = tuple(e for e in self._ending if e not in over)
                if not self._ending:
                    self._thread = None
            passed.clear()
            over.clear()
            gone.clear()  # here the buffers go, if nobody else has them
            if self._thread is not threading.current_thread():
                return

    def _abandon(self) -> None:
        # The child has no such thread, and the parent's may have held the mutex. The buffers are
        # the parent's to free, so nothing is let go.
        self._inherited = (self._live, self._ending)
        self._mutex = threading.RLock()
        self._live = self._ending = ()
        self._thread = None


def _shared(ring: Ring, other: Ring) -> Iterator[tuple[int, int]]:
    """Yield which slots of two rings have bytes in common."""
    if other.gone:
        return
    for number, span in enumerate(ring.spans):
        for slot, taken in enumerate(other.spans):
            if span.overlaps(taken):
                yield number, slot


def _take_over(ring: Ring, others: list[tuple[Ring, int | None]]) -> None:
    """Take back the slots of older rings whose bytes a new one is to have: all of them, or none."""
    wanted = [
        (number, old, slot, passed) for old, passed in others for number, slot in _shared(ring, old)
    ]
    for act in (Ring.is_idle, Ring.reclaim):
        for number, old, slot, passed in wanted:
            if not act(old, slot, passed):
                raise InUseError(
                    f"buffer {number} is still being read, as a frame that was published before: "
                    f"wait_free() of its publisher waits for that"
                )


LOANS: Final = Loans()


def end_ring(ring: Ring, state: RingState, passed: PassedBy, *, reachable: bool) -> None:
    """Close a ring; what lies in the user's memory is kept until nobody can read it."""
    ring.close(state)
    if ring.is_external:
        LOANS.end(ring, passed, reachable=reachable)
