"""Which frame a subscriber takes, given what the control block shows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

__all__ = ["completion_waits", "lease_limit", "newest_complete", "oldest_after", "unfinished_after"]

_SHORTEST_S: Final = 50e-6
_LONGEST_S: Final = 500e-6


def newest_complete(
    seqs: Sequence[int], completions: Sequence[int], after: int
) -> tuple[int, int] | None:
    """Return slot and sequence number of the newest complete frame newer than `after`, or None."""
    best = max(seqs)
    if best <= after:
        return None
    where = seqs.index(best)
    if completions[where] == best:
        return where, best  # as nearly always
    best, where = after, -1
    for slot, seq in enumerate(seqs):
        if seq > best and completions[slot] == seq:
            best, where = seq, slot
    return None if where < 0 else (where, best)


def oldest_after(
    seqs: Sequence[int], completions: Sequence[int], after: int
) -> tuple[int, int] | None:
    """Return slot and sequence number of the first frame newer than `after`, if it is complete.

    A later frame that is complete already does not overtake it.
    """
    newer = [(seq, slot) for slot, seq in enumerate(seqs) if seq > after]
    if not newer:
        return None
    seq, slot = min(newer)
    return (slot, seq) if completions[slot] == seq else None


def unfinished_after(seqs: Sequence[int], completions: Sequence[int], after: int) -> bool:
    """Whether a frame newer than `after` is announced whose pixels are not complete yet."""
    if max(seqs) <= after:
        return False  # as nearly always
    return any(seq > after and completions[slot] != seq for slot, seq in enumerate(seqs))


def lease_limit(slots: int) -> int:
    """Return how many slots one subscriber may hold: two fewer than there are, at least one.

    The publisher is left the newest frame and one slot to write.
    """
    return max(1, slots - 2)


def completion_waits() -> Iterator[float]:
    """Yield how long to sleep between looks at completion words, in seconds.

    The first is 0: then it is worth while to look without sleeping.
    """
    yield 0.0
    wait = _SHORTEST_S
    while True:
        yield wait
        wait = min(wait * 1.5, _LONGEST_S)
