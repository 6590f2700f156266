"""Which slot the publisher may write next."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

__all__ = ["SlotBook"]

_DISCARDED: Final = 1 << 63
"""Set in the completion value of a slot that was given back unpublished, so that it differs from
every sequence number."""


class SlotBook:
    """The publisher's own account of its slots. Knows nothing of locks, memory or GPUs.

    A slot is free, being written, or holds a frame. The completion value that a slot is to show
    before it may be written again is part of the account: until then the GPU may still be at work
    on it.

    Parameters
    ----------
    count
        Number of slots.
    next_seq
        Sequence number of the next frame to be published.
    """

    def __init__(self, count: int, next_seq: int = 1) -> None:
        self.next_seq = next_seq
        self._seqs = [0] * count
        self._expected = [0] * count
        self._oldest_first = list(range(count))
        self._newest: int | None = None
        self._discards = 0

    def candidates(self, passed: int | None = None) -> Iterator[int]:
        """Yield the slots that may be written, the oldest content first.

        The newest frame is never among them, so that there is always one to read.

        Parameters
        ----------
        passed
            If given, only slots whose frame has at most this sequence number.
        """
        for slot in self._oldest_first:
            if slot != self._newest and (passed is None or self._seqs[slot] <= passed):
                yield slot

    def expected(self, slot: int) -> int:
        """Return the completion value by which the slot's previous work has ended."""
        return self._expected[slot]

    def seq(self, slot: int) -> int:
        """Return the slot's sequence number, 0 if it holds no frame."""
        return self._seqs[slot]

    @property
    def writing(self) -> list[int]:
        """The slots that are being written."""
        return [slot for slot in range(len(self._seqs)) if slot not in self._oldest_first]

    @property
    def is_writing(self) -> bool:
        """Whether any slot is being written."""
        return len(self._oldest_first) < len(self._seqs)

    def is_taken(self, slot: int) -> bool:
        """Whether the slot is being written."""
        return slot not in self._oldest_first

    def begin(self, slot: int) -> None:
        """Note that the slot is being written."""
        self._oldest_first.remove(slot)
        self._seqs[slot] = 0

    def publish(self, slot: int) -> int:
        """Note that the slot is published and return its sequence number."""
        seq = self.next_seq
        self.next_seq += 1
        self._seqs[slot] = self._expected[slot] = seq
        self._oldest_first.append(slot)
        self._newest = slot
        return seq

    def discard_value(self) -> int:
        """Return the completion value of the slot that is given back unpublished next."""
        return _DISCARDED | (self._discards + 1)

    def discard(self, slot: int) -> int:
        """Note that the slot is given back unpublished and return its completion value.

        Also right for a slot whose publishing was interrupted at any point.
        """
        self._expected[slot] = self.discard_value()
        self._discards += 1
        self._seqs[slot] = 0
        if slot in self._oldest_first:
            self._oldest_first.remove(slot)
        if slot == self._newest:
            self._newest = None
        self._oldest_first.insert(0, slot)
        return self._expected[slot]
