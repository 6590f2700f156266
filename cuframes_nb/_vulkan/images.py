"""Images: made to be shared, or another process's bytes of one, put into rows."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Final

from cuframes_nb._vulkan.calls import VulkanError, call, chained, vulkan
from cuframes_nb._vulkan.device import Device
from cuframes_nb._vulkan.memory import opaque_fd
from cuframes_nb._vulkan.readers import ReadingDevice
from cuframes_nb._wire.vulkan import DISJOINT, TRANSFER_SRC, ImageDescription
from cuframes_nb.errors import RemoteProtocolError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["ImageReader", "bind_image", "check_offered", "create_image", "plane_aspects"]

# Names that the bindings lack (vulkan_core.h).
_PLANE_0: Final = 0x10  # VK_IMAGE_ASPECT_PLANE_0_BIT
_COLOR: Final = 0x1  # VK_IMAGE_ASPECT_COLOR_BIT


def plane_aspects(planes: int) -> tuple[int, ...]:
    """Return the aspect of each plane of a format with so many."""
    return (_COLOR,) if planes == 1 else tuple(_PLANE_0 << index for index in range(planes))


def check_offered(device: Device, image: ImageDescription, tiling: int) -> bool:
    """Ask the driver for such images: making one that it has not is undefined behaviour.

    Returns
    -------
    bool
        Whether they have to have a memory of their own each.

    Raises
    ------
    UnsupportedError
        If they are not shared, or not so large.
    VulkanError
        If it has none.
    """
    api = vulkan()
    kind = api.VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT
    asked = api.VkPhysicalDeviceImageFormatInfo2(
        pNext=api.VkPhysicalDeviceExternalImageFormatInfo(handleType=kind),
        format=image.format,
        type=api.VK_IMAGE_TYPE_2D,
        tiling=tiling,
        usage=image.usage,
        flags=image.create_flags,
    )
    shared = chained("VkExternalImageFormatProperties", "EXTERNAL_IMAGE_FORMAT_PROPERTIES")
    answer = chained("VkImageFormatProperties2", "IMAGE_FORMAT_PROPERTIES_2", shared)
    call("vkGetPhysicalDeviceImageFormatProperties2", device.physical.handle, asked, answer)
    features = shared.externalMemoryProperties.externalMemoryFeatures
    if not features & api.VK_EXTERNAL_MEMORY_FEATURE_EXPORTABLE_BIT:
        raise UnsupportedError(f"{device.name} does not share images of VkFormat {image.format}")
    most = answer.imageFormatProperties.maxExtent
    if image.width > most.width or image.height > most.height:
        raise UnsupportedError(
            f"{device.name} has such images up to {most.width}x{most.height}, and "
            f"{image.width}x{image.height} are asked for"
        )
    return bool(features & api.VK_EXTERNAL_MEMORY_FEATURE_DEDICATED_ONLY_BIT)


def create_image(device: Device, image: ImageDescription, tiling: int) -> Any:
    """Return a ``VkImage`` whose memory is shared as opaque descriptors, not yet bound.

    Raises
    ------
    VulkanError
        If the driver does not make such images.
    """
    api = vulkan()
    info = api.VkImageCreateInfo(
        pNext=api.VkExternalMemoryImageCreateInfo(handleTypes=opaque_fd()),
        flags=image.create_flags,
        imageType=api.VK_IMAGE_TYPE_2D,
        format=image.format,
        extent=api.VkExtent3D(image.width, image.height, 1),
        mipLevels=1,
        arrayLayers=1,
        samples=api.VK_SAMPLE_COUNT_1_BIT,
        tiling=tiling,
        usage=image.usage,
        sharingMode=api.VK_SHARING_MODE_EXCLUSIVE,
        initialLayout=api.VK_IMAGE_LAYOUT_UNDEFINED,
    )
    return call("vkCreateImage", device.handle, info, None)


def bind_image(device: Device, raw: Any, memory: Any, image: ImageDescription) -> None:
    """Bind an image, or each of its planes if it is disjoint, from the start of `memory` on."""
    api = vulkan()
    if not image.create_flags & DISJOINT:
        call("vkBindImageMemory", device.handle, raw, memory, 0)
        return
    aspects = plane_aspects(len(image.planes))
    binds = [
        api.VkBindImageMemoryInfo(
            pNext=api.VkBindImagePlaneMemoryInfo(planeAspect=aspect),
            image=raw,
            memory=memory,
            memoryOffset=plane,
        )
        for aspect, plane in zip(aspects, image.planes, strict=True)
    ]
    call("vkBindImageMemory2", device.handle, len(binds), binds)


class ImageReader:
    """Puts the bytes of a software driver's tiled image into rows, with that very driver.

    The image is not imported: the driver would believe what the other process has written before
    the pixels. Its bytes are copied into an image that was made alike, by the same version of the
    same driver, which so has them in the same order; then the driver copies that one into rows.

    Parameters
    ----------
    reader
        The device to do it with.
    image
        How the image was made, checked already for what can be checked without the driver.
    room
        How many bytes there are from its first one on.

    Raises
    ------
    RemoteProtocolError
        If the driver makes no such images, or they take more room.
    UnsupportedError
        If the image was not made to be copied from.
    """

    def __init__(self, reader: ReadingDevice, image: ImageDescription, room: int) -> None:
        self._reader = reader
        self._staging: tuple[Any, int] | None = None
        with contextlib.ExitStack() as undo:
            try:
                self._raw, self._bytes, self._nbytes = _twin(reader.device, image, room, undo)
            except VulkanError as error:
                raise RemoteProtocolError(
                    f"the publisher's Vulkan image cannot be made here: {error}"
                ) from error
            self._undo = undo.pop_all()

    def read(self, source: int, target: int, layout: FrameLayout) -> None:
        """Copy the image at address `source` to `target`, laid out like `layout`; waits."""
        with self._reader.lock:
            if self._staging is None:
                self._staging = _staging(self._reader.device, layout.nbytes, self._undo)
            buffer, mapped = self._staging
            ctypes.memmove(self._bytes, source, self._nbytes)
            self._reader.device.execute(lambda commands: self._copy(commands, buffer, layout))
            ctypes.memmove(target, mapped, layout.nbytes)

    def close(self) -> None:
        """Let go of the image, once."""
        with self._reader.lock:
            self._undo.close()

    def _copy(self, commands: Any, buffer: Any, layout: FrameLayout) -> None:
        api = vulkan()
        general, ignored = api.VK_IMAGE_LAYOUT_GENERAL, api.VK_QUEUE_FAMILY_IGNORED
        written = api.VkImageMemoryBarrier(
            srcAccessMask=api.VK_ACCESS_HOST_WRITE_BIT,
            dstAccessMask=api.VK_ACCESS_TRANSFER_READ_BIT,
            oldLayout=general,
            newLayout=general,
            srcQueueFamilyIndex=ignored,
            dstQueueFamilyIndex=ignored,
            image=self._raw,
            subresourceRange=api.VkImageSubresourceRange(_COLOR, 0, 1, 0, 1),
        )
        host, transfer = api.VK_PIPELINE_STAGE_HOST_BIT, api.VK_PIPELINE_STAGE_TRANSFER_BIT
        api.vkCmdPipelineBarrier(commands, host, transfer, 0, 0, None, 0, None, 1, [written])
        regions = [
            api.VkBufferImageCopy(
                bufferOffset=plane.offset,
                imageSubresource=api.VkImageSubresourceLayers(aspect, 0, 0, 1),
                imageExtent=api.VkExtent3D(plane.shape[1], plane.rows, 1),
            )
            for plane, aspect in zip(layout.planes, plane_aspects(len(layout.planes)), strict=True)
        ]
        api.vkCmdCopyImageToBuffer(commands, self._raw, general, buffer, len(regions), regions)


def _twin(
    device: Device, image: ImageDescription, room: int, undo: contextlib.ExitStack
) -> tuple[Any, int, int]:
    """Return an image that is made alike, the address of its bytes, and how many they are."""
    api = vulkan()
    if not image.usage & TRANSFER_SRC:
        raise UnsupportedError(
            "the publisher's Vulkan image cannot be copied from: make it with "
            "VK_IMAGE_USAGE_TRANSFER_SRC_BIT"
        )
    if image.create_flags & DISJOINT:
        raise UnsupportedError(
            "images of several planes are read on GPUs only: publish an ExportedBuffer"
        )
    check_offered(device, image, api.VK_IMAGE_TILING_OPTIMAL)
    raw = create_image(device, image, api.VK_IMAGE_TILING_OPTIMAL)
    undo.callback(api.vkDestroyImage, device.handle, raw, None)
    needs = call("vkGetImageMemoryRequirements", device.handle, raw)
    if needs.size > room:
        raise RemoteProtocolError(
            f"the publisher's Vulkan image takes {needs.size} bytes, and is said to lie in {room}"
        )
    memory, mapped = _visible(device, needs, undo)
    bind_image(device, raw, memory, image)
    return raw, mapped, needs.size


def _staging(device: Device, nbytes: int, undo: contextlib.ExitStack) -> tuple[Any, int]:
    """Return a buffer that images are copied to, and the address of its bytes."""
    api = vulkan()
    info = api.VkBufferCreateInfo(
        size=nbytes,
        usage=api.VK_BUFFER_USAGE_TRANSFER_DST_BIT,
        sharingMode=api.VK_SHARING_MODE_EXCLUSIVE,
    )
    buffer = call("vkCreateBuffer", device.handle, info, None)
    undo.callback(api.vkDestroyBuffer, device.handle, buffer, None)
    needs = call("vkGetBufferMemoryRequirements", device.handle, buffer)
    memory, mapped = _visible(device, needs, undo)
    call("vkBindBufferMemory", device.handle, buffer, memory, 0)
    return buffer, mapped


def _visible(device: Device, needs: Any, undo: contextlib.ExitStack) -> tuple[Any, int]:
    """Return memory that the CPU sees, and the address of its bytes."""
    api = vulkan()
    visible = api.VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT | api.VK_MEMORY_PROPERTY_HOST_COHERENT_BIT
    cached = visible | api.VK_MEMORY_PROPERTY_HOST_CACHED_BIT
    kind = device.memory_type(needs.memoryTypeBits, cached, visible)
    allocate = api.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=kind)
    memory = call("vkAllocateMemory", device.handle, allocate, None)
    undo.callback(api.vkFreeMemory, device.handle, memory, None)
    mapped = call("vkMapMemory", device.handle, memory, 0, needs.size, 0)
    return memory, int(api.ffi.cast("uintptr_t", api.ffi.from_buffer(mapped)))
