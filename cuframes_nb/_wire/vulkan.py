"""What has to be known of Vulkan memory to import it: the handle of an arena of kind VULKAN.

The numbers are Vulkan's own (vulkan_core.h); they are written out here, because a subscriber that
reads through CUDA, or maps a software driver's memory, needs no Vulkan.
"""

from __future__ import annotations

import dataclasses
import struct
from typing import Final

from cuframes_nb._wire.messages import ArenaDescription, MemoryKind, Tiling
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError
from cuframes_nb.formats import FrameLayout, PixelFormat

__all__ = [
    "DISJOINT",
    "FORMATS",
    "TRANSFER_SRC",
    "ImageDescription",
    "VulkanMemory",
    "check",
    "pack",
    "unpack",
]

_VERSION: Final = 1

HEAD: Final = struct.Struct("<HHQQI16s16s")
"""version, flags, memory_offset, allocation_nbytes, memory_type, device, driver."""

IMAGE: Final = struct.Struct("<IIIIIH")
"""format, width, height, create_flags, usage, planes."""

_PLANE: Final = struct.Struct("<Q")

_IS_IMAGE: Final = 1
_DEDICATED: Final = 2
_HOST: Final = 4

_MEMORY_TYPES: Final = 32  # VK_MAX_MEMORY_TYPES

FORMATS: Final = {
    PixelFormat.NV12: (1000156003,),  # G8_B8R8_2PLANE_420_UNORM
    PixelFormat.P010: (1000156013,),  # G10X6_B10X6R10X6_2PLANE_420_UNORM_3PACK16
    PixelFormat.GRAY8: (9, 13),  # R8_UNORM, R8_UINT
    PixelFormat.RGB24: (23, 27, 29),  # R8G8B8_UNORM, _UINT, _SRGB
    PixelFormat.RGBA32: (37, 41, 43),  # R8G8B8A8_UNORM, _UINT, _SRGB
}
"""The ``VkFormat``s whose bytes are those of a pixel format; the first is the usual one."""

TRANSFER_SRC: Final = 0x1  # VK_IMAGE_USAGE_TRANSFER_SRC_BIT
DISJOINT: Final = 0x200  # VK_IMAGE_CREATE_DISJOINT_BIT

_CREATE_FLAGS: Final = 0x8 | DISJOINT | 0x400  # MUTABLE_FORMAT, DISJOINT, ALIAS
_USAGE: Final = 0xFF  # those of Vulkan 1.0
_KNOWN_FLAGS: Final = _IS_IMAGE | _DEDICATED | _HOST


@dataclasses.dataclass(frozen=True, slots=True)
class ImageDescription:
    """An image in the driver's own order.

    Attributes
    ----------
    format
        ``VkFormat``.
    width, height
        Extent in pixels.
    create_flags, usage
        Of its ``VkImageCreateInfo``; it has one level, one layer and one sample.
    planes
        Bytes from the start of the image to each plane. One number for an image that was bound as
        a whole, whatever its format; one a plane for a disjoint image.
    """

    format: int
    width: int
    height: int
    create_flags: int
    usage: int
    planes: tuple[int, ...]


@dataclasses.dataclass(frozen=True, slots=True)
class VulkanMemory:
    """One ``VkDeviceMemory``, and the image in it if that is tiled.

    Attributes
    ----------
    allocation_nbytes
        ``allocationSize`` of its ``VkMemoryAllocateInfo``.
    memory_type
        ``memoryTypeIndex`` of the same.
    device_uuid, driver_uuid
        Of ``VkPhysicalDeviceIDProperties``: who can import the descriptor through Vulkan.
    dedicated
        Whether it was allocated for this buffer or image alone.
    host
        Whether the descriptor is a memory file, which a software driver made.
    memory_offset
        Where in that file the memory begins; else 0.
    image
        None for rows of bytes: a buffer or a linear image.
    """

    allocation_nbytes: int
    memory_type: int
    device_uuid: bytes
    driver_uuid: bytes
    dedicated: bool = False
    host: bool = False
    memory_offset: int = 0
    image: ImageDescription | None = None


def pack(memory: VulkanMemory) -> bytes:
    """Return `memory` as the bytes of an arena's handle."""
    image = memory.image
    flags = _IS_IMAGE * (image is not None) | _DEDICATED * memory.dedicated | _HOST * memory.host
    packed = HEAD.pack(
        _VERSION, flags, memory.memory_offset, memory.allocation_nbytes, memory.memory_type,
        memory.device_uuid, memory.driver_uuid,
    )  # fmt: skip
    if image is None:
        return packed
    packed += IMAGE.pack(
        image.format, image.width, image.height, image.create_flags, image.usage, len(image.planes)
    )
    return packed + b"".join(map(_PLANE.pack, image.planes))


def unpack(arena: ArenaDescription) -> VulkanMemory:
    """Return what an arena of kind VULKAN says of its memory.

    Raises
    ------
    RemoteProtocolError
        If its handle is cut off, of another version, or against itself or its arena; no other
        exception comes out.
    """
    if arena.kind is not MemoryKind.VULKAN:
        raise LocalProtocolError(f"memory of kind {arena.kind.label} is none of Vulkan's")
    handle = arena.handle
    if len(handle) < HEAD.size:
        raise _error(f"has {len(handle)} bytes, and needs {HEAD.size} or more")
    version, flags, memory_offset, allocation, memory_type, device, driver = HEAD.unpack_from(
        handle
    )
    if version != _VERSION:
        raise _error(f"is of version {version}, and this process reads version {_VERSION}")
    if flags & ~_KNOWN_FLAGS:
        raise _error(f"has flags {flags:#x}, which are not known")
    rest = handle[HEAD.size :]
    image = _image(rest) if flags & _IS_IMAGE else None
    if image is None and rest:
        raise _error(f"has {len(rest)} bytes too many")
    memory = VulkanMemory(
        allocation, memory_type, device, driver, bool(flags & _DEDICATED), bool(flags & _HOST),
        memory_offset, image,
    )  # fmt: skip
    _check_memory(memory, arena)
    return memory


def check(arena: ArenaDescription, layout: FrameLayout) -> None:
    """Check that frames of `layout` can lie in an arena of kind VULKAN.

    Raises
    ------
    RemoteProtocolError
        If not.
    """
    memory = unpack(arena)
    image = memory.image
    if image is None:
        return  # rows of bytes: the extents of the slots say it all
    if (image.width, image.height) != (layout.width, layout.height):
        raise _error(
            f"has an image of {image.width}x{image.height} for frames of "
            f"{layout.width}x{layout.height}"
        )
    if image.format not in FORMATS[layout.format]:
        raise _error(f"has an image of VkFormat {image.format} for frames of {layout.format}")
    if len(image.planes) not in {1, len(layout.planes)}:
        raise _error(f"has {len(image.planes)} planes for {layout.format}")
    # Whatever the order of the pixels, they take room: each plane lies between its offset and the
    # next one's, the last one up to the end.
    room = memory.memory_offset + memory.allocation_nbytes - arena.data_offset
    sizes = [plane.rows * plane.row_bytes for plane in layout.planes]
    needs = sizes if len(image.planes) > 1 else [sum(sizes)]
    ends = [*image.planes[1:], room]
    for start, need, end in zip(image.planes, needs, ends, strict=True):
        if start + need > end:
            raise _error(
                f"has {need} bytes of pixels from byte {start} on, and room up to byte {end}"
            )


def _image(rest: bytes) -> ImageDescription:
    if len(rest) < IMAGE.size:
        raise _error("ends inside its image")
    format_, width, height, create_flags, usage, count = IMAGE.unpack_from(rest)
    if len(rest) != IMAGE.size + count * _PLANE.size:
        raise _error(f"has {len(rest)} bytes for an image of {count} planes")
    planes = tuple(_PLANE.unpack_from(rest, IMAGE.size + i * _PLANE.size)[0] for i in range(count))
    image = ImageDescription(format_, width, height, create_flags, usage, planes)
    if not planes or (len(planes) > 1) != bool(image.create_flags & DISJOINT):
        raise _error(f"has {count} planes with create flags {image.create_flags:#x}")
    if image.create_flags & ~_CREATE_FLAGS:
        raise _error(f"has an image with create flags {image.create_flags:#x}")
    if not image.usage or image.usage & ~_USAGE:
        raise _error(f"has an image with usage {image.usage:#x}")
    return image


def _check_memory(memory: VulkanMemory, arena: ArenaDescription) -> None:
    if memory.memory_type >= _MEMORY_TYPES:
        raise _error(f"has memory type {memory.memory_type} of {_MEMORY_TYPES}")
    if (memory.image is not None) != (arena.tiling is Tiling.OPTIMAL):
        raise _error(f"does not fit memory with tiling {arena.tiling.name}")
    if memory.memory_offset and not memory.host:
        raise _error("has an offset into a descriptor that is no memory file")
    if memory.host == any(arena.device_uuid):
        raise _error("does not say alike whether the memory is a GPU's")
    end = memory.memory_offset + memory.allocation_nbytes
    # The slots' extents are checked against the arena: a file is mapped whole, and a GPU's memory
    # as far as it goes.
    fits = end <= arena.nbytes if memory.host else end == arena.nbytes
    if not memory.allocation_nbytes or not fits:
        raise _error(
            f"has {memory.allocation_nbytes} bytes of memory from byte {memory.memory_offset} of "
            f"{arena.nbytes}"
        )
    if not memory.memory_offset <= arena.data_offset < end:
        raise _error(
            f"has memory up to byte {end}, and what is shared begins at byte {arena.data_offset}"
        )


def _error(what: str) -> RemoteProtocolError:
    return RemoteProtocolError(f"the publisher's description of its Vulkan memory {what}")
