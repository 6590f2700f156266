"""Memory of Vulkan programs: of an NVIDIA GPU, read through CUDA, or of a software driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from cuframes_nb._memory import vulkan_host
from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._memory.vulkan_export import VulkanExport
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._runtime.backend import Backend, CompletionWriter
from cuframes_nb._runtime.cuda_backend import CudaBackend
from cuframes_nb._runtime.host_backend import HostBackend, HostCompletion
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._views.tiled import CudaTiledPlanes, HostTiledPlanes, UnmappedPlanes
from cuframes_nb._wire.control import ControlWriter
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind, Tiling
from cuframes_nb._wire.vulkan import unpack
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout

__all__ = ["VulkanCudaBackend", "VulkanHostBackend", "for_publisher", "for_subscriber"]

_TILED: Final = "each frame is copied out of the driver's own order of pixels, once"
_MAPPED: Final = "mapped for writing, too: for Vulkan's memory CUDA knows no other way"


def for_publisher(backend: Backend) -> Backend:
    """Return the backend for a program's memory where `backend` would be for arrays.

    With CUDA on the same GPU, completion can be told by the GPU, behind a semaphore; without, the
    program has waited when it publishes.
    """
    if isinstance(backend, CudaBackend):
        return VulkanCudaBackend(backend.gpu, f"in Vulkan memory on {backend.gpu.name}")
    return VulkanHostBackend("in Vulkan memory")


def for_subscriber(
    description: ArenaDescription, device: str | int | None, hint: str = ""
) -> Backend:
    """Return the backend that maps another process's Vulkan memory.

    Parameters
    ----------
    description
        What the publisher says of it.
    device, hint
        As ``CudaBackend.for_subscriber`` has them.

    Raises
    ------
    InvalidArgumentError
        If a `device` is named for host memory.
    DeviceError
        If the GPU that holds it is not here, hidden, or another than the one asked for.
    UnsupportedError
        If CuPy is missing.
    """
    tiled = description.tiling is Tiling.OPTIMAL
    if not unpack(description).host:
        how = _TILED if tiled else _MAPPED
        backend = VulkanCudaBackend.for_subscriber(description.device_uuid, device, hint)
        backend.reason = f"{backend.reason}, {how}"
        return backend
    if device is not None:
        raise InvalidArgumentError(
            f"the frames are in host memory, by a software Vulkan driver, which has no device, but "
            f"device={device!r} was given: subscribe without device="
        )
    how = _TILED if tiled else "mapped read-only"
    return VulkanHostBackend(f"a software Vulkan driver's memory file, {how}")


class VulkanHostBackend(HostBackend):
    """Memory of a software Vulkan driver; for a publisher, of any."""

    kind = MemoryKind.VULKAN

    def attach_arena(self, parts: Sequence[Part], *, writable: bool) -> Arena:
        (part,) = parts
        return vulkan_host.attach(part.description, part.descriptor(), writable=writable)

    def planes(self, arena: Arena, offset: int, layout: FrameLayout) -> PlaneSource:
        match arena:
            case VulkanExport():
                return UnmappedPlanes(self.device)
            case vulkan_host.VulkanHostImage():
                return HostTiledPlanes(arena, layout)
            case _:
                return super().planes(arena, offset, layout)

    def completion(self, control: ControlWriter, mapping: Mapping) -> CompletionWriter:
        del mapping
        return HostCompletion(
            control,
            "the program waits for its Vulkan queue, or bridges.vulkan.Semaphore.after does, "
            "before publish_buffer",
        )


class _Completion(CompletionWriter):
    """The GPU writes the word behind a stream that is named; without one nothing is to wait for.

    What CUDA need not do is faster: behind Vulkan's work it was seen to take a millisecond.
    """

    def __init__(self, control: ControlWriter, behind_a_stream: CompletionWriter) -> None:
        self._behind_a_stream = behind_a_stream
        self._at_once = HostCompletion(control, "")
        self.method = behind_a_stream.method
        self.reason = (
            f"behind the bridges.vulkan.Semaphore that publish_buffer is given, "
            f"{behind_a_stream.reason}; without one the program waits for its Vulkan queue before"
        )

    def complete(self, slot: int, value: int, stream: object | None) -> None:
        writer = self._at_once if stream is None else self._behind_a_stream
        writer.complete(slot, value, stream)

    def close(self) -> None:
        self._behind_a_stream.close()


class VulkanCudaBackend(CudaBackend):
    """Memory of a Vulkan program on an NVIDIA GPU."""

    kind = MemoryKind.VULKAN

    def completion(self, control: ControlWriter, mapping: Mapping) -> CompletionWriter:
        return _Completion(control, super().completion(control, mapping))

    def attach_arena(self, parts: Sequence[Part], *, writable: bool) -> Arena:
        from cuframes_nb._memory import vulkan_cuda

        del writable  # CUDA maps memory of others for writing in any case
        (part,) = parts
        return vulkan_cuda.attach(part.description, part.descriptor(), self.gpu)

    def planes(self, arena: Arena, offset: int, layout: FrameLayout) -> PlaneSource:
        from cuframes_nb._memory.vulkan_cuda import VulkanCudaImage

        match arena:
            case VulkanExport():
                return UnmappedPlanes(self.device)
            case VulkanCudaImage():
                return CudaTiledPlanes(arena, layout, self.gpu.ordinal)
            case _:
                return super().planes(arena, offset, layout)
