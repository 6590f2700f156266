"""Slots in the memory of another GPU, of which each frame is copied to this one."""

from __future__ import annotations

from typing import NamedTuple

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._cuda.peers import Spot, copy_from_peer
from cuframes_nb._views.tiled import CudaCopyingPlanes
from cuframes_nb.formats import FrameLayout

__all__ = ["PeerPlanes"]


class _Run(NamedTuple):
    """Bytes that are copied at once."""

    offset: int  #: in the copy
    start: int  #: address in the slot
    nbytes: int


class PeerPlanes(CudaCopyingPlanes):
    """A slot on another GPU. A copy has its pitches: it is bytes behind bytes, one run if it can.

    Parameters
    ----------
    there
        Where the slot's planes are.
    layout
        Geometry of the frame in it.
    ordinal
        The GPU that the copies are to be on.
    """

    def __init__(self, there: GpuPlanes, layout: FrameLayout, ordinal: int) -> None:
        super().__init__(layout, ordinal, [plane.pitch for plane in layout.planes])
        self._there = there.device
        self._runs = _runs(there, self.layout)

    def queue(self, address: int, handle: int) -> None:
        """Queue a copy of the frame."""
        for offset, start, nbytes in self._runs:
            target = Spot(self._ordinal, address + offset)
            copy_from_peer(target, Spot(self._there, start), nbytes, handle)


def _runs(there: GpuPlanes, layout: FrameLayout) -> list[_Run]:
    """Return what to copy: all at once if the planes lie in the slot as in the copy."""
    first, last, *_ = there.addresses
    planes = layout.planes
    if last - first == planes[-1].offset:
        return [_Run(0, first, planes[-1].end)]
    # No format has more than two.
    return [
        _Run(plane.offset, start, plane.end - plane.offset)
        for plane, start in zip(planes, (first, last), strict=True)
    ]
