"""GPU memory as CuPy arrays."""

from __future__ import annotations

from contextlib import AbstractContextManager
from types import ModuleType
from typing import Any, Final, TypeAlias

import cupy

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.streams import stream_handle
from cuframes_nb._views.geometry import rows_geometry
from cuframes_nb._views.planes import RecordsStreams
from cuframes_nb.formats import FrameLayout

__all__ = ["CudaPlanes", "LeasedArray", "as_cupy_stream"]

_LEGACY_STREAM: Final = 1
"""DLPack in the array API standard: the stream None means CUDA's legacy default stream."""

_Place: TypeAlias = tuple[int, int, tuple[int, ...], tuple[int, ...]]
"""Address, bytes, shape and strides of an array."""

_UnownedMemory: Final = cupy.cuda.UnownedMemory
_MemoryPointer: Final = cupy.cuda.MemoryPointer


class _Handle:
    """A stream's handle in the protocol of cuda.core, which CuPy reads."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self._handle)


def as_cupy_stream(stream: object) -> Any:
    """Return any library's stream as CuPy's, which does not own it.

    Raises
    ------
    InvalidArgumentError
        If it is no stream.
    """
    if isinstance(stream, cupy.cuda.Stream):
        return stream
    handle = stream_handle(stream)
    if hasattr(cupy.cuda.Stream, "from_external"):
        return cupy.cuda.Stream.from_external(_Handle(handle))
    return cupy.cuda.ExternalStream(handle)  # CuPy 13


class LeasedArray(cupy.ndarray):  # type: ignore[misc]  # cupy has no types
    """A CuPy array on a leased slot: handing it on by DLPack tells the lease who reads.

    It is a `cupy.ndarray` in every other way; results of computing with it are CuPy's own.
    """

    def __dlpack__(self, *, stream: int | None = None, **options: Any) -> Any:
        """Export, and have the slot wait for the consumer's stream before it goes back."""
        owner = getattr(self.data.mem, "_owner", None)
        if stream != -1 and isinstance(owner, RecordsStreams):
            owner.record_stream(_LEGACY_STREAM if stream is None else stream)
        return super().__dlpack__(stream=stream, **options)


class CudaPlanes:
    """Arrays on one slot in GPU memory; a :class:`~cuframes_nb._views.planes.PlaneSource`.

    Parameters
    ----------
    address
        The slot's first byte.
    layout
        Geometry of the frame in it.
    ordinal
        The GPU.
    leased
        Whether the arrays' owner is a lease.
    """

    __slots__ = (
        "_address", "_dtype", "_layout", "_on_gpu", "_ordinal", "_places", "_rows", "_type",
        "device",
    )  # fmt: skip

    def __init__(self, address: int, layout: FrameLayout, ordinal: int, *, leased: bool) -> None:
        self._address = address
        self._layout = layout
        self._ordinal = ordinal
        self._dtype = cupy.dtype(layout.format.dtype)
        self._type = LeasedArray if leased else cupy.ndarray
        self.device = f"cuda:{ordinal}"
        self._places: list[_Place] = [
            (address + p.offset, p.end - p.offset, p.shape, p.strides) for p in layout.planes
        ]
        self._rows: _Place | None = None
        first, last = layout.planes[0], layout.planes[-1]
        self._on_gpu = GpuPlanes(
            ordinal, (address + first.offset, address + last.offset, first.pitch, last.pitch)
        )

    @property
    def xp(self) -> ModuleType:
        """CuPy."""
        return cupy  # type: ignore[no-any-return]  # cupy has no types

    def active(self) -> AbstractContextManager[Any]:
        """Make the GPU current for a block."""
        return activated(self._ordinal)

    def plane(self, index: int, owner: object) -> Any:
        """Return plane `index`; the array keeps `owner` alive."""
        return self._array(self._places[index], owner)

    def on_gpu(self) -> GpuPlanes:
        """Return where the planes are."""
        return self._on_gpu

    def rows(self, owner: object) -> Any:
        """Return all planes as one array of rows; the array keeps `owner` alive."""
        if self._rows is None:
            offset, shape, strides = rows_geometry(self._layout)  # raises if they are not one
            nbytes = self._layout.planes[-1].end - offset
            self._rows = (self._address + offset, nbytes, shape, strides)
        return self._array(self._rows, owner)

    def _array(self, place: _Place, owner: object) -> Any:
        address, nbytes, shape, strides = place
        # The device is named: left to guess, CuPy would ask the driver for every array.
        memory = _UnownedMemory(address, nbytes, owner, self._ordinal)
        return self._type(shape, self._dtype, _MemoryPointer(memory, 0), strides)
