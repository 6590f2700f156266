"""Where the planes of a frame are on a GPU, for those who need no arrays on them."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

__all__ = ["Addresses", "GpuPlanes"]

Addresses: TypeAlias = tuple[int, int, int, int]
"""Of the first plane and of the last one, which is the same where there is one; their pitches."""


class GpuPlanes(NamedTuple):
    """A frame's planes on a GPU. It keeps nothing alive."""

    device: int  #: CUDA ordinal
    addresses: Addresses
