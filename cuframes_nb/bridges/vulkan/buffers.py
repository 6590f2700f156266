"""Buffers that a Vulkan program shares: rows of bytes."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Self

from cuframes_nb._vulkan.calls import call, handle, vulkan
from cuframes_nb._vulkan.device import Device
from cuframes_nb._vulkan.memory import opaque_fd
from cuframes_nb.bridges.vulkan.exported import Allocated, Exported, allocate, check_room
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout, PixelFormat

__all__ = ["ExportedBuffer"]


class ExportedBuffer(Exported):
    """A ``VkBuffer`` with a frame in it, which subscribers read where it is.

    Pass several to ``Publisher(..., ownership="external", buffers=[...])``.

    Parameters
    ----------
    device
        The device that it was made on.
    buffer
        The ``VkBuffer``, or its number. It was made with a ``VkExternalMemoryBufferCreateInfo`` for
        opaque descriptors.
    memory
        The memory that it is bound to.
    layout
        Size, format and pitches of the frame, from the buffer's first byte on.
    offset
        Byte of the memory that the buffer is bound at.

    Raises
    ------
    InvalidArgumentError
        If the frame does not fit the memory.
    UnsupportedError
        If memory of this device cannot be shared.
    VulkanError
        If the memory was not allocated to be exported.
    """

    def __init__(
        self,
        device: Device,
        buffer: Any,
        memory: Allocated,
        layout: FrameLayout,
        *,
        offset: int = 0,
    ) -> None:
        raw = handle("VkBuffer", buffer)
        needs = call("vkGetBufferMemoryRequirements", device.handle, raw)
        check_room(memory, offset, needs.size, "the buffer")
        if layout.planes[-1].end > needs.size:
            raise InvalidArgumentError(
                f"a frame ends at byte {layout.planes[-1].end} of a buffer of {needs.size} bytes"
            )
        super().__init__(device, raw, memory, layout, offset=offset)

    @classmethod
    def allocate(
        cls,
        device: Device,
        format: PixelFormat | str,  # noqa: A002  the field's word, as in FrameLayout
        width: int,
        height: int,
        *,
        pitch: int | Sequence[int] | None = None,
        usage: int = 0,
    ) -> Self:
        """Make a buffer for one frame, in memory of the device's own.

        Parameters
        ----------
        device
            Where.
        format, width, height, pitch
            As for `cuframes_nb.FrameLayout.make`.
        usage
            ``VkBufferUsageFlags`` besides copying from and to it.

        Raises
        ------
        VulkanError
            If there is not enough memory.
        """
        api = vulkan()
        layout = FrameLayout.make(format, width, height, pitch=pitch)
        copying = api.VK_BUFFER_USAGE_TRANSFER_SRC_BIT | api.VK_BUFFER_USAGE_TRANSFER_DST_BIT
        info = api.VkBufferCreateInfo(
            pNext=api.VkExternalMemoryBufferCreateInfo(handleTypes=opaque_fd()),
            size=-(-layout.nbytes // 4) * 4,  # vkCmdFillBuffer fills words
            usage=copying | usage,
            sharingMode=api.VK_SHARING_MODE_EXCLUSIVE,
        )
        with contextlib.ExitStack() as undo:
            raw = call("vkCreateBuffer", device.handle, info, None)
            undo.callback(api.vkDestroyBuffer, device.handle, raw, None)
            needs = call("vkGetBufferMemoryRequirements", device.handle, raw)
            memory = allocate(device, needs, None, undo)
            call("vkBindBufferMemory", device.handle, raw, memory.memory, 0)
            made = cls(device, raw, memory, layout)
            made._close = undo.pop_all().close
            return made
