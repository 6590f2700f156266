"""The control block: what the publisher writes for every frame and subscribers only read.

It is an array of 64-bit words in native byte order. Each is written and read whole (naturally
aligned 8-byte accesses), so a reader never sees half of one; a `memoryview` cast to ``Q`` does
that, while ``struct`` with a byte-order mark copies byte by byte and does not.

What orders them is not this module: a reader trusts a record only while it holds the slot's lock
(``docs/design/lifetime.md``).
"""

from __future__ import annotations

import enum
from typing import Final, NamedTuple

from cuframes_nb._wire.messages import MAX_SLOTS

__all__ = [
    "COMPLETIONS_OFFSET",
    "CONTROL_NBYTES",
    "LOCK_STRIDE",
    "ControlReader",
    "ControlWriter",
    "Record",
    "RingState",
]

MAGIC: Final = int.from_bytes(b"CFNBCTL1", "little")

CONTROL_NBYTES: Final = 8192
"""Bytes of the block."""

LOCK_STRIDE: Final = 256
"""Slot *s* is the byte range ``[s * 256, s * 256 + 256)`` for locks, a byte a subscriber."""

SEQS_OFFSET: Final = 512
COMPLETIONS_OFFSET: Final = 1024
RECORDS_OFFSET: Final = 2048
RECORD_NBYTES: Final = 64

_W_MAGIC, _W_EPOCH, _W_STATE, _W_PUBLISHED, _W_DROPPED, _W_LAST_NS = range(6)
_W_SEQS: Final = SEQS_OFFSET // 8
_W_DONE: Final = COMPLETIONS_OFFSET // 8
_W_RECORDS: Final = RECORDS_OFFSET // 8
_RECORD_WORDS: Final = RECORD_NBYTES // 8
_RECORD_FIELDS: Final = 3

_U64: Final = (1 << 64) - 1

assert RECORDS_OFFSET + MAX_SLOTS * RECORD_NBYTES <= CONTROL_NBYTES  # noqa: S101  a fact, not a check


class RingState(enum.IntEnum):
    """What became of this epoch."""

    LIVE = 1
    SUPERSEDED = 2  #: a new epoch is on its way over the control connection
    CLOSED = 3  #: the publisher ended the stream


class Record(NamedTuple):
    """A frame's metadata."""

    seq: int  #: counts from 1 over the publisher's life
    pts_ns: int  #: presentation time, nanoseconds of CLOCK_MONOTONIC
    published_ns: int  #: when `publish` was called, the same clock


_LIVE: Final = int(RingState.LIVE)
_new_tuple: Final = tuple.__new__
"""Makes a `Record` in a third of the time."""


class ControlWriter:
    """The publisher's side of a block.

    Parameters
    ----------
    view
        The whole block, writable and zeroed.
    epoch
        Number of the epoch it is for.
    """

    __slots__ = ("_words",)

    def __init__(self, view: memoryview, epoch: int) -> None:
        self._words = view.cast("Q")
        self._words[_W_EPOCH] = epoch
        self._words[_W_STATE] = RingState.LIVE
        self._words[_W_MAGIC] = MAGIC

    def withdraw(self, slot: int) -> None:
        """Say that the slot has no frame; call with its write lock held."""
        self._words[_W_SEQS + slot] = 0

    def write_record(self, slot: int, record: tuple[int, int, int]) -> None:
        """Write a frame's metadata, a `Record`; call with the slot's write lock held."""
        at = _W_RECORDS + slot * _RECORD_WORDS
        words = self._words
        words[at], pts, words[at + 2] = record
        words[at + 1] = pts & _U64

    def announce(self, slot: int, record: tuple[int, int, int]) -> None:
        """Say that the slot has a frame; call with its write lock released."""
        words = self._words
        words[_W_SEQS + slot], _, words[_W_LAST_NS] = record
        words[_W_PUBLISHED] += 1

    def complete(self, slot: int, value: int) -> None:
        """Write the slot's completion word from the CPU."""
        self._words[_W_DONE + slot] = value

    def completed(self, slot: int) -> int:
        """Return the slot's completion word."""
        return self._words[_W_DONE + slot]

    def count_drop(self) -> None:
        """Count a frame that found no slot."""
        self._words[_W_DROPPED] += 1

    def set_state(self, state: RingState) -> None:
        """Say what became of this epoch."""
        self._words[_W_STATE] = state

    def carry_over(self, published: int, dropped: int) -> None:
        """Take over the counts of the epoch before."""
        self._words[_W_PUBLISHED] = published
        self._words[_W_DROPPED] = dropped

    @property
    def published(self) -> int:
        """Frames published by this publisher so far."""
        return self._words[_W_PUBLISHED]

    @property
    def dropped(self) -> int:
        """Frames that found no slot so far."""
        return self._words[_W_DROPPED]

    @property
    def last_publish_ns(self) -> int:
        """When the newest frame was published, 0 before the first."""
        return self._words[_W_LAST_NS]

    def close(self) -> None:
        """Let go of the memory."""
        self._words.release()


class ControlReader:
    """A subscriber's side of a block.

    Parameters
    ----------
    view
        The whole block.
    slot_count
        How many slots the ring has.

    Attributes
    ----------
    done
        Each slot's completion word, read when it is indexed: a frame is complete when it is its
        number.
    """

    __slots__ = ("_records", "_seqs", "_words", "done")

    def __init__(self, view: memoryview, slot_count: int) -> None:
        self._words = view.cast("Q")
        self._seqs = self._words[_W_SEQS : _W_SEQS + slot_count]
        self.done = self._words[_W_DONE : _W_DONE + slot_count]
        signed = view.cast("q")
        starts = range(_W_RECORDS, _W_RECORDS + slot_count * _RECORD_WORDS, _RECORD_WORDS)
        self._records = [signed[at : at + _RECORD_FIELDS] for at in starts]

    def is_for(self, epoch: int) -> bool:
        """Whether the block is one, and that epoch's."""
        return self._words[_W_MAGIC] == MAGIC and self._words[_W_EPOCH] == epoch

    def seqs(self) -> list[int]:
        """Return each slot's sequence number, 0 where there is no frame."""
        return self._seqs.tolist()

    def completions(self) -> list[int]:
        """Return each slot's completion word."""
        return self.done.tolist()

    def holds(self, slot: int, seq: int) -> bool:
        """Whether the slot still has frame `seq`, complete."""
        return self._seqs[slot] == seq == self.done[slot]

    def record(self, slot: int) -> Record:
        """Return the slot's metadata; call with the slot's read lock held."""
        return _new_tuple(Record, self._records[slot].tolist())

    @property
    def live(self) -> bool:
        """Whether this is the newest epoch, as far as its publisher has come to say."""
        return self._words[_W_STATE] == _LIVE

    @property
    def state(self) -> int:
        """What became of this epoch, a :class:`RingState`."""
        return self._words[_W_STATE]

    @property
    def published(self) -> int:
        """Frames published so far."""
        return self._words[_W_PUBLISHED]

    @property
    def dropped(self) -> int:
        """Frames that the publisher dropped so far."""
        return self._words[_W_DROPPED]

    @property
    def last_publish_ns(self) -> int:
        """When the newest frame was published, 0 before the first."""
        return self._words[_W_LAST_NS]
