"""Vulkan memory as descriptors, and descriptors and host memory as Vulkan memory."""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from typing import Any

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._vulkan.calls import call, chained, device_call, vulkan
from cuframes_nb._vulkan.device import Device
from cuframes_nb.errors import UnsupportedError

__all__ = [
    "bound_buffer",
    "export_fd",
    "host_pointer_alignment",
    "import_fd",
    "import_host_pointer",
    "offset_in_file",
    "opaque_fd",
]


def opaque_fd() -> int:
    """Return the bit of opaque descriptors among handle types."""
    return int(vulkan().VK_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD_BIT)


def export_fd(device: Device, memory: Any) -> OwnedFd:
    """Return a descriptor for memory that was allocated to be exported as one.

    Raises
    ------
    UnsupportedError
        If the device cannot.
    VulkanError
        If the memory cannot.
    """
    info = vulkan().VkMemoryGetFdInfoKHR(memory=memory, handleType=opaque_fd())
    fd = OwnedFd(device_call(device.handle, "vkGetMemoryFdKHR", info))
    fcntl.fcntl(fd.fileno(), fcntl.F_SETFD, fcntl.FD_CLOEXEC)  # Mesa leaves that to us
    return fd


def offset_in_file(device: Device, memory: Any, fd: OwnedFd, mapped: int | None) -> int:
    """Return where a software driver's memory begins in the memory file that it is shared as.

    The kernel knows: the driver maps that very file, and ``/proc/self/maps`` says which part of it
    an address shows. The file is sealed against shrinking, if the driver has not done so, and
    closed to other users.

    Parameters
    ----------
    device, memory, fd
        The memory, and its descriptor.
    mapped
        Where it is mapped, if it is already (from the memory's first byte on).

    Raises
    ------
    UnsupportedError
        If the driver does it in another way, or the file cannot be sealed.
    """
    information = os.fstat(fd.fileno())
    if not stat.S_ISREG(information.st_mode):
        raise UnsupportedError(
            f"{device.name} shares memory as something else than a memory file, which other "
            f"processes could not read: use a GPU's driver, or another version of Mesa"
        )
    _seal(device, fd)
    if mapped is not None:
        return _offset(device, mapped, information)
    api = vulkan()
    whole = call("vkMapMemory", device.handle, memory, 0, 1, 0)
    try:
        return _offset(
            device, int(api.ffi.cast("uintptr_t", api.ffi.from_buffer(whole))), information
        )
    finally:
        api.vkUnmapMemory(device.handle, memory)


def import_fd(device: Device, fd: OwnedFd, nbytes: int, memory_type: int) -> Any:
    """Return ``VkDeviceMemory`` of another process; `fd` stays the caller's.

    Parameters
    ----------
    device
        Of the same driver as the one that made it.
    fd
        Its descriptor.
    nbytes, memory_type
        With which it was allocated, for no image or buffer alone.
    """
    api = vulkan()
    raw = os.dup(fd.fileno())
    try:
        info = api.VkImportMemoryFdInfoKHR(handleType=opaque_fd(), fd=raw)
        return _allocate(device, nbytes, memory_type, info)
    except BaseException:
        # Only with success it becomes the driver's (VkImportMemoryFdInfoKHR).
        with contextlib.suppress(OSError):
            os.close(raw)
        raise


def host_pointer_alignment(device: Device) -> int:
    """Return what addresses and sizes of host memory have to be multiples of, in bytes.

    Raises
    ------
    UnsupportedError
        If the device cannot use host memory that it has not allocated.
    """
    if "VK_EXT_external_memory_host" not in device.physical.extensions:
        raise UnsupportedError(
            f"{device.name} cannot use host memory of others (it has no "
            f"VK_EXT_external_memory_host): copy the frame into a buffer of its own"
        )
    limits = chained(
        "VkPhysicalDeviceExternalMemoryHostPropertiesEXT",
        "PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT",
    )
    properties = chained("VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2", limits)
    call("vkGetPhysicalDeviceProperties2", device.physical.handle, properties)
    return int(limits.minImportedHostPointerAlignment)


def import_host_pointer(device: Device, address: int, nbytes: int) -> Any:
    """Return ``VkDeviceMemory`` that is `nbytes` of host memory, which has to outlive it."""
    api = vulkan()
    kind = api.VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT
    pointer = api.ffi.cast("void*", address)
    types = chained("VkMemoryHostPointerPropertiesEXT", "MEMORY_HOST_POINTER_PROPERTIES_EXT")
    device_call(device.handle, "vkGetMemoryHostPointerPropertiesEXT", kind, pointer, types)
    info = api.VkImportMemoryHostPointerInfoEXT(handleType=kind, pHostPointer=pointer)
    return _allocate(device, nbytes, device.memory_type(types.memoryTypeBits, 0), info)


def bound_buffer(device: Device, memory: Any, nbytes: int, handle_type: int, usage: int) -> Any:
    """Return a ``VkBuffer`` over the first `nbytes` of imported memory."""
    api = vulkan()
    buffer = call(
        "vkCreateBuffer",
        device.handle,
        api.VkBufferCreateInfo(
            pNext=api.VkExternalMemoryBufferCreateInfo(handleTypes=handle_type),
            size=nbytes,
            usage=usage,
            sharingMode=api.VK_SHARING_MODE_EXCLUSIVE,
        ),
        None,
    )
    try:
        call("vkBindBufferMemory", device.handle, buffer, memory, 0)
    except BaseException:
        api.vkDestroyBuffer(device.handle, buffer, None)
        raise
    return buffer


def _allocate(device: Device, nbytes: int, memory_type: int, info: Any) -> Any:
    allocate = vulkan().VkMemoryAllocateInfo(
        pNext=info, allocationSize=nbytes, memoryTypeIndex=memory_type
    )
    return call("vkAllocateMemory", device.handle, allocate, None)


def _seal(device: Device, fd: OwnedFd) -> None:
    # Else another uid that was handed a read-only descriptor could reopen it for writing.
    os.fchmod(fd.fileno(), 0o400)
    try:
        if not fcntl.fcntl(fd.fileno(), fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
            fcntl.fcntl(fd.fileno(), fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    except OSError as error:
        raise UnsupportedError(
            f"{device.name} shares memory as a file that cannot be sealed against shrinking "
            f"({error.strerror}): reading it could end another process, so none would"
        ) from error


def _offset(device: Device, address: int, information: os.stat_result) -> int:
    """Return which byte of a file lies at `address`, by the kernel's word (proc(5))."""
    for line in Path("/proc/self/maps").read_text(encoding="utf-8").splitlines():
        addresses, _, offset, numbers, inode, *_ = line.split()
        start, end = (int(part, 16) for part in addresses.split("-"))
        if start <= address < end:
            major, minor = (int(part, 16) for part in numbers.split(":"))
            same = os.makedev(major, minor) == information.st_dev
            if same and int(inode) == information.st_ino:
                return address - start + int(offset, 16)
    raise UnsupportedError(
        f"{device.name} maps its memory from something else than the file that it shares it as: "
        f"other processes could not find it there"
    )
