"""A Vulkan program, as a user would write one: it draws into buffers and images and reads them.

Where there is no GPU the driver is Mesa's lavapipe, which is a Vulkan driver like any other and
runs on the CPU.
"""

import contextlib
import functools
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.helpers.children import child_env

__all__ = [
    "GENERAL",
    "PACKAGES",
    "change_layout",
    "fill_and_signal",
    "fill_image",
    "host_bytes",
    "lavapipe",
    "make",
    "noise",
    "read_buffer",
    "write",
]

PACKAGES = ("libvulkan1", "mesa-vulkan-drivers")
"""What Debian and Ubuntu call the loader and lavapipe; `.ci/run` installs them."""

GENERAL = 1  # VK_IMAGE_LAYOUT_GENERAL
_ICDS = Path("/usr/share/vulkan/icd.d")


@contextlib.contextmanager
def lavapipe():
    """Have Vulkan find lavapipe alone for a block, here and in children.

    Without it the test is skipped; where changes are taken, it fails.
    """
    found = sorted(_ICDS.glob("lvp_icd*.json"))
    with pytest.MonkeyPatch.context() as patch:
        if found:
            patch.setenv("VK_ICD_FILENAMES", str(found[0]))
        if why := _why_not() if found else "no lavapipe":
            advice = f"{why}: pip install vulkan, and on Debian apt install {' '.join(PACKAGES)}"
            (pytest.fail if os.environ.get("CI") else pytest.skip)(advice)
        yield


@functools.cache
def _why_not():
    """Return why lavapipe does not work, tried in a process of its own; empty if it does."""
    code = "from cuframes_nb.bridges.vulkan import Device; print(Device.open().is_software)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        env=child_env(),
        text=True,
        timeout=60,
    )
    if done.stdout.strip() == "True":
        return ""
    return f"lavapipe does not work ({done.stderr.strip().splitlines()[-1:]})"


def noise(layout, seed=0):
    """Return the planes of a frame that no other seed has."""
    rng = np.random.default_rng(seed)
    top = np.iinfo(layout.format.dtype).max
    return [
        rng.integers(0, top, plane.shape, layout.format.dtype, endpoint=True)
        for plane in layout.planes
    ]


def make(device, kind, format_, size):
    """Return a buffer, or an image of tiling `kind`."""
    from cuframes_nb.bridges.vulkan import ExportedBuffer, ExportedImage

    if kind == "buffer":
        return ExportedBuffer.allocate(device, format_, *size)
    return ExportedImage.allocate(device, format_, *size, tiling=kind)


def write(device, exported, planes):
    """Have the GPU write arrays, one a plane and each of whole rows, into a buffer or image."""
    import vulkan as vk

    with host_bytes(device, sum(plane.nbytes for plane in planes)) as (staging, view):
        begins = np.cumsum([0, *(plane.nbytes for plane in planes)])
        for plane, begin in zip(planes, begins, strict=False):
            view[begin : begin + plane.nbytes] = np.ascontiguousarray(plane).view("u1").ravel()

        def record(commands):
            if "Image" in type(exported).__name__:
                fill_image(commands, exported, staging, begins)
            else:
                regions = [
                    vk.VkBufferCopy(
                        srcOffset=int(begin) + row * where.row_bytes,
                        dstOffset=where.offset + row * where.pitch,
                        size=where.row_bytes,
                    )
                    for where, begin in zip(exported.layout.planes, begins, strict=False)
                    for row in range(where.rows)
                ]
                vk.vkCmdCopyBuffer(commands, staging, exported.handle, len(regions), regions)

        device.execute(record)


def fill_and_signal(device, buffer, value, semaphore, count):
    """Queue a fill of a buffer that signals a semaphore; nobody waits.

    Returns
    -------
    object
        The ``VkCommandPool``, to be destroyed when the queue is done.
    """
    import vulkan as vk

    pool = vk.vkCreateCommandPool(
        device.handle, vk.VkCommandPoolCreateInfo(queueFamilyIndex=device.queue_family), None
    )
    allocate = vk.VkCommandBufferAllocateInfo(commandPool=pool, level=0, commandBufferCount=1)
    commands = vk.vkAllocateCommandBuffers(device.handle, allocate)[0]
    vk.vkBeginCommandBuffer(commands, vk.VkCommandBufferBeginInfo())
    vk.vkCmdFillBuffer(commands, buffer.handle, 0, 2**64 - 1, value * 0x01010101)
    vk.vkEndCommandBuffer(commands)
    counted = vk.VkTimelineSemaphoreSubmitInfo(
        signalSemaphoreValueCount=1, pSignalSemaphoreValues=[count]
    )
    submit = vk.VkSubmitInfo(
        pNext=counted if count else None,
        commandBufferCount=1,
        pCommandBuffers=[commands],
        signalSemaphoreCount=1,
        pSignalSemaphores=[semaphore.handle],
    )
    vk.vkQueueSubmit(device.queue, 1, [submit], vk.VK_NULL_HANDLE)
    return pool


def fill_image(commands, image, staging, begins):
    """Record a copy of planes into an image, which is then ready to be published."""
    import vulkan as vk

    change_layout(commands, image.handle, 0, 7, device=None)
    aspects = (0x1,) if len(image.layout.planes) == 1 else (0x10, 0x20)
    for where, aspect, begin in zip(image.layout.planes, aspects, begins, strict=False):
        region = vk.VkBufferImageCopy(
            bufferOffset=int(begin),
            imageSubresource=vk.VkImageSubresourceLayers(aspect, 0, 0, 1),
            imageExtent=vk.VkExtent3D(where.shape[1], where.rows, 1),
        )
        vk.vkCmdCopyBufferToImage(commands, staging, image.handle, 7, 1, [region])
    change_layout(commands, image.handle, 7, GENERAL, device=image.device)


def change_layout(commands, image, old, new, *, device):
    """Record a change of layout; with a `device`, the image is handed to whoever imports it."""
    import vulkan as vk

    ignored = vk.VK_QUEUE_FAMILY_IGNORED
    barrier = vk.VkImageMemoryBarrier(
        srcAccessMask=vk.VK_ACCESS_MEMORY_WRITE_BIT,
        dstAccessMask=0 if device else vk.VK_ACCESS_TRANSFER_WRITE_BIT,
        oldLayout=old,
        newLayout=new,
        srcQueueFamilyIndex=device.queue_family if device else ignored,
        dstQueueFamilyIndex=vk.VK_QUEUE_FAMILY_EXTERNAL if device else ignored,
        image=image,
        subresourceRange=vk.VkImageSubresourceRange(0x1, 0, 1, 0, 1),
    )
    every = vk.VK_PIPELINE_STAGE_ALL_COMMANDS_BIT
    vk.vkCmdPipelineBarrier(commands, every, every, 0, 0, None, 0, None, 1, [barrier])


@contextlib.contextmanager
def host_bytes(device, nbytes):
    """Give a buffer that the CPU sees, and its bytes as an array."""
    import vulkan as vk

    nbytes = max(4, int(nbytes))
    raw = device.handle
    buffer = vk.vkCreateBuffer(raw, vk.VkBufferCreateInfo(size=nbytes, usage=0x3), None)
    needs = vk.vkGetBufferMemoryRequirements(raw, buffer)
    kind = device.memory_type(needs.memoryTypeBits, 0x6)  # visible, coherent
    info = vk.VkMemoryAllocateInfo(allocationSize=needs.size, memoryTypeIndex=kind)
    memory = vk.vkAllocateMemory(raw, info, None)
    try:
        vk.vkBindBufferMemory(raw, buffer, memory, 0)
        yield buffer, np.frombuffer(vk.vkMapMemory(raw, memory, 0, nbytes, 0), np.uint8)
    finally:
        vk.vkDestroyBuffer(raw, buffer, None)
        vk.vkFreeMemory(raw, memory, None)


def read_buffer(device, buffer, offset, layout):
    """Have the GPU copy a frame out of a buffer; return its planes as arrays."""
    import vulkan as vk

    nbytes = layout.planes[-1].end
    with host_bytes(device, nbytes) as (staging, view):
        region = vk.VkBufferCopy(srcOffset=offset, dstOffset=0, size=nbytes)
        device.execute(lambda commands: vk.vkCmdCopyBuffer(commands, buffer, staging, 1, [region]))
        read = view.copy()
    dtype = layout.format.dtype
    return [
        np.ndarray(plane.shape, dtype, read.data, plane.offset, plane.strides).copy()
        for plane in layout.planes
    ]
