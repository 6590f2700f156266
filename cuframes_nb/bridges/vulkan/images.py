"""Images that a Vulkan program shares: linear ones as rows of bytes, tiled ones to be copied."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, Final, Self

from cuframes_nb._vulkan.calls import VulkanError, call, chained, handle, vulkan
from cuframes_nb._vulkan.device import Device
from cuframes_nb._vulkan.images import bind_image, check_offered, create_image, plane_aspects
from cuframes_nb._wire.vulkan import DISJOINT, FORMATS, ImageDescription
from cuframes_nb.bridges.vulkan.exported import Allocated, Exported, allocate, check_room
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError
from cuframes_nb.formats import FrameLayout, PixelFormat

__all__ = ["ExportedImage"]

_TILINGS: Final = {"optimal": 0, "linear": 1}
"""``VkImageTiling``."""


class ExportedImage(Exported):
    """A ``VkImage`` with a frame in it: one level, one layer, one sample, two dimensions.

    A linear image is read where it is. The pixels of an optimal-tiled one are in an order that only
    the driver knows, so subscribers copy each frame out of it, through the driver; their `info`
    says ``sharing="copied"``.

    While it is published, the image is in ``VK_IMAGE_LAYOUT_GENERAL`` and belongs to the queue
    family ``VK_QUEUE_FAMILY_EXTERNAL``.

    Parameters
    ----------
    device
        The device that it was made on.
    image
        The ``VkImage``, or its number. It was made with a ``VkExternalMemoryImageCreateInfo`` for
        opaque descriptors, and can be copied from (``VK_IMAGE_USAGE_TRANSFER_SRC_BIT``).
    memory
        The memory that it is bound to.
    vk_format
        Its ``VkFormat``: the 8-bit formats of R, RGB or RGBA, or NV12's and P010's two-plane ones.
    width, height
        Its extent in pixels.
    tiling
        ``"optimal"`` or ``"linear"``.
    usage, create_flags
        Of its ``VkImageCreateInfo``.
    offset
        Byte of the memory that it is bound at; of a disjoint image, one a plane. An optimal-tiled
        image of several planes has to be disjoint: where they lie in a joint one is not told.

    Raises
    ------
    InvalidArgumentError
        If something does not fit.
    UnsupportedError
        If it has no pixel format of ours, or memory of this device cannot be shared.
    VulkanError
        If the memory was not allocated to be exported.
    """

    def __init__(
        self,
        device: Device,
        image: Any,
        memory: Allocated,
        *,
        vk_format: int,
        width: int,
        height: int,
        tiling: str,
        usage: int,
        create_flags: int = 0,
        offset: int | Sequence[int] = 0,
    ) -> None:
        if tiling not in _TILINGS:
            raise InvalidArgumentError(f"tiling {tiling!r} is not known; use optimal or linear")
        raw = handle("VkImage", image)
        pixels = _pixel_format(vk_format)
        offsets = [offset] if isinstance(offset, int) else list(offset)
        disjoint = bool(create_flags & DISJOINT)
        _check_planes(pixels, tiling, len(offsets), disjoint=disjoint)
        for begin, need in zip(offsets, _needs(device, raw, len(offsets)), strict=True):
            check_room(
                memory, begin, need.size, "a plane of the image" if disjoint else "the image"
            )
        if tiling == "linear":
            layout = _linear_layout(device, raw, pixels, width, height)
            super().__init__(device, raw, memory, layout, offset=offsets[0])
            return
        layout = _tight_layout(pixels, width, height)
        planes = tuple(begin - offsets[0] for begin in offsets)
        described = ImageDescription(vk_format, width, height, create_flags, usage, planes)
        super().__init__(device, raw, memory, layout, offset=offsets[0], image=described)

    @classmethod
    def allocate(
        cls,
        device: Device,
        format: PixelFormat | str,  # noqa: A002  the field's word, as in FrameLayout
        width: int,
        height: int,
        *,
        tiling: str = "optimal",
        usage: int = 0,
    ) -> Self:
        """Make an image for one frame, in memory of the device's own.

        Parameters
        ----------
        device
            Where.
        format, width, height
            What it holds; NV12 and P010 need even sizes.
        tiling
            ``"optimal"`` or ``"linear"``.
        usage
            ``VkImageUsageFlags`` besides copying from and to it.

        Raises
        ------
        InvalidArgumentError
            If the size is odd where it may not be.
        UnsupportedError
            If the driver has no such images.
        VulkanError
            If there is not enough memory.
        """
        if tiling not in _TILINGS:
            raise InvalidArgumentError(f"tiling {tiling!r} is not known; use optimal or linear")
        api = vulkan()
        layout = _tight_layout(PixelFormat.parse(format), width, height)
        if layout.format.is_semiplanar and (width % 2 or height % 2):
            raise InvalidArgumentError(
                f"Vulkan's images of {layout.format} have even sizes, not {width}x{height}: use an "
                f"ExportedBuffer"
            )
        copying = api.VK_IMAGE_USAGE_TRANSFER_SRC_BIT | api.VK_IMAGE_USAGE_TRANSFER_DST_BIT
        count = len(layout.planes)
        disjoint = count > 1 and tiling == "optimal"
        image = ImageDescription(
            FORMATS[layout.format][0],
            width,
            height,
            DISJOINT if disjoint else 0,
            copying | usage,
            (0,) * (count if disjoint else 1),
        )
        with contextlib.ExitStack() as undo:
            raw, alone = _create(device, image, layout, tiling)
            undo.callback(api.vkDestroyImage, device.handle, raw, None)
            if disjoint:
                image, memory = _allocate_disjoint(device, raw, image, undo)
            else:
                (need,) = _needs(device, raw, 1)
                dedicated = api.VkMemoryDedicatedAllocateInfo(image=raw) if alone else None
                memory = allocate(device, need, dedicated, undo)
            bind_image(device, raw, memory.memory, image)
            made = cls(
                device,
                raw,
                memory,
                vk_format=image.format,
                width=width,
                height=height,
                tiling=tiling,
                usage=image.usage,
                create_flags=image.create_flags,
                offset=image.planes if disjoint else 0,
            )
            made._close = undo.pop_all().close
            return made


def _pixel_format(vk_format: int) -> PixelFormat:
    for pixels, numbers in FORMATS.items():
        if vk_format in numbers:
            return pixels
    known = ", ".join(f"{name} ({numbers[0]})" for name, numbers in FORMATS.items())
    raise UnsupportedError(
        f"images of VkFormat {vk_format} are not shared: have the GPU convert it, with "
        f"vkCmdBlitImage or a shader, to one for {known}"
    )


def _linear_layout(
    device: Device, raw: Any, pixels: PixelFormat, width: int, height: int
) -> FrameLayout:
    """Return where the driver puts the rows of a linear image."""
    api = vulkan()
    aspects = plane_aspects(len(pixels.plane_shapes(width, height)))
    found = [
        call(
            "vkGetImageSubresourceLayout",
            device.handle,
            raw,
            api.VkImageSubresource(aspectMask=aspect, mipLevel=0, arrayLayer=0),
        )
        for aspect in aspects
    ]
    return FrameLayout.make(
        pixels,
        width,
        height,
        pitch=[plane.rowPitch for plane in found],
        offsets=[plane.offset for plane in found],
    )


def _tight_layout(pixels: PixelFormat, width: int, height: int) -> FrameLayout:
    shapes = pixels.plane_shapes(width, height)
    row_bytes = [pixels.itemsize * s[1] * (s[2] if len(s) > 2 else 1) for s in shapes]
    return FrameLayout.make(pixels, width, height, pitch=row_bytes)


def _check_planes(pixels: PixelFormat, tiling: str, offsets: int, *, disjoint: bool) -> None:
    """Check that each plane is bound by itself where it has to be, and only there."""
    if disjoint != (tiling == "optimal" and pixels.is_semiplanar):
        raise UnsupportedError(
            "optimal-tiled images of several planes have to be made with "
            "VK_IMAGE_CREATE_DISJOINT_BIT, each plane bound by itself, since the driver tells "
            "nobody where those of a joint one lie; all others without it"
        )
    planes = 2 if disjoint else 1
    if offsets != planes:
        raise InvalidArgumentError(
            f"{offsets} offsets are given, and such an image of {pixels} has {planes}"
        )


def _needs(device: Device, raw: Any, planes: int) -> list[Any]:
    """Return the ``VkMemoryRequirements`` of an image, or of each plane of a disjoint one."""
    if planes == 1:
        return [call("vkGetImageMemoryRequirements", device.handle, raw)]
    api = vulkan()
    answers = []
    for aspect in plane_aspects(planes):
        asked = api.VkImageMemoryRequirementsInfo2(
            pNext=api.VkImagePlaneMemoryRequirementsInfo(planeAspect=aspect), image=raw
        )
        answer = chained("VkMemoryRequirements2", "MEMORY_REQUIREMENTS_2")
        call("vkGetImageMemoryRequirements2", device.handle, asked, answer)
        need = answer.memoryRequirements
        answers.append(
            api.VkMemoryRequirements(
                size=need.size, alignment=need.alignment, memoryTypeBits=need.memoryTypeBits
            )
        )
    return answers


def _create(
    device: Device, image: ImageDescription, layout: FrameLayout, tiling: str
) -> tuple[Any, bool]:
    """Return a ``VkImage``, not yet bound, and whether it has to have a memory of its own."""
    try:
        alone = check_offered(device, image, _TILINGS[tiling])
        raw = create_image(device, image, _TILINGS[tiling])
    except VulkanError as error:
        if "FormatNotSupported" not in error.result:
            raise
        raise UnsupportedError(
            f"{device.name} has no shareable {tiling} images of {layout.format} "
            f"(VkFormat {image.format}): use an ExportedBuffer"
        ) from error
    # Drivers like tiled images to be alone; rows that are not can be imported as buffers, too.
    return raw, alone or tiling == "optimal"


def _allocate_disjoint(
    device: Device, raw: Any, image: ImageDescription, undo: contextlib.ExitStack
) -> tuple[ImageDescription, Allocated]:
    """Allocate one memory for all planes of a disjoint image; return where each begins in it."""
    api = vulkan()
    begins, end, bits = [], 0, ~0
    for need in _needs(device, raw, len(image.planes)):
        begins.append(-(-end // need.alignment) * need.alignment)
        end = begins[-1] + need.size
        bits &= need.memoryTypeBits
    both = api.VkMemoryRequirements(size=end, alignment=1, memoryTypeBits=bits)
    memory = allocate(device, both, None, undo)
    planes = tuple(begins)
    return (
        ImageDescription(
            image.format, image.width, image.height, image.create_flags, image.usage, planes
        ),
        memory,
    )
