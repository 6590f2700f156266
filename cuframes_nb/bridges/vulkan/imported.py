"""Frames of any stream as Vulkan buffers, without a copy."""

from __future__ import annotations

import contextlib
import mmap
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from cuframes_nb._api.frame import Frame
from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._cuda import devices
from cuframes_nb._memory.pieces import piece_at
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._vulkan.calls import vulkan
from cuframes_nb._vulkan.device import Device
from cuframes_nb._vulkan.memory import (
    bound_buffer,
    host_pointer_alignment,
    import_fd,
    import_host_pointer,
    opaque_fd,
)
from cuframes_nb.errors import ClosedError, DeviceError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["ImportedFrame", "import_frame"]


class ImportedFrame:
    """A frame's memory as a ``VkBuffer``; the slot is not written while this is open.

    Attributes
    ----------
    layout : FrameLayout
        Size, format, pitches, and where the planes begin, counted from `offset`.
    offset : int
        Byte of the buffer that the frame begins at.
    nbytes : int
        Size of the buffer.
    """

    def __init__(
        self,
        buffer: Any,
        nbytes: int,
        offset: int,
        layout: FrameLayout,
        close: Callable[[], object],
    ) -> None:
        self._buffer = buffer
        self._close: Callable[[], object] | None = close
        self.nbytes = nbytes
        self.offset = offset
        self.layout = layout

    @property
    def buffer(self) -> Any:
        """The ``VkBuffer``, to be copied from or read by shaders, not written.

        It comes from ``VK_QUEUE_FAMILY_EXTERNAL``, which a barrier may say.

        Raises
        ------
        ClosedError
            After `close`.
        """
        if self._close is None:
            raise ClosedError("this frame's Vulkan buffer was closed")
        return self._buffer

    def close(self) -> None:
        """Destroy the buffer and give the frame up, once; the GPU must be done with it."""
        close, self._close = self._close, None
        if close is not None:
            close()

    def __del__(self) -> None:
        if getattr(self, "_close", None) is not None:
            warnings.warn(
                f"unclosed {type(self).__name__}", ResourceWarning, source=self, stacklevel=2
            )
            self.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def import_frame(frame: Frame, device: Device, *, usage: int = 0) -> ImportedFrame:
    """Return a frame's own memory as a Vulkan buffer, without a copy.

    The frame stays leased until the result is closed, whatever becomes of `frame` itself.

    Parameters
    ----------
    frame
        Of any stream: in GPU memory, in host memory, or in memory of a Vulkan program.
    device
        Where the buffer is to be; for GPU memory, the GPU that holds it.
    usage
        ``VkBufferUsageFlags`` besides copying from it and reading it as a storage buffer.

    Raises
    ------
    DeviceError
        If the frame is on another GPU.
    UnsupportedError
        If its memory cannot be shared: a copy on a GPU, or host memory with a GPU's driver.
    ClosedError
        If the frame was released.
    """
    api = vulkan()
    lease, source = frame._claim()  # noqa: SLF001  what keeps the pixels is not public
    usage |= api.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | api.VK_BUFFER_USAGE_STORAGE_BUFFER_BIT
    layout = _layout_of(frame, source)
    with contextlib.ExitStack() as undo:
        undo.callback(_let_go, [lease, source])
        planes = source.on_gpu()
        if planes is None:
            place = _import_host(source, layout, device, undo)
        else:
            place = _import_gpu(planes, layout, device, undo)
        buffer = bound_buffer(device, place.memory, place.nbytes, place.handle_type, usage)
        undo.callback(api.vkDestroyBuffer, device.handle, buffer, None)
        return ImportedFrame(buffer, place.nbytes, place.offset, layout, undo.pop_all().close)


class _Place(NamedTuple):
    """Imported memory, and where in it the frame begins."""

    memory: Any
    nbytes: int
    offset: int
    handle_type: int


def _let_go(held: list[object]) -> None:
    held.clear()


def _layout_of(frame: Frame, source: PlaneSource) -> FrameLayout:
    """Return where the planes lie, counted from the first: in a copy elsewhere than in the slot."""
    starts, pitches = [], []
    for plane in (source.plane(index, None) for index in range(len(frame.planes))):
        pointer = plane.data.ptr if hasattr(plane.data, "ptr") else plane.ctypes.data
        starts.append(pointer)
        pitches.append(plane.strides[0])
    return FrameLayout.make(
        frame.format,
        frame.width,
        frame.height,
        pitch=pitches,
        offsets=[start - starts[0] for start in starts],
    )


def _import_host(
    source: PlaneSource, layout: FrameLayout, device: Device, undo: contextlib.ExitStack
) -> _Place:
    api = vulkan()
    if not device.is_software:
        # Not tried: NVIDIA's driver allocates nothing more on a device that was refused this once.
        raise UnsupportedError(
            f"{device.name} cannot use the frame's host memory, which this process may only read: "
            f"copy it into a buffer"
        )
    step = max(mmap.PAGESIZE, host_pointer_alignment(device))
    first = source.plane(0, None).ctypes.data
    begin = first // step * step
    end = -(-(first + layout.planes[-1].end) // step) * step
    memory = import_host_pointer(device, begin, end - begin)
    undo.callback(api.vkFreeMemory, device.handle, memory, None)
    kind = api.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
    return _Place(memory, end - begin, first - begin, kind)


def _import_gpu(
    planes: GpuPlanes, layout: FrameLayout, device: Device, undo: contextlib.ExitStack
) -> _Place:
    api = vulkan()
    gpu = devices.gpu(planes.device)
    if gpu.uuid != device.uuid:
        raise DeviceError(
            f"the frame is on {gpu.name}, and the Vulkan device is another, {device.name}: open it "
            f"with Device.open(uuid)"
        )
    first = planes.addresses[0]
    piece = piece_at(first)
    if piece is None:
        raise UnsupportedError(
            "the frame's memory cannot be given to Vulkan: it came as a legacy CUDA handle, is an "
            "image's alone, or a copy; copy it into a Vulkan buffer"
        )
    if first + layout.planes[-1].end > piece.address + piece.nbytes:
        raise UnsupportedError(
            "the frame lies in several allocations, which no Vulkan buffer can show: copy it into "
            "a buffer"
        )
    kind = piece.memory_type
    if kind is None:  # CUDA's own memory
        kind = device.memory_type(0xFFFFFFFF, api.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)
    memory = import_fd(device, piece.fd, piece.nbytes, kind)
    undo.callback(api.vkFreeMemory, device.handle, memory, None)
    return _Place(memory, piece.nbytes, first - piece.address, opaque_fd())
