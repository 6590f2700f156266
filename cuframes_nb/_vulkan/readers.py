"""The Vulkan devices that this process reads other processes' images with."""

from __future__ import annotations

import functools
import os
import threading

from cuframes_nb._vulkan.device import Device

__all__ = ["ReadingDevice", "reading_device"]


class ReadingDevice:
    """A device, and the lock of its queue: subscribers on several threads share it.

    The lock may be taken again by its holder: an image may end in a finalizer, in the midst of
    another's copy.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        self.lock = threading.RLock()


def reading_device(uuid: bytes, driver_uuid: bytes) -> ReadingDevice:
    """Return the device with that UUID, of that very driver.

    It lasts as long as the process, like CUDA's primary context: its driver's threads and memory
    are not made anew for each publisher.

    Raises
    ------
    UnsupportedError
        If the bindings or the loader are not installed.
    DeviceError
        If it is not here.
    """
    return _device(os.getpid(), uuid, driver_uuid)  # a forked child's driver has no threads


@functools.lru_cache(maxsize=8)
def _device(pid: int, uuid: bytes, driver_uuid: bytes) -> ReadingDevice:
    del pid
    return ReadingDevice(Device.open(uuid, driver_uuid=driver_uuid))
