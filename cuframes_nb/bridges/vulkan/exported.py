"""What buffers and images have in common that are shared with subscribers."""

from __future__ import annotations

import contextlib
import importlib.util
import os
from collections.abc import Callable
from typing import Any, NamedTuple, Self

from cuframes_nb._cuda import devices
from cuframes_nb._memory.arena import Share
from cuframes_nb._memory.vulkan_export import VulkanExport
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._vulkan.calls import call, handle, number, vulkan
from cuframes_nb._vulkan.device import Device
from cuframes_nb._vulkan.memory import export_fd, offset_in_file, opaque_fd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind, Tiling
from cuframes_nb._wire.vulkan import ImageDescription, VulkanMemory, pack
from cuframes_nb.errors import DeviceError, InvalidArgumentError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["Allocated", "Exported", "allocate", "check_room"]


class Allocated(NamedTuple):
    """A program's ``VkDeviceMemory``, as it was allocated: Vulkan tells none of this later.

    Attributes
    ----------
    memory
        The handle, or its number. It was allocated with a ``VkExportMemoryAllocateInfo`` for opaque
        descriptors.
    nbytes, memory_type
        ``allocationSize`` and ``memoryTypeIndex`` of its ``VkMemoryAllocateInfo``.
    dedicated
        Whether there was a ``VkMemoryDedicatedAllocateInfo``.
    mapped
        Address that ``vkMapMemory`` returned for its first byte, if it is mapped; of use for
        software drivers only.
    """

    memory: Any
    nbytes: int
    memory_type: int
    dedicated: bool = False
    mapped: int | None = None


class Exported:
    """Memory of a Vulkan program that frames lie in, for ``Publisher(..., buffers=[...])``.

    Attributes
    ----------
    device : Device
        Where it is.
    handle
        The ``VkBuffer`` or ``VkImage``.
    layout : FrameLayout
        Size, format, and where the planes lie in it; for tiled images, in copies of it.
    """

    def __init__(
        self,
        device: Device,
        raw: Any,
        allocated: Allocated,
        layout: FrameLayout,
        *,
        offset: int,
        image: ImageDescription | None = None,
    ) -> None:
        self.device = device
        self.handle = raw
        self.layout = layout
        self._close: Callable[[], object] | None = None
        self._offset = offset
        self._image = image
        self._allocated = allocated._replace(memory=handle("VkDeviceMemory", allocated.memory))
        if not (device.is_software or device.physical.is_nvidia):
            raise UnsupportedError(
                f"frames in memory of {device.name} cannot be shared: subscribers read memory of "
                f"NVIDIA's GPUs, through CUDA, and of software drivers. Copy them into a "
                f"Publisher's own ring, with its write()"
            )
        with self._export() as fd:
            self._description = self._describe(fd)

    @property
    def memory(self) -> Any:
        """The ``VkDeviceMemory``."""
        return self._allocated.memory

    @property
    def tiling(self) -> str:
        """``"linear"``: rows of bytes; ``"optimal"``: an order that only the driver knows."""
        return self._description.tiling.name.lower()

    def close(self) -> None:
        """Destroy what `allocate` made, once; a program's own handles stay.

        Subscribers keep the pixels that they hold. No work of the GPU may use them any more.
        """
        close, self._close = self._close, None
        if close is not None:
            close()

    def __cuframes_share__(self, layout: FrameLayout) -> Share:
        """Share it with the subscribers of a publisher whose frames are like `layout`."""
        ours = self.layout
        if (layout.format, layout.width, layout.height) != (ours.format, ours.width, ours.height):
            raise InvalidArgumentError(
                f"the publisher's frames are {layout.width}x{layout.height} {layout.format}, and "
                f"this Vulkan memory holds {ours.width}x{ours.height} {ours.format}"
            )
        arena = VulkanExport(
            self._export(),
            self._description,
            _cuda_ordinal(self.device),
            (
                number(self.device.handle),
                number(self.memory),
                # Buffers that lie in one memory are one arena; each image has more to say.
                self._offset if self._image else None,
            ),
        )
        return Share(arena, 0 if self._image else self._offset, ours)

    def _export(self) -> OwnedFd:
        return export_fd(self.device, self.memory)

    def _describe(self, fd: OwnedFd) -> ArenaDescription:
        _, nbytes, memory_type, dedicated, mapped = self._allocated
        software = self.device.is_software
        begin = offset_in_file(self.device, self.memory, fd, mapped) if software else 0
        memory = VulkanMemory(
            nbytes,
            memory_type,
            self.device.uuid,
            self.device.driver_uuid,
            dedicated,
            software,
            begin,
            self._image,
        )
        return ArenaDescription(
            MemoryKind.VULKAN,
            os.fstat(fd.fileno()).st_size if software else nbytes,
            device_uuid=bytes(16) if software else self.device.uuid,
            tiling=Tiling.OPTIMAL if self._image else Tiling.LINEAR,
            data_offset=begin + (self._offset if self._image else 0),
            handle=pack(memory),
            external=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        what = f"{self.layout.width}x{self.layout.height} {self.layout.format} {self.tiling}"
        return f"<{type(self).__name__} {what} on {self.device.name!r}>"


def allocate(
    device: Device,
    needs: Any,
    dedicated: Any,
    undo: contextlib.ExitStack,
    nbytes: int | None = None,
) -> Allocated:
    """Return memory that can be shared, for a buffer or image that needs it.

    Parameters
    ----------
    device
        Where.
    needs
        ``VkMemoryRequirements``.
    dedicated
        A ``VkMemoryDedicatedAllocateInfo``, or None.
    undo
        Gets what frees it.
    nbytes
        How much, if it is more than one resource needs.
    """
    api = vulkan()
    kind = device.memory_type(needs.memoryTypeBits, api.VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT)
    shared = api.VkExportMemoryAllocateInfo(pNext=dedicated, handleTypes=opaque_fd())
    size = needs.size if nbytes is None else nbytes
    info = api.VkMemoryAllocateInfo(pNext=shared, allocationSize=size, memoryTypeIndex=kind)
    memory = call("vkAllocateMemory", device.handle, info, None)
    undo.callback(api.vkFreeMemory, device.handle, memory, None)
    return Allocated(memory, size, kind, dedicated is not None)


def check_room(memory: Allocated, offset: int, nbytes: int, what: str) -> None:
    """Check that what is bound at an offset of a memory lies in it.

    Raises
    ------
    InvalidArgumentError
        If not.
    """
    if not 0 <= offset <= offset + nbytes <= memory.nbytes:
        raise InvalidArgumentError(
            f"{what} takes {nbytes} bytes from byte {offset} on of a memory of {memory.nbytes}: "
            f"name the offset that it was bound at, and the allocation's size"
        )


def _cuda_ordinal(device: Device) -> int | None:
    """Return the GPU's number in CUDA, None if this process cannot use it through CUDA."""
    if device.is_software or importlib.util.find_spec("cupy") is None:
        return None
    with contextlib.suppress(DeviceError):
        for gpu in devices.gpus():
            if gpu.uuid == device.uuid:
                return gpu.ordinal
    return None
