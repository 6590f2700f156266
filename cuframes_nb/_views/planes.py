"""What a frame or a slot needs in order to show its planes, whatever memory they lie in."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from cuframes_nb._core.gpu_planes import GpuPlanes

__all__ = ["PlaneSource", "RecordsStreams"]


@runtime_checkable
class RecordsStreams(Protocol):
    """What keeps memory until the streams that read it have passed."""

    def record_stream(self, stream: object) -> None:
        """Note that work on `stream` reads it."""


class PlaneSource(Protocol):
    """Makes arrays on one slot's memory, or on a frame's own.

    Arrays are `numpy.ndarray` or `cupy.ndarray`; CuPy is not always installed, hence ``Any``.
    """

    @property
    def xp(self) -> ModuleType:
        """The array module: numpy or cupy."""

    @property
    def device(self) -> str:
        """Where the memory is: ``"cpu"`` or ``"cuda:N"`` by this process's ordinals."""

    def active(self) -> AbstractContextManager[Any]:
        """Make the memory's device current for a block."""

    def plane(self, index: int, owner: object) -> Any:
        """Return plane `index`; the array keeps `owner` alive."""

    def on_gpu(self) -> GpuPlanes | None:
        """Return where the planes are, for a kernel; None for host memory.

        It costs a fraction of what arrays do, and nothing keeps the memory: hold the owner until
        the kernel is queued.
        """

    def rows(self, owner: object) -> Any:
        """Return all planes as one array of rows; the array keeps `owner` alive.

        Raises
        ------
        UnsupportedError
            If the layout cannot be shown so.
        """
