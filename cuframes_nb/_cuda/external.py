"""Memory and semaphores of other interfaces (Vulkan) on a GPU.

CUDA Driver API, "External Resource Interoperability". An external memory is its imported handle;
a buffer or an array is a mapping of it, and is taken apart first.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any, Final

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.driver import call, driver
from cuframes_nb._cuda.streams import RelaxedCapture
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb.errors import CudaError

__all__ = ["ExternalArray", "ExternalBuffer", "ExternalMemory", "SemaphoreStream"]

_DEDICATED: Final = 0x1  # CUDA_EXTERNAL_MEMORY_DEDICATED, cuda.h
_SURFACE: Final = 0x02  # CUDA_ARRAY3D_SURFACE_LDST
_COLOR_ATTACHMENT: Final = 0x20  # CUDA_ARRAY3D_COLOR_ATTACHMENT

_VK_STORAGE: Final = 0x8  # VK_IMAGE_USAGE_STORAGE_BIT
_VK_COLOR_ATTACHMENT: Final = 0x10  # VK_IMAGE_USAGE_COLOR_ATTACHMENT_BIT


class ExternalMemory:
    """Another interface's allocation, imported; destroyed with the last reference.

    Parameters
    ----------
    fd
        An opaque descriptor; it stays the caller's.
    nbytes
        Size of the allocation.
    ordinal
        The GPU that holds it.
    dedicated
        Whether it was allocated for one buffer or image alone.

    Raises
    ------
    CudaError
        If the descriptor is no such thing.
    """

    __slots__ = ("__weakref__", "_handle", "_pid", "nbytes", "ordinal")

    def __init__(self, fd: OwnedFd, nbytes: int, ordinal: int, *, dedicated: bool) -> None:
        self._handle: Any = None
        self._pid = os.getpid()
        self.nbytes = nbytes
        self.ordinal = ordinal
        description = driver().CUDA_EXTERNAL_MEMORY_HANDLE_DESC()
        kinds = driver().CUexternalMemoryHandleType
        description.type = kinds.CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD
        description.size = nbytes
        description.flags = _DEDICATED if dedicated else 0
        # With success the descriptor is the driver's, which closes it.
        raw = os.dup(fd.fileno())
        try:
            description.handle.fd = raw
            with activated(ordinal):
                self._handle = call("cuImportExternalMemory", description)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(raw)
            raise

    def buffer(self, nbytes: int) -> ExternalBuffer:
        """Map the first `nbytes` as rows of bytes, for reading and writing: there is no other way.

        Raises
        ------
        CudaError
            If it has not so many.
        """
        description = driver().CUDA_EXTERNAL_MEMORY_BUFFER_DESC()
        description.offset = 0
        description.size = nbytes
        with activated(self.ordinal):
            address = call("cuExternalMemoryGetMappedBuffer", self._handle, description)
        return ExternalBuffer(self, int(address), nbytes)

    def array(
        self, offset: int, width: int, height: int, *, channels: int, itemsize: int, usage: int
    ) -> ExternalArray:
        """Map an optimal-tiled image, or one plane of it.

        Parameters
        ----------
        offset
            Where it begins, in bytes.
        width, height
            Its extent in pixels.
        channels, itemsize
            Components of a pixel, and bytes of a component.
        usage
            ``VkImageUsageFlags`` of the image.

        Raises
        ------
        CudaError
            If the memory has no such image.
        """
        formats = driver().CUarray_format
        array = driver().CUDA_ARRAY3D_DESCRIPTOR()
        array.Width, array.Height, array.Depth = width, height, 0
        array.Format = (
            formats.CU_AD_FORMAT_UNSIGNED_INT8
            if itemsize == 1
            else formats.CU_AD_FORMAT_UNSIGNED_INT16
        )
        array.NumChannels = channels
        array.Flags = (_SURFACE if usage & _VK_STORAGE else 0) | (
            _COLOR_ATTACHMENT if usage & _VK_COLOR_ATTACHMENT else 0
        )
        description = driver().CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC()
        description.offset = offset
        description.arrayDesc = array
        description.numLevels = 1
        with activated(self.ordinal), contextlib.ExitStack() as undo:
            levels = call("cuExternalMemoryGetMappedMipmappedArray", self._handle, description)
            undo.callback(call, "cuMipmappedArrayDestroy", levels)
            level = call("cuMipmappedArrayGetLevel", levels, 0)
            undo.pop_all()
        return ExternalArray(self, levels, level)

    def __del__(self) -> None:
        # At exit, and in a forked child, the driver is gone: the process takes it all along.
        if self._handle is None or sys.is_finalizing() or os.getpid() != self._pid:
            return
        with contextlib.suppress(CudaError), activated(self.ordinal):
            call("cuDestroyExternalMemory", self._handle)


class ExternalBuffer:
    """Addresses that show an external memory; unmapped when the last reference goes."""

    __slots__ = ("__weakref__", "_memory", "_pid", "address", "nbytes", "ordinal")

    def __init__(self, memory: ExternalMemory, address: int, nbytes: int) -> None:
        self._memory = memory
        self._pid = os.getpid()
        self.address = address
        self.nbytes = nbytes
        self.ordinal = memory.ordinal

    def __del__(self) -> None:
        if sys.is_finalizing() or os.getpid() != self._pid:
            return
        with contextlib.suppress(CudaError), activated(self.ordinal):
            # As for mapped ranges: a kernel that nobody told us of may still read.
            with RelaxedCapture():
                call("cuCtxSynchronize")
            call("cuMemFree", self.address)


class ExternalArray:
    """An image of an external memory; it has no address, and is copied out of."""

    __slots__ = ("__weakref__", "_level", "_levels", "_memory", "_pid")

    def __init__(self, memory: ExternalMemory, levels: Any, level: Any) -> None:
        self._memory = memory
        self._levels = levels
        self._level = level
        self._pid = os.getpid()

    def copy_to(self, address: int, pitch: int, row_bytes: int, rows: int, handle: int) -> None:
        """Queue a copy into rows of bytes on a stream, whose context must be current.

        Parameters
        ----------
        address, pitch
            Where the first row goes, and bytes from there to the next.
        row_bytes, rows
            How much.
        handle
            The stream's.
        """
        kinds = driver().CUmemorytype
        copy = driver().CUDA_MEMCPY2D()
        copy.srcMemoryType = kinds.CU_MEMORYTYPE_ARRAY
        copy.srcArray = self._level
        copy.dstMemoryType = kinds.CU_MEMORYTYPE_DEVICE
        copy.dstDevice = address
        copy.dstPitch = pitch
        copy.WidthInBytes = row_bytes
        copy.Height = rows
        call("cuMemcpy2DAsync", copy, handle)

    def __del__(self) -> None:
        if sys.is_finalizing() or os.getpid() != self._pid:
            return
        with contextlib.suppress(CudaError), activated(self._memory.ordinal):
            with RelaxedCapture():
                call("cuCtxSynchronize")
            call("cuMipmappedArrayDestroy", self._levels)


class SemaphoreStream:
    """A stream that waits for another interface's semaphore; destroyed with the last reference.

    It does nothing else, so what is queued on it comes right behind the semaphore.

    Parameters
    ----------
    fd
        An opaque descriptor of the semaphore; it stays the caller's.
    ordinal
        The GPU.
    timeline
        Whether it counts.

    Raises
    ------
    CudaError
        If the descriptor is no such thing.
    """

    __slots__ = ("_pid", "_semaphore", "_stream", "ordinal")

    def __init__(self, fd: OwnedFd, ordinal: int, *, timeline: bool) -> None:
        self._stream: Any = None
        self._semaphore: Any = None
        self._pid = os.getpid()
        self.ordinal = ordinal
        kinds = driver().CUexternalSemaphoreHandleType
        description = driver().CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC()
        description.type = (
            kinds.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_TIMELINE_SEMAPHORE_FD
            if timeline
            else kinds.CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD
        )
        raw = os.dup(fd.fileno())  # the driver's, once it is imported
        try:
            description.handle.fd = raw
            with activated(ordinal):
                self._semaphore = call("cuImportExternalSemaphore", description)
        except BaseException:
            with contextlib.suppress(OSError):
                os.close(raw)
            raise
        with activated(ordinal):
            self._stream = call("cuStreamCreate", 1)  # CU_STREAM_NON_BLOCKING

    def wait(self, value: int) -> None:
        """Queue a wait until the semaphore is signalled, or has come to `value`."""
        parameters = driver().CUDA_EXTERNAL_SEMAPHORE_WAIT_PARAMS()
        parameters.params.fence.value = value
        with activated(self.ordinal):
            call("cuWaitExternalSemaphoresAsync", [self._semaphore], [parameters], 1, self._stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return it in the protocol of cuda.core."""
        return (0, int(self._stream))

    def __del__(self) -> None:
        # At exit, and in a forked child, the driver is gone: the process takes it all along.
        if sys.is_finalizing() or os.getpid() != self._pid:
            return
        with contextlib.suppress(CudaError), activated(self.ordinal):
            if self._stream is not None:
                call("cuStreamDestroy", self._stream)
            if self._semaphore is not None:
                call("cuDestroyExternalSemaphore", self._semaphore)
