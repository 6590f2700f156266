"""Host memory as NumPy arrays."""

from __future__ import annotations

import contextlib
from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._views.geometry import rows_geometry
from cuframes_nb.formats import FrameLayout

__all__ = ["HostPlanes"]

_asarray: Final = np.asarray


class _Export:
    """What NumPy holds on to: an array's memory, and whatever keeps it valid."""

    __slots__ = ("__array_interface__", "__weakref__", "owner")

    def __init__(self, interface: dict[str, Any], owner: object) -> None:
        self.__array_interface__ = interface
        self.owner = owner


class HostPlanes:
    """Arrays on one slot in host memory; a :class:`~cuframes_nb._views.planes.PlaneSource`.

    Parameters
    ----------
    address
        The slot's first byte.
    layout
        Geometry of the frame in it.
    writable
        Whether the arrays may be written.
    """

    __slots__ = ("_address", "_interfaces", "_layout", "_rows", "_typestr", "_writable")

    device = "cpu"

    def __init__(self, address: int, layout: FrameLayout, *, writable: bool) -> None:
        self._address = address
        self._layout = layout
        self._typestr = np.dtype(layout.format.dtype).str
        self._writable = writable
        # The dictionaries never change, so they are made once and not for each frame.
        self._interfaces = [self._interface(p.offset, p.shape, p.strides) for p in layout.planes]
        self._rows: dict[str, Any] | None = None

    @property
    def xp(self) -> ModuleType:
        """NumPy."""
        return np

    def active(self) -> AbstractContextManager[Any]:
        """Do nothing: host memory has no device."""
        return contextlib.nullcontext()

    def plane(self, index: int, owner: object) -> NDArray[Any]:
        """Return plane `index`; the array keeps `owner` alive."""
        return _asarray(_Export(self._interfaces[index], owner))

    def on_gpu(self) -> None:
        """Return None: they are not."""

    def rows(self, owner: object) -> NDArray[Any]:
        """Return all planes as one array of rows; the array keeps `owner` alive."""
        if self._rows is None:
            offset, shape, strides = rows_geometry(self._layout)  # raises if they are not one
            self._rows = self._interface(offset, shape, strides)
        return _asarray(_Export(self._rows, owner))

    def _interface(
        self, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
    ) -> dict[str, Any]:
        return {
            "version": 3,
            "typestr": self._typestr,
            "data": (self._address + offset, not self._writable),
            "shape": shape,
            "strides": strides,
        }
