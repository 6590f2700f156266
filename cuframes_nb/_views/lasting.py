"""A slot's planes for the one who owns the memory: the same arrays for every frame."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._views.planes import PlaneSource

__all__ = ["LastingPlanes"]


class LastingPlanes:
    """Views on arrays that are made once; a :class:`~cuframes_nb._views.planes.PlaneSource`.

    A view costs half of what an array does. Nobody gets the arrays themselves, whose shape or
    flags could be changed.

    Parameters
    ----------
    source
        Where the arrays come from.
    owner
        What keeps the memory valid: the arrays keep it alive, and the views keep the arrays.
    count
        How many planes there are.
    """

    __slots__ = ("_arrays", "_count", "_owner", "_rows", "_source")

    def __init__(self, source: PlaneSource, owner: object, count: int) -> None:
        self._source = source
        self._owner = owner
        self._count = count
        self._arrays: list[Any] = []
        self._rows: Any = None

    @property
    def xp(self) -> ModuleType:
        """The array module: numpy or cupy."""
        return self._source.xp

    @property
    def device(self) -> str:
        """Where the memory is."""
        return self._source.device

    def active(self) -> AbstractContextManager[Any]:
        """Make the memory's device current for a block."""
        return self._source.active()

    def plane(self, index: int, owner: object = None) -> Any:
        """Return plane `index`; `owner` is not needed."""
        del owner
        if not self._arrays:
            self._arrays = [self._source.plane(i, self._owner) for i in range(self._count)]
        return self._arrays[index].view()

    def on_gpu(self) -> GpuPlanes | None:
        """Return where the planes are on a GPU."""
        return self._source.on_gpu()

    def rows(self, owner: object = None) -> Any:
        """Return all planes as one array of rows; `owner` is not needed."""
        del owner
        if self._rows is None:
            self._rows = self._source.rows(self._owner)
        return self._rows.view()
