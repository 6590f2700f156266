"""Planes on memory that goes with the process that made it: shared by a legacy CUDA handle."""

from __future__ import annotations

from typing import Any

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._views.cuda import CudaPlanes
from cuframes_nb.errors import PublisherGoneError
from cuframes_nb.formats import FrameLayout

__all__ = ["FleetingPlanes"]


class FleetingPlanes(CudaPlanes):
    """Arrays on one slot until its publisher's process ends.

    Parameters
    ----------
    address, layout, ordinal
        As for :class:`~cuframes_nb._views.cuda.CudaPlanes`.
    """

    __slots__ = ("_why_gone",)

    def __init__(self, address: int, layout: FrameLayout, ordinal: int) -> None:
        super().__init__(address, layout, ordinal, leased=True)
        self._why_gone = ""

    def revoke(self, why: str) -> None:
        """Make no more arrays: the memory went."""
        self._why_gone = why

    def plane(self, index: int, owner: object) -> Any:
        """Return plane `index`; the array keeps `owner` alive."""
        self._check()
        return super().plane(index, owner)

    def on_gpu(self) -> GpuPlanes:
        """Return where the planes are."""
        self._check()
        return super().on_gpu()

    def rows(self, owner: object) -> Any:
        """Return all planes as one array of rows; the array keeps `owner` alive."""
        self._check()
        return super().rows(owner)

    def _check(self) -> None:
        if self._why_gone:
            raise PublisherGoneError(self._why_gone)
