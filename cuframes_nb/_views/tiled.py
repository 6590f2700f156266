"""Slots of which each frame is copied out, once: their pixels are in a driver's own order."""

from __future__ import annotations

import abc
import contextlib
import importlib
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.streams import PER_THREAD, is_capturing
from cuframes_nb._views.host import HostPlanes
from cuframes_nb._views.lasting import LastingPlanes
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb.errors import (
    CuframesError,
    InvalidArgumentError,
    LocalProtocolError,
    UnsupportedError,
)
from cuframes_nb.formats import FrameLayout

if TYPE_CHECKING:
    from cuframes_nb._memory.vulkan_cuda import VulkanCudaImage
    from cuframes_nb._memory.vulkan_host import VulkanHostImage

__all__ = [
    "CopyingPlanes",
    "CudaCopyingPlanes",
    "CudaTiledPlanes",
    "HostTiledPlanes",
    "UnmappedPlanes",
]


class _Unshown(abc.ABC):
    """A :class:`~cuframes_nb._views.planes.PlaneSource` that has no arrays to show."""

    device: str

    @property
    @abc.abstractmethod
    def xp(self) -> ModuleType:
        """The array module that there would be."""

    def active(self) -> AbstractContextManager[Any]:
        """Do nothing."""
        return contextlib.nullcontext()

    def plane(self, index: int, owner: object) -> Any:
        """Raise."""
        del index, owner
        raise self._refusal()

    def rows(self, owner: object) -> Any:
        """Raise."""
        del owner
        raise self._refusal()

    def on_gpu(self) -> GpuPlanes | None:
        """Raise."""
        raise self._refusal()

    @abc.abstractmethod
    def _refusal(self) -> CuframesError: ...


class UnmappedPlanes(_Unshown):
    """A slot that only its program can write, through Vulkan.

    Parameters
    ----------
    device
        Where frames of it would be.
    """

    def __init__(self, device: str) -> None:
        self.device = device

    @property
    def xp(self) -> ModuleType:
        """NumPy or CuPy."""
        return importlib.import_module("numpy" if self.device == "cpu" else "cupy")

    def _refusal(self) -> CuframesError:
        return UnsupportedError(
            "memory of a Vulkan program is not mapped into its publisher: write it through Vulkan "
            "and publish_buffer() it"
        )


class CopyingPlanes(_Unshown):
    """A slot of which each frame is copied.

    Parameters
    ----------
    layout
        Geometry of the frames.
    pitch
        Bytes from row to row of each plane of a copy; by default rows follow each other: the
        publisher's pitches mean nothing then, and whoever tells them does not set our memory.
    """

    def __init__(self, layout: FrameLayout, pitch: Sequence[int] | None = None) -> None:
        self.layout = FrameLayout.make(
            layout.format,
            layout.width,
            layout.height,
            pitch=pitch or [plane.row_bytes for plane in layout.planes],
        )

    @abc.abstractmethod
    def copied(self) -> PlaneSource:
        """Return the planes of the frame that is in the slot now, in memory of their own."""

    def _refusal(self) -> CuframesError:
        return LocalProtocolError(
            "a slot was shown of which each frame is to be copied: tiled, it would be scrambled"
        )


class HostTiledPlanes(CopyingPlanes):
    """An image of a software Vulkan driver."""

    device = "cpu"

    def __init__(self, arena: VulkanHostImage, layout: FrameLayout) -> None:
        super().__init__(layout)
        self._arena = arena

    @property
    def xp(self) -> ModuleType:
        """NumPy."""
        return np

    def copied(self) -> PlaneSource:
        """Have the driver copy the frame, and wait for it."""
        memory = np.empty(self.layout.nbytes, dtype="u1")
        self._arena.read(memory.ctypes.data, self.layout)
        planes = HostPlanes(memory.ctypes.data, self.layout, writable=True)
        return LastingPlanes(planes, memory, len(self.layout.planes))


class CudaCopyingPlanes(CopyingPlanes):
    """A slot of which each frame is copied into memory of a GPU.

    Parameters
    ----------
    layout, pitch
        As for `CopyingPlanes`.
    ordinal
        The GPU.
    """

    def __init__(
        self, layout: FrameLayout, ordinal: int, pitch: Sequence[int] | None = None
    ) -> None:
        super().__init__(layout, pitch)
        self._ordinal = ordinal
        self.device = f"cuda:{ordinal}"

    @property
    def xp(self) -> ModuleType:
        """CuPy."""
        import cupy

        return cupy  # type: ignore[no-any-return]  # cupy has no types

    def active(self) -> AbstractContextManager[Any]:
        """Make the GPU current for a block."""
        return activated(self._ordinal)

    @abc.abstractmethod
    def queue(self, address: int, handle: int) -> None:
        """Queue a copy of the frame to `address`, laid out as `layout`, on a stream of the GPU."""

    def copied(self) -> PlaneSource:
        """Queue a copy of the frame on CuPy's current stream; does not wait.

        Raises
        ------
        InvalidArgumentError
            If that captures a graph, which would copy the slot again with every replay.
        """
        from cuframes_nb._views.cuda import CudaPlanes

        with self.active():
            stream = self.xp.cuda.get_current_stream()
            if is_capturing(stream.ptr):
                raise InvalidArgumentError(
                    "the stream is capturing a graph, and these frames are copied when they are "
                    "taken: take it before the capture"
                )
            memory = self.xp.empty(self.layout.nbytes, dtype="u1")
            self.queue(memory.data.ptr, stream.ptr)
            copy = _Copy(memory, stream, self.active)
        planes = CudaPlanes(memory.data.ptr, self.layout, self._ordinal, leased=True)
        return _CopiedPlanes(planes, copy, len(self.layout.planes))


class CudaTiledPlanes(CudaCopyingPlanes):
    """An image of a Vulkan driver, as CUDA arrays."""

    def __init__(self, arena: VulkanCudaImage, layout: FrameLayout, ordinal: int) -> None:
        super().__init__(layout, ordinal)
        self._arena = arena

    def queue(self, address: int, handle: int) -> None:
        """Queue a copy of the image."""
        self._arena.copy_to(address, self.layout, handle)


class _Copy:
    """Memory of CuPy's pool that a copy was queued into, and the streams that read it since.

    The pool hands memory out again to the stream that it was allocated on. So that one has to wait
    for the others before it goes back.
    """

    __slots__ = ("__weakref__", "_active", "_done", "_memory", "_others", "_stream")

    def __init__(
        self, memory: Any, stream: Any, active: Callable[[], AbstractContextManager[Any]]
    ) -> None:
        self._others: dict[int, Any] = {}
        self._memory = memory
        self._stream = stream
        self._active = active
        self._done = stream.record()

    def order(self, stream: Any) -> None:
        """Have a stream of CuPy's, which is about to read, wait for the copy."""
        if stream.ptr != self._stream.ptr or stream.ptr == PER_THREAD:
            stream.wait_event(self._done)
            self._others[stream.ptr] = stream

    def record_stream(self, stream: object) -> None:
        """Note that a stream of any library's reads; DLPack's consumers do."""
        from cuframes_nb._views.cuda import as_cupy_stream

        with self._active():
            self.order(as_cupy_stream(stream))

    def __del__(self) -> None:
        if not self._others or sys.is_finalizing():
            return
        for other in self._others.values():
            with contextlib.suppress(Exception), self._active():  # it may have been destroyed
                self._stream.wait_event(other.record())


class _CopiedPlanes(LastingPlanes):
    """A copy that may not have been made yet: whoever takes it on another stream waits for it."""

    __slots__ = ("_copy",)

    def __init__(self, source: PlaneSource, copy: _Copy, count: int) -> None:
        super().__init__(source, copy, count)
        self._copy = copy

    def plane(self, index: int, owner: object = None) -> Any:
        """Return plane `index` to the current stream."""
        self._order()
        return super().plane(index, owner)

    def on_gpu(self) -> GpuPlanes | None:
        """Return where the planes are, to the current stream."""
        self._order()
        return super().on_gpu()

    def rows(self, owner: object = None) -> Any:
        """Return all planes as one array of rows, to the current stream."""
        self._order()
        return super().rows(owner)

    def record_stream(self, stream: object) -> None:
        """Have a stream wait for the copy, and the memory for the stream."""
        self._copy.record_stream(stream)

    def _order(self) -> None:
        with self.active():
            self._copy.order(self.xp.cuda.get_current_stream())
