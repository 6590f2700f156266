"""Planes that belong to the frame itself: copies."""

from __future__ import annotations

from types import ModuleType
from typing import Any

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._views.geometry import rows_geometry
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb.formats import FrameLayout

__all__ = ["OwnedPlanes"]


class OwnedPlanes:
    """A private copy of another source's planes, on the same kind of memory.

    Parameters
    ----------
    source
        What to copy.
    layout
        Geometry of the source's frame.
    owner
        What keeps the source's memory valid meanwhile.
    """

    def __init__(self, source: PlaneSource, layout: FrameLayout, owner: object) -> None:
        tight = FrameLayout.make(
            layout.format,
            layout.width,
            layout.height,
            pitch=[plane.row_bytes for plane in layout.planes],
        )
        self.layout = tight
        self.xp: ModuleType = source.xp
        self.device: str = source.device
        itemsize = tight.format.itemsize
        self.active = source.active
        with source.active():
            self._flat = self.xp.empty(tight.nbytes // itemsize, dtype=tight.format.dtype)
            for index in range(len(tight.planes)):
                self.plane(index, None)[...] = source.plane(index, owner)

    def plane(self, index: int, owner: object) -> Any:
        """Return plane `index`, a view on the copy."""
        del owner  # the copy is its own
        plane = self.layout.planes[index]
        return self._view(plane.offset, plane.shape)

    def on_gpu(self) -> GpuPlanes | None:
        """Return where the planes of the copy are on a GPU."""
        if self.device == "cpu":
            return None
        memory, first, last = self._flat.data, self.layout.planes[0], self.layout.planes[-1]
        start = memory.ptr
        return GpuPlanes(
            memory.device_id, (start + first.offset, start + last.offset, first.pitch, last.pitch)
        )

    def rows(self, owner: object) -> Any:
        """Return all planes as one array of rows, a view on the copy."""
        del owner
        offset, shape, _ = rows_geometry(self.layout)
        return self._view(offset, shape)

    def _view(self, offset: int, shape: tuple[int, ...]) -> Any:
        start = offset // self.layout.format.itemsize
        count = 1
        for extent in shape:
            count *= extent
        return self._flat[start : start + count].reshape(shape)
