"""Frames on their way from a connection's thread to whoever reads them."""

from __future__ import annotations

import contextlib
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from cuframes_nb._runtime.leases import Hold, Lease
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._wire.control import Record
from cuframes_nb._wire.messages import RingDescription
from cuframes_nb.bridges.gst.ledger import Ledger
from cuframes_nb.bridges.gst.memory import FrameHold
from cuframes_nb.errors import (
    ClosedError,
    CuframesError,
    LeaseLimitError,
    PublisherGoneError,
)

__all__ = ["LEASE_LIMIT", "Arrival", "Facts", "Inbox"]

LEASE_LIMIT: Final = 8
"""Frames that one subscriber may hold. The protocol has no limit: the pipeline would go on
allocating GPU memory for somebody who forgets to release."""


class Facts(NamedTuple):
    """What is known about a pipeline's frames."""

    ring: RingDescription
    epoch: int  #: counts the caps of one pipeline
    pid: int
    reason: str  #: how the memory is mapped, for people


class Arrival(NamedTuple):
    """A frame that was received and is held."""

    facts: Facts
    record: Record
    planes: PlaneSource
    hold: FrameHold
    ledger: Ledger[FrameHold]


class _Out(NamedTuple):
    """A frame that was handed out: its lease goes with the last array, its hold with the work."""

    lease: weakref.ref[Lease]
    hold: weakref.ref[Hold]


class Inbox:
    """What one thread receives and others take.

    Frames that were not taken wait here, the oldest first; one too many pushes the oldest out.

    Parameters
    ----------
    name
        The stream, for messages.
    depth
        How many wait.

    Attributes
    ----------
    changed : threading.Condition
        Held for each look at the rest, notified at each change.
    closing : bool
        Nobody takes any more. Set without holding anything, also by finalizers.
    facts : Facts or None
        Of the newest frame that ever came.
    connected : bool
        Whether a pipeline is there.
    connects, received, skipped, arrived : int
        Pipelines reached; frames taken; frames pushed out; frames of the current pipeline.
    """

    def __init__(self, name: str, depth: int) -> None:
        self._name = name
        self._waiting: deque[Arrival] = deque()
        self._depth = depth
        self._newest: Arrival | None = None
        self._out: list[_Out] = []
        self._error: CuframesError | None = None
        self._gone: PublisherGoneError | None = None
        self._is_over = False
        self._listeners: set[Callable[[], None]] = set()
        self.changed = threading.Condition()
        self.closing = False
        self.facts: Facts | None = None
        self.connected = False
        self.connects = self.received = self.skipped = self.arrived = 0
        self.last_ns = 0

    # --- For the connection's thread --------------------------------------------------------------

    def put(self, arrival: Arrival) -> None:
        """Add a frame."""
        with self._change():
            if not self.connected:
                self.connected = True
                self.connects += 1
                self.arrived = 0
            self.facts, self._newest = arrival.facts, arrival
            self._error = self._gone = None
            self.arrived += 1
            self.last_ns = arrival.record.published_ns
            self._waiting.append(arrival)
            if len(self._waiting) > self._depth:
                self._waiting.popleft()
                self.skipped += 1

    def lose(self, gone: PublisherGoneError, *, keep: bool) -> None:
        """Note that the pipeline is gone; what waits is kept, where its memory is."""
        with self._change():
            if self.connected or self._gone is None:  # else it is only another attempt
                self._gone = gone
            self._let_go(everything=not keep)

    def fail(self, error: CuframesError) -> None:
        """Note an error, which the next who finds no frame is told, once."""
        with self._change():
            self._error = error
            self._let_go(everything=True)

    def clear(self) -> None:
        """Hold nothing any more."""
        with self._change():
            self._let_go(everything=True)

    def end(self) -> None:
        """Note that nothing will come any more."""
        with self._change():
            self._is_over = True
            self.connected = False

    def poke(self) -> None:
        """Have whoever waits look again."""
        with self._change():
            pass

    # --- For readers, who hold `changed` ----------------------------------------------------------

    def take(self, *, newest: bool) -> tuple[Arrival, Lease] | None:
        """Return the oldest frame that waits, or the newest, seen or not; None if there is none.

        Raises
        ------
        ClosedError, PublisherGoneError, CuframesError
            If there is none because of that.
        LeaseLimitError
            If as many are held as may be.
        """
        if self.closing:
            raise ClosedError(f"the subscriber of stream {self._name!r} was closed")
        arrival = self._newest if newest else None
        if arrival is None and self._waiting:
            arrival = self._waiting[-1 if newest else 0]
        if arrival is None:
            self.check()
            return None
        if not self._may_take():
            return None
        self._forget(arrival)
        lease = arrival.hold.memory.lease(arrival.ledger, arrival.record.seq, arrival.hold)
        self._out.append(_Out(weakref.ref(lease), weakref.ref(arrival.hold)))
        self.received += 1
        return arrival, lease

    def check(self) -> None:
        """Raise what is to be told to somebody who finds no frame.

        Raises
        ------
        CuframesError
            An error that nobody was told yet.
        PublisherGoneError
            If the pipeline is gone and none is waited for.
        """
        error, self._error = self._error, None
        if error is not None:
            raise _as_new(error)
        if self._is_over:
            raise _as_new(
                self._gone
                or PublisherGoneError("the connection ended with an error before: subscribe anew")
            )

    def wait(self, seconds: float | None) -> None:
        """Wait for a change."""
        self.changed.wait(seconds)

    @property
    def held(self) -> int:
        """Frames that were handed out and are not given back."""
        self._out = [out for out in self._out if out.hold() is not None]
        return len(self._out)

    @property
    def waiting(self) -> list[Arrival]:
        """The frames that wait, the oldest first, or the newest if all were taken."""
        return list(self._waiting) or ([] if self._newest is None else [self._newest])

    @property
    def why(self) -> str:
        """Why nothing comes, for the end of a sentence."""
        return "" if self._gone is None else f": {self._gone}"

    @contextlib.contextmanager
    def listening(self, listener: Callable[[], None]) -> Iterator[None]:
        """Call `listener`, on whichever thread, at each change during a block."""
        with self.changed:
            self._listeners.add(listener)
        try:
            yield
        finally:
            with self.changed:
                self._listeners.discard(listener)

    # --- Inside -----------------------------------------------------------------------------------

    def _may_take(self) -> bool:
        """Whether one more may be held; one that only waits for the GPU is waited for."""
        if self.held < LEASE_LIMIT:
            return True
        if sum(out.lease() is not None for out in self._out) < LEASE_LIMIT:
            return False
        raise LeaseLimitError(
            f"this subscriber holds {LEASE_LIMIT} frames of stream {self._name!r}, the most it "
            f"may: release frames and drop arrays on them, or keep frame.copy() instead"
        )

    def _forget(self, arrival: Arrival) -> None:
        """Let go of a frame that is taken, and of those before it."""
        while self._waiting:
            if self._waiting.popleft() is arrival:
                return
            self.skipped += 1

    def _let_go(self, *, everything: bool) -> None:
        self.connected = False
        self._newest = None
        if everything:
            self._waiting.clear()

    @contextlib.contextmanager
    def _change(self) -> Iterator[None]:
        with self.changed:
            yield
            self.changed.notify_all()
            for listener in self._listeners:
                listener()


def _as_new(error: CuframesError) -> CuframesError:
    """Return an error that was kept, to be raised: it may be told to several."""
    return type(error)(*error.args)
