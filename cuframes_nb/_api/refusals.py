"""Why a frame cannot be written or taken just now, told at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cuframes_nb.errors import (
    ClosedError,
    CuframesError,
    InUseError,
    InvalidArgumentError,
    LeaseLimitError,
    RingFullError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from cuframes_nb._api.slot import WritableSlot
    from cuframes_nb._runtime.attached import AttachedEpoch
    from cuframes_nb._runtime.ring import Ring

__all__ = [
    "buffer_in_use",
    "lease_limit_reached",
    "no_external_buffers",
    "ring_full",
    "unknown_buffer",
    "wrong_slot",
]


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


def buffer_in_use(key: str, ring: Ring, index: int, passed: int | None) -> InUseError:
    """Return the error for a buffer that is published although it was not free."""
    if ring.is_unfinished(index):
        what = "the GPU has not finished with its frame before"
    elif ring.is_ahead(index, passed):
        what = "a subscriber with mode='strict' has not taken its frame before"
    else:
        what = "a subscriber reads its frame before, and sees what was written into it since"
    return InUseError(
        f"buffer {index} of stream {key!r} was not free: {what}. Call wait_free({index}) before "
        f"writing into it; see .info.subscribers"
    )


def unknown_buffer(key: str, ring: Ring, buffer: object) -> InvalidArgumentError:
    """Return the error for something that is none of the buffers."""
    what = repr(buffer) if isinstance(buffer, int) else f"this {type(buffer).__name__}"
    return InvalidArgumentError(
        f"{what} is none of the {ring.slots} buffers of stream {key!r}: pass a number below "
        f"{ring.slots}, one of .buffers, or an array that begins where one of them does"
    )


def no_external_buffers(key: str) -> UnsupportedError:
    """Return the error for calls that are about the user's own buffers."""
    return UnsupportedError(
        f"the slots of stream {key!r} are the publisher's own memory: take one with acquire(), or "
        f"publish your buffers with cf.Publisher(..., ownership='external', buffers=[...])"
    )


def lease_limit_reached(name: str, epoch: AttachedEpoch) -> LeaseLimitError:
    """Return the error for a subscriber that holds as much as it may."""
    return LeaseLimitError(
        f"this subscriber holds {epoch.held} frames of stream {name!r}, the most "
        f"it may of a ring of {len(epoch.message.ring.slots)}: release frames and drop arrays "
        f"on them, keep frame.copy() instead, or publish with a larger ring_size"
    )
