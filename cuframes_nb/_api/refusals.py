"""Why a frame cannot be written or taken just now, told at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuframes_nb.errors import (
    ClosedError,
    CuframesError,
    InvalidArgumentError,
    LeaseLimitError,
    RingFullError,
)

if TYPE_CHECKING:
    from cuframes_nb._api.slot import WritableSlot
    from cuframes_nb._runtime.attached import AttachedEpoch
    from cuframes_nb._runtime.ring import Ring

__all__ = ["lease_limit_reached", "ring_full", "wrong_slot"]


def ring_full(key: str, ring: Ring) -> RingFullError:
    """Return the error for a ring without a free slot: what each of them is waiting for."""
    causes = [
        (len(ring.writing), "acquired here and not published or discarded yet"),
        (ring.slots_unfinished, "the GPU has not finished with"),
        (ring.slots_leased(), "being read; see .info.subscribers"),
    ]
    told = ", ".join(f"{count} {what}" for count, what in causes if count)
    return RingFullError(
        f"no slot of stream {key!r} is free: 1 of the {ring.slots} is the newest frame, "
        f"{told}. The frame was dropped; skip it, or use a larger ring_size"
    )


def wrong_slot(slot: WritableSlot, key: str, *, foreign: bool) -> CuframesError:
    """Return the error for a slot that is another publisher's, or of an epoch before."""
    if foreign:
        return InvalidArgumentError(f"{slot!r} was acquired from another publisher than {key!r}")
    return ClosedError("this slot was acquired before a reconfigure: acquire another one")


def lease_limit_reached(name: str, epoch: AttachedEpoch) -> LeaseLimitError:
    """Return the error for a subscriber that holds as much as it may."""
    return LeaseLimitError(
        f"this subscriber holds {epoch.held} frames of stream {name!r}, the most "
        f"it may of a ring of {len(epoch.message.ring.slots)}: release frames and drop arrays "
        f"on them, keep frame.copy() instead, or publish with a larger ring_size"
    )
