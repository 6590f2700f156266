"""One epoch of a publisher: its slots, their memory, and who may touch them when."""

from __future__ import annotations

import contextlib
import dataclasses
import time
import warnings
from typing import Final

from cuframes_nb._core.clock import now_ns
from cuframes_nb._core.slots import SlotBook
from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.locks import WriteLock, conflicting_lock
from cuframes_nb._os.memfd import create_sealed, reopen_read_only
from cuframes_nb._runtime.backend import CompletionWriter
from cuframes_nb._runtime.ring_memory import RingMemory
from cuframes_nb._views.lasting import LastingPlanes
from cuframes_nb._wire.control import (
    CONTROL_NBYTES,
    LOCK_STRIDE,
    ControlWriter,
    RingState,
)
from cuframes_nb._wire.messages import (
    ArenaDescription,
    Epoch,
    Policy,
    RingDescription,
    SlotPlace,
)
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import CuframesWarning

__all__ = ["Ring"]

_SETTLE_SECONDS: Final = 5.0


class Ring:
    """The slots of one epoch, as their only writer sees them.

    Not thread-safe: its publisher serialises the calls.

    Parameters
    ----------
    memory
        Where the frames lie; it belongs to this object from now on, whatever happens.
    color, fps, policy
        What the frames are.
    epoch
        Number of this epoch.
    before
        The epoch before, whose counts go on; None for the first.
    """

    def __init__(
        self,
        memory: RingMemory,
        *,
        color: ColorSpec,
        fps: float,
        policy: Policy,
        epoch: int,
        before: Ring | None = None,
    ) -> None:
        backend, layout, slots = memory.backend, memory.layout, len(memory.places)
        self.layout = layout
        self.slots = slots
        self.is_external = memory.is_external
        self.addresses, self.spans = memory.addresses, memory.spans
        with contextlib.ExitStack() as undo:
            undo.callback(memory.close)
            self._fd, self._mapping = create_sealed("control", CONTROL_NBYTES)
            undo.callback(self._fd.close)
            undo.callback(self._mapping.close)
            self.control = ControlWriter(self._mapping.view(), epoch)
            undo.callback(self.control.close)
            self._completion: CompletionWriter = backend.completion(self.control, self._mapping)
            undo.callback(self._completion.close)
            self.description = RingDescription(
                layout,
                color,
                fps,
                policy,
                self._completion.method,
                tuple(_described(arena, external=memory.is_external) for arena in memory.arenas),
                memory.places,
            )
            self._planes = [
                _planes(memory, place, self.description.arenas[place.arena].data_offset)
                for place in memory.places
            ]
            undo.pop_all()
        self.memory = memory
        self._book = SlotBook(slots, before.next_seq if before else 1)
        if before:
            self.control.carry_over(before.control.published, before.control.dropped)
        self._locks = [WriteLock(slot * LOCK_STRIDE, LOCK_STRIDE) for slot in range(slots)]
        self.message = Epoch(epoch, CONTROL_NBYTES, self.description)
        self._closed = False
        self.gone = False  #: whether nothing is left but numbers

    @property
    def epoch(self) -> int:
        """Number of this epoch."""
        return self.message.epoch

    @property
    def completion_reason(self) -> str:
        """Why completion is told the way it is."""
        return self._completion.reason

    @property
    def next_seq(self) -> int:
        """Sequence number of the next frame to be published."""
        return self._book.next_seq

    def planes(self, slot: int) -> LastingPlanes:
        """Return what makes arrays on `slot`, which keep the memory mapped."""
        return self._planes[slot]

    def try_acquire(self, passed: int | None) -> int | None:
        """Take a slot for writing, or return None if there is none; never wait.

        Parameters
        ----------
        passed
            If given, frames with a greater sequence number are not overwritten.
        """
        fd = self._fd.fileno()
        book, control = self._book, self.control
        for slot in book.candidates(passed):
            settled = control.completed(slot) == book.expected(slot)
            if settled and self._locks[slot].try_acquire(fd):
                book.begin(slot)
                control.withdraw(slot)
                return slot
        return None

    def try_take(self, slot: int, passed: int | None) -> bool:
        """Take one slot for writing, the newest too, if nobody is at work on it; never wait.

        Parameters
        ----------
        slot
            Which one; not one that is being written.
        passed
            As `try_acquire`.
        """
        if not self._is_done(slot, passed) or not self._locks[slot].try_acquire(self._fd.fileno()):
            return False
        self._book.begin(slot)
        self.control.withdraw(slot)
        return True

    def is_idle(self, slot: int, passed: int | None) -> bool:
        """Whether `reclaim` would succeed, as far as can be seen."""
        if self._book.is_taken(slot):
            return True
        start = slot * LOCK_STRIDE
        locked = conflicting_lock(self._fd.fileno(), start, LOCK_STRIDE) is not None
        return self._is_done(slot, passed) and not locked

    def reclaim(self, slot: int, passed: int | None) -> bool:
        """Take a slot for good, unless somebody is at work on it; True if it was taken before."""
        return self._book.is_taken(slot) or self.try_take(slot, passed)

    def is_taken(self, slot: int) -> bool:
        """Whether the slot is acquired, and not published or discarded yet."""
        return self._book.is_taken(slot)

    def is_unfinished(self, slot: int) -> bool:
        """Whether the GPU is still to complete the slot's last frame."""
        return self.control.completed(slot) != self._book.expected(slot)

    def is_ahead(self, slot: int, passed: int | None) -> bool:
        """Whether the slot has a frame that somebody has yet to take who takes each in order."""
        return passed is not None and self._book.seq(slot) > passed

    def _is_done(self, slot: int, passed: int | None) -> bool:
        return not self.is_ahead(slot, passed) and not self.is_unfinished(slot)

    def publish(self, slot: int, pts_ns: int | None, stream: object | None) -> int:
        """Give the slot to the subscribers, complete once the work on `stream` is.

        Returns
        -------
        int
            The frame's sequence number.
        """
        now = now_ns()
        book, control = self._book, self.control
        seq = book.next_seq
        record = (seq, now if pts_ns is None else pts_ns, now)
        # First what can fail: then nothing has changed, and the slot can still be discarded.
        self._completion.complete(slot, seq, stream)
        control.write_record(slot, record)
        book.publish(slot)
        self._locks[slot].release(self._fd.fileno())
        # Announced only now, so that no reader runs into the lock.
        control.announce(slot, record)
        return seq

    def discard(self, slot: int, stream: object | None) -> None:
        """Take the slot back unpublished, free once the work on `stream` is done."""
        self._completion.complete(slot, self._book.discard_value(), stream)
        self.control.withdraw(slot)
        self._book.discard(slot)
        self._locks[slot].release(self._fd.fileno())

    @property
    def writing(self) -> list[int]:
        """The slots that are acquired, and not published or discarded yet."""
        return self._book.writing

    @property
    def is_writing(self) -> bool:
        """Whether there are any."""
        return self._book.is_writing

    @property
    def slots_unfinished(self) -> int:
        """How many slots the GPU has still work on."""
        return sum(
            self.control.completed(slot) != self._book.expected(slot)
            for slot in self._book.candidates()
        )

    def export(self) -> list[OwnedFd]:
        """Return the descriptors of an `Epoch` message; the caller closes them once sent."""
        with contextlib.ExitStack() as undo:
            fds = [reopen_read_only(self._fd)]
            undo.callback(close_all, fds)
            for arena, told in zip(self.memory.arenas, self.description.arenas, strict=True):
                if told.has_fd:
                    fds.append(arena.export())
            undo.pop_all()
        return fds

    def leases_of(self, index: int) -> int:
        """Return how many slots the subscriber with that index holds."""
        fd = self._fd.fileno()
        return sum(
            conflicting_lock(fd, slot * LOCK_STRIDE + index, 1) is not None
            for slot in range(self.slots)
        )

    def slots_leased(self) -> int:
        """Return how many slots are being read."""
        fd = self._fd.fileno()
        return sum(
            conflicting_lock(fd, slot * LOCK_STRIDE, LOCK_STRIDE) is not None
            for slot in range(self.slots)
        )

    def close(self, state: RingState) -> None:
        """End this epoch, once.

        The pixels stay where they are for the subscribers that map them, and for the arrays that
        the user of this process still has. What the user made is kept until `let_go`.
        """
        if self._closed:
            return
        self._closed = True
        self.control.set_state(state)
        self.memory.close()
        if not self.is_external:  # by whose locks it is seen whether somebody still reads
            self._fd.close()
        settled = self._settle()
        if not settled:
            warnings.warn(
                f"the GPU did not finish writing within {_SETTLE_SECONDS:g} s of closing: the "
                f"ring's memory is kept rather than pulled from under it",
                CuframesWarning,
                stacklevel=2,
            )
        if self.is_external:
            return
        if settled:
            self.let_go()
        else:
            _kept.append(self)

    def let_go(self) -> object:
        """Give back all that a closed ring still has.

        Returns
        -------
        object
            The pixels, unmapped with it or with the last array that the user has.
        """
        self.gone = True
        self._fd.close()
        self._completion.close()
        self.control.close()
        self._mapping.close()
        pixels = (self.memory, self._planes)
        self._planes = []
        del self.memory
        return pixels

    def _settle(self) -> bool:
        """Wait until the GPU has left every slot; False if it does not."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while any(
            self.control.completed(slot) != self._book.expected(slot) for slot in range(self.slots)
        ):
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.001)
        return True


def _described(arena: Arena, *, external: bool) -> ArenaDescription:
    return dataclasses.replace(arena.describe(), external=external)


def _planes(memory: RingMemory, place: SlotPlace, data_offset: int) -> LastingPlanes:
    arena, layout = memory.arenas[place.arena], memory.layout
    source = memory.backend.planes(arena, data_offset + place.offset, layout)
    return LastingPlanes(source, arena, len(layout.planes))


_kept: list[Ring] = []
"""Rings whose memory the GPU may still be writing."""
