"""Leases on GPU slots: given back when the GPU has read, without anybody waiting for it.

When the last reference to a lease goes, the streams that read the slot are asked. If they are idle
the slot goes back at once. Else an event is recorded behind their work, and one thread a GPU looks
until it has passed. No Python runs in a CUDA callback, which could not take the GIL without risk.
"""

from __future__ import annotations

import functools
import queue
import sys
import threading
import time
import warnings
from typing import Final

import cupy

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.driver import call
from cuframes_nb._cuda.streams import (
    PER_THREAD,
    Event,
    RelaxedCapture,
    is_capturing,
    is_idle,
    relax_this_thread,
    stream_handle,
)
from cuframes_nb._runtime.leases import Hold, Lease, LeaseTable
from cuframes_nb.errors import CudaError, CuframesWarning

__all__ = ["Releaser", "StreamLease", "releaser"]

_FIRST_LOOK_SECONDS: Final = 100e-6
_LAST_LOOK_SECONDS: Final = 1e-3

_current_stream: Final = cupy.cuda.get_current_stream


class _Pending:
    """A slot that some streams may still be reading."""

    __slots__ = ("events", "hold", "slot", "table")

    def __init__(
        self, table: LeaseTable, slot: int, hold: Hold | None, events: tuple[Event, ...] | None
    ) -> None:
        self.table = table
        self.slot = slot
        self.hold = hold
        self.events = events  #: None where events could not be recorded


class Releaser:
    """Keeps holds until the GPU has passed their events. One for each GPU, for ever."""

    def __init__(self, ordinal: int) -> None:
        self.ordinal = ordinal
        self._activated = activated(ordinal)
        # SimpleQueue.put may be called from a finalizer in the midst of another put.
        self._incoming: queue.SimpleQueue[_Pending] = queue.SimpleQueue()
        self._spare: queue.SimpleQueue[Event] = queue.SimpleQueue()
        # Its adding and discarding are atomic: a finalizer could not wait for a lock.
        self._waiting: set[_Pending] = set()
        threading.Thread(target=self._run, name=f"cuframes-releases-{ordinal}", daemon=True).start()

    def pending(self, table: LeaseTable) -> int:
        """Return how many leases of a table wait for the GPU."""
        return sum(pending.table is table for pending in list(self._waiting))

    def keep(
        self, table: LeaseTable, slot: int, hold: Hold | None, streams: dict[int, object | Event]
    ) -> bool:
        """Keep a hold until the work queued on `streams` is done; never waits.

        Parameters
        ----------
        table, slot, hold
            The lease.
        streams
            By handle, an event that was recorded already, or whatever keeps the stream alive.

        Returns
        -------
        bool
            False if all of it is done already, and so the hold was not kept.
        """
        try:
            with self._activated, RelaxedCapture():
                marks = self._marks(streams)
        except CudaError as error:
            # A stream that was destroyed, or a broken context: wait for the whole GPU instead.
            self._post(_Pending(table, slot, hold, None))
            warnings.warn(
                f"a stream that reads a frame could not be asked ({error}); its slot is kept until "
                f"the GPU is idle",
                CuframesWarning,
                stacklevel=2,
            )
            return True
        if marks:
            self._post(_Pending(table, slot, hold, tuple(marks)))
        return bool(marks)

    def _post(self, pending: _Pending) -> None:
        self._waiting.add(pending)
        self._incoming.put(pending)

    def mark(self, stream: int) -> Event:
        """Record an event behind the work queued on a stream now; the GPU must be current."""
        try:
            event = self._spare.get_nowait()
        except queue.Empty:
            event = Event()
        event.record(stream)
        return event

    def _marks(self, streams: dict[int, object | Event]) -> list[Event]:
        """Return what to wait for: an event for each stream that is not done."""
        marks = []
        for stream, kept in streams.items():
            mark = self._mark(stream, kept)
            if mark is not None:
                marks.append(mark)
        return marks

    def _mark(self, stream: int, kept: object | Event) -> Event | None:
        """Return an event to wait for, or None if the stream is done."""
        if isinstance(kept, Event):
            return None if kept.passed() else kept
        # A stream that captures runs nothing; what it records may run later, when it is nobody's
        # frame any more.
        return None if is_capturing(stream) or is_idle(stream) else self.mark(stream)

    def _run(self) -> None:
        waiting: list[_Pending] = []
        pause = _FIRST_LOOK_SECONDS
        relax_this_thread()
        while True:
            try:
                waiting.append(
                    self._incoming.get(timeout=pause) if waiting else self._incoming.get()
                )
                pause = _FIRST_LOOK_SECONDS
            except queue.Empty:
                pause = min(pause * 1.5, _LAST_LOOK_SECONDS)
            waiting = [pending for pending in waiting if not self._settle(pending)]

    def _settle(self, pending: _Pending) -> bool:
        """Give the slot back if the GPU has passed; False if not yet."""
        try:
            with self._activated:
                if pending.events is None:
                    call("cuCtxSynchronize")
                elif not all(event.passed() for event in pending.events):
                    return False
        except CudaError as error:
            if error.name not in _CONTEXT_IS_LOST:
                time.sleep(_LAST_LOOK_SECONDS)
                return False
            # Nothing runs on that GPU in this process any more, so nothing reads the slot.
        for event in pending.events or ():
            self._spare.put(event)
        self._waiting.discard(pending)
        pending.hold = None
        pending.table.settle(pending.slot)
        return True


_CONTEXT_IS_LOST: Final = {
    "CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_CONTEXT_IS_DESTROYED",
    "CUDA_ERROR_DEINITIALIZED", "CUDA_ERROR_ECC_UNCORRECTABLE", "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_INVALID_ADDRESS_SPACE", "CUDA_ERROR_INVALID_PC",
    "CUDA_ERROR_HARDWARE_STACK_ERROR", "CUDA_ERROR_ILLEGAL_INSTRUCTION",
}  # fmt: skip
"""Errors after which the context runs nothing any more ("sticky" errors, CUDA Driver API)."""


@functools.cache
def releaser(ordinal: int) -> Releaser:
    """Return the one releaser of a GPU."""
    return Releaser(ordinal)


class StreamLease(Lease):
    """The right to read one slot on a GPU."""

    __slots__ = ("_releaser", "_streams")

    def __init__(self, releaser: Releaser, table: LeaseTable, slot: int, hold: Hold) -> None:
        super().__init__(table, slot, hold)
        self._releaser = releaser
        # Handle to whatever keeps the stream alive until it is asked, or to an event.
        self._streams: dict[int, object | Event] = {}

    def touch(self) -> None:
        """Note that work on CuPy's current stream may read the slot."""
        stream = _current_stream(self._releaser.ordinal)
        handle = stream.ptr
        if handle == PER_THREAD:
            self.record_stream(handle)
        else:
            self._streams[handle] = stream

    def record_stream(self, stream: object) -> None:
        """Note that work on `stream` reads the slot."""
        handle = stream_handle(stream)
        if handle == PER_THREAD:
            # Another stream on each thread, and a finalizer may run on any: so it is marked now.
            with activated(self._releaser.ordinal):
                self._streams[handle] = self._releaser.mark(handle)
        else:
            self._streams[handle] = stream

    def __del__(self) -> None:
        if sys.is_finalizing() or self._table.inherited:
            return  # the kernel gives everything back; a forked child has nothing to give
        self.touch()
        if not self._releaser.keep(self._table, self._slot, self._hold, self._streams):
            self._hold = None
            self._table.settle(self._slot)
