"""The memory of a ring: arenas, and where its slots lie in them."""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable
from typing import Final

from cuframes_nb._memory.arena import Arena
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._wire.messages import SlotPlace
from cuframes_nb.formats import FrameLayout

__all__ = ["RingMemory", "Span", "allocate"]

SLOT_ALIGNMENT: Final = 4096
"""Bytes: a page, so that slots share no page, cache line or GPU sector."""


@dataclasses.dataclass(frozen=True, slots=True)
class Span:
    """Bytes that two rings must not have at once."""

    space: Hashable  #: what the numbers count in
    start: int
    end: int

    def overlaps(self, other: Span) -> bool:
        """Whether they have a byte in common."""
        return self.space == other.space and self.start < other.end and other.start < self.end


@dataclasses.dataclass(frozen=True, slots=True)
class RingMemory:
    """Arenas, which belong to whoever has this value, and the slots in them.

    Attributes
    ----------
    backend
        What makes arrays on it, and says when they are complete.
    layout
        Geometry of a frame.
    arenas
        The allocations, as subscribers are told of them.
    places
        Where each slot lies.
    reason
        Why this memory, and how it is shared, for people.
    buffers
        What the user made; empty if the library made the memory.
    addresses
        Where each of them begins, as it says itself; None for one that does not say.
    spans
        The bytes of each of them.
    """

    backend: Backend
    layout: FrameLayout
    arenas: tuple[Arena, ...]
    places: tuple[SlotPlace, ...]
    reason: str
    buffers: tuple[object, ...] = ()
    addresses: tuple[int | None, ...] = ()
    spans: tuple[Span, ...] = ()

    @property
    def is_external(self) -> bool:
        """Whether the user made it."""
        return bool(self.buffers)

    def close(self) -> None:
        """Let go of descriptors and handles; arrays keep what they need."""
        for arena in self.arenas:
            arena.close()


def allocate(backend: Backend, layout: FrameLayout, slots: int) -> RingMemory:
    """Make memory for `slots` frames: one arena.

    Raises
    ------
    OSError, CudaError
        If there is not enough.
    """
    stride = -(-layout.nbytes // SLOT_ALIGNMENT) * SLOT_ALIGNMENT
    arena = backend.create_arena(stride * slots)
    places = tuple(SlotPlace(0, slot * stride) for slot in range(slots))
    return RingMemory(backend, layout, (arena,), places, backend.reason)
