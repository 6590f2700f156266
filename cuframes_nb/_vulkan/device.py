"""One Vulkan device: found by UUID, or its user's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, Self

from cuframes_nb._core.uuids import uuid_text
from cuframes_nb._vulkan.calls import VulkanError, call, chained, handle, vulkan
from cuframes_nb.errors import ClosedError, DeviceError

__all__ = ["Device", "PhysicalDevice"]

_API: Final = (1, 2, 0)
"""The oldest Vulkan that is asked for: 1.1 has external memory, 1.2 timeline semaphores."""

_NEEDED: Final = ("VK_KHR_external_memory_fd",)
_WANTED: Final = ("VK_KHR_external_semaphore_fd", "VK_EXT_external_memory_host")

_NVIDIA: Final = 0x10DE
"""PCI vendor."""

_SECONDS: Final = 10.0
"""For work that this package queues itself: copies of a frame."""


class PhysicalDevice(NamedTuple):
    """What a driver says of one of its devices."""

    handle: Any
    name: str
    uuid: bytes
    driver_uuid: bytes
    is_software: bool  #: the CPU plays the GPU (``VK_PHYSICAL_DEVICE_TYPE_CPU``)
    is_nvidia: bool  #: by its PCI vendor: CUDA can have its memory
    memory_types: tuple[int, ...]  #: property flags by index
    extensions: frozenset[str]

    @classmethod
    def of(cls, raw: Any) -> PhysicalDevice:
        """Ask the driver about a ``VkPhysicalDevice``."""
        api = vulkan()
        raw = handle("VkPhysicalDevice", raw)
        ids = chained("VkPhysicalDeviceIDProperties", "PHYSICAL_DEVICE_ID_PROPERTIES")
        both = chained("VkPhysicalDeviceProperties2", "PHYSICAL_DEVICE_PROPERTIES_2", ids)
        call("vkGetPhysicalDeviceProperties2", raw, both)
        memory = call("vkGetPhysicalDeviceMemoryProperties", raw)
        extensions = call("vkEnumerateDeviceExtensionProperties", raw, None)
        return cls(
            raw,
            api.ffi.string(both.properties.deviceName).decode(errors="replace"),
            bytes(ids.deviceUUID),
            bytes(ids.driverUUID),
            both.properties.deviceType == api.VK_PHYSICAL_DEVICE_TYPE_CPU,
            both.properties.vendorID == _NVIDIA,
            tuple(memory.memoryTypes[i].propertyFlags for i in range(memory.memoryTypeCount)),
            frozenset(extension.extensionName for extension in extensions),
        )


class Device:
    """A Vulkan device that can share memory with other processes, and a queue of it.

    Made with `open`, or with `adopt` around a program's own. Not thread-safe, as the queue is not.

    Attributes
    ----------
    handle, queue, queue_family
        ``VkDevice``, ``VkQueue`` and the index of its family, as the module ``vulkan`` has them.
    name : str
        What the driver calls it.
    uuid, driver_uuid : bytes
        16 bytes each, of ``VkPhysicalDeviceIDProperties``.
    is_software : bool
        Whether the CPU plays the GPU, as Mesa's lavapipe does; then frames lie in host memory.
    """

    def __init__(
        self,
        physical: PhysicalDevice,
        raw: Any,
        queue: Any,
        queue_family: int,
        close: Callable[[], object],
    ) -> None:
        self.physical = physical
        self._raw = raw
        self._queue = queue
        self.queue_family = queue_family
        self._close: Callable[[], object] | None = close
        self.name = physical.name
        self.uuid = physical.uuid
        self.driver_uuid = physical.driver_uuid
        self.is_software = physical.is_software

    @classmethod
    def open(cls, uuid: bytes | str | None = None, *, driver_uuid: bytes | None = None) -> Self:
        """Make a device, with what it needs to share memory.

        Parameters
        ----------
        uuid
            Which one: its UUID, as 16 bytes or as text such as ``"GPU-…"``; by default the first
            that is a GPU, else the first.
        driver_uuid
            The driver's, where that matters, too.

        Raises
        ------
        UnsupportedError
            If the bindings or the loader are not installed.
        DeviceError
            If there is no such device, or it cannot share memory.
        """
        api = vulkan()
        with contextlib.ExitStack() as undo:
            application = api.VkApplicationInfo(
                pApplicationName="cuframes_nb", apiVersion=api.VK_MAKE_VERSION(*_API)
            )
            instance = call(
                "vkCreateInstance", api.VkInstanceCreateInfo(pApplicationInfo=application), None
            )
            undo.callback(api.vkDestroyInstance, instance, None)
            found = [PhysicalDevice.of(raw) for raw in call("vkEnumeratePhysicalDevices", instance)]
            physical = _choose(found, uuid, driver_uuid)
            raw, family = _create(physical)
            undo.callback(api.vkDestroyDevice, raw, None)
            queue = call("vkGetDeviceQueue", raw, family, 0)
            return cls(physical, raw, queue, family, undo.pop_all().close)

    @classmethod
    def adopt(cls, physical_device: Any, device: Any, queue: Any, queue_family: int = 0) -> Self:
        """Use a device that a program has made; it stays the program's.

        Parameters
        ----------
        physical_device, device, queue
            ``VkPhysicalDevice``, ``VkDevice`` and ``VkQueue``: handles of the module ``vulkan``, or
            numbers. The device has to have the extension ``VK_KHR_external_memory_fd``, and for
            `Timeline` ``VK_KHR_external_semaphore_fd``. The queue is used by `run` only.
        queue_family
            Index of the queue's family.
        """
        return cls(
            PhysicalDevice.of(physical_device),
            handle("VkDevice", device),
            handle("VkQueue", queue),
            queue_family,
            lambda: None,
        )

    @property
    def handle(self) -> Any:
        """The ``VkDevice``.

        Raises
        ------
        ClosedError
            After `close`.
        """
        self._check_open()
        return self._raw

    @property
    def queue(self) -> Any:
        """The ``VkQueue``.

        Raises
        ------
        ClosedError
            After `close`.
        """
        self._check_open()
        return self._queue

    def memory_type(self, bits: int, *wanted: int) -> int:
        """Return the index of a memory type that is among `bits`.

        Parameters
        ----------
        bits
            ``memoryTypeBits`` of the resource.
        wanted
            Property flags that it should have; the first set that can be had.

        Raises
        ------
        DeviceError
            If there is none.
        """
        for flags in wanted:
            for index, has in enumerate(self.physical.memory_types):
                if bits >> index & 1 and has & flags == flags:
                    return index
        raise DeviceError(
            f"{self.name} has no memory of type {bits:#x} with the properties "
            f"{' or '.join(f'{flags:#x}' for flags in wanted)}"
        )

    def execute(self, record: Callable[[Any], object]) -> None:
        """Record commands, submit them to the queue, and wait until they are done.

        Parameters
        ----------
        record
            Called with a ``VkCommandBuffer`` that has begun.

        Raises
        ------
        DeviceError
            If the device is lost, or they do not end within ten seconds.
        """
        api, device = vulkan(), self.handle
        with contextlib.ExitStack() as undo:
            pool = call(
                "vkCreateCommandPool",
                device,
                api.VkCommandPoolCreateInfo(queueFamilyIndex=self.queue_family),
                None,
            )
            undo.callback(api.vkDestroyCommandPool, device, pool, None)
            allocate = api.VkCommandBufferAllocateInfo(
                commandPool=pool, level=api.VK_COMMAND_BUFFER_LEVEL_PRIMARY, commandBufferCount=1
            )
            commands = call("vkAllocateCommandBuffers", device, allocate)[0]
            once = api.VkCommandBufferBeginInfo(
                flags=api.VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT
            )
            call("vkBeginCommandBuffer", commands, once)
            record(commands)
            call("vkEndCommandBuffer", commands)
            fence = call("vkCreateFence", device, api.VkFenceCreateInfo(), None)
            undo.callback(api.vkDestroyFence, device, fence, None)
            submit = api.VkSubmitInfo(commandBufferCount=1, pCommandBuffers=[commands])
            call("vkQueueSubmit", self.queue, 1, [submit], fence)
            self._wait(fence, undo)

    def close(self) -> None:
        """Destroy the device, once, if `open` made it; what was made of it has to be closed."""
        close, self._close = self._close, None
        if close is not None:
            close()

    def _wait(self, fence: Any, undo: contextlib.ExitStack) -> None:
        try:
            call("vkWaitForFences", self.handle, 1, [fence], 1, int(_SECONDS * 1e9))
        except VulkanError as error:
            undo.pop_all()  # the GPU may still use them: they are left to the device
            if error.result != "VkTimeout":
                raise
            raise DeviceError(
                f"{self.name} did not finish within {_SECONDS:g} s: it hangs, or waits for a "
                f"semaphore that nobody signals"
            ) from None

    def _check_open(self) -> None:
        if self._close is None:
            raise ClosedError(f"the Vulkan device {self.name} was closed")

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Device {self.name!r} {uuid_text(self.uuid)}>"


def _choose(
    found: Iterable[PhysicalDevice], uuid: bytes | str | None, driver_uuid: bytes | None
) -> PhysicalDevice:
    """Return the physical device that is meant."""
    devices = sorted(found, key=lambda device: device.is_software)
    fitting = [
        device
        for device in devices
        if (uuid is None or _matches(device, uuid))
        and (driver_uuid is None or device.driver_uuid == driver_uuid)
    ]
    if fitting:
        return fitting[0]
    here = ", ".join(f"{device.name} {uuid_text(device.uuid)}" for device in devices) or "none"
    if uuid is None:
        raise DeviceError(
            "Vulkan finds no device: install a driver; on Debian and Ubuntu, one that needs no GPU "
            "is in mesa-vulkan-drivers"
        )
    wanted = uuid if isinstance(uuid, str) else uuid_text(uuid)
    of_driver = ", of the same driver and version" if driver_uuid is not None else ""
    raise DeviceError(f"there is no Vulkan device {wanted}{of_driver} here: {here}")


def _matches(device: PhysicalDevice, uuid: bytes | str) -> bool:
    if isinstance(uuid, bytes):
        return device.uuid == uuid
    return uuid_text(device.uuid).lower() == uuid.strip().lower()


def _create(physical: PhysicalDevice) -> tuple[Any, int]:
    """Return a ``VkDevice`` and the family of its one queue."""
    api = vulkan()
    missing = [name for name in _NEEDED if name not in physical.extensions]
    if missing:
        raise DeviceError(f"{physical.name} cannot share memory: it has no {', '.join(missing)}")
    names = [*_NEEDED, *(name for name in _WANTED if name in physical.extensions)]
    families = call("vkGetPhysicalDeviceQueueFamilyProperties", physical.handle)
    transfers = api.VK_QUEUE_GRAPHICS_BIT | api.VK_QUEUE_COMPUTE_BIT  # either implies copying
    family = next(i for i, f in enumerate(families) if f.queueFlags & transfers)
    # What is there is switched on: two-plane formats, semaphores that count.
    ycbcr = chained(
        "VkPhysicalDeviceSamplerYcbcrConversionFeatures",
        "PHYSICAL_DEVICE_SAMPLER_YCBCR_CONVERSION_FEATURES",
    )
    timeline = chained(
        "VkPhysicalDeviceTimelineSemaphoreFeatures",
        "PHYSICAL_DEVICE_TIMELINE_SEMAPHORE_FEATURES",
        ycbcr,
    )
    features = chained("VkPhysicalDeviceFeatures2", "PHYSICAL_DEVICE_FEATURES_2", timeline)
    call("vkGetPhysicalDeviceFeatures2", physical.handle, features)
    queue = api.VkDeviceQueueCreateInfo(
        queueFamilyIndex=family, queueCount=1, pQueuePriorities=[1.0]
    )
    info = api.VkDeviceCreateInfo(
        pNext=timeline,
        queueCreateInfoCount=1,
        pQueueCreateInfos=[queue],
        enabledExtensionCount=len(names),
        ppEnabledExtensionNames=names,
    )
    return call("vkCreateDevice", physical.handle, info, None), family
