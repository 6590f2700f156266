"""The one place that imports the Vulkan bindings, and where results of Vulkan are looked at."""

from __future__ import annotations

import functools
from types import ModuleType
from typing import Any, Final

from cuframes_nb.errors import CuframesError, DeviceError, InvalidArgumentError, UnsupportedError

__all__ = ["VulkanError", "call", "chained", "device_call", "handle", "number", "vulkan"]


_ADVICE: Final = {
    "VkErrorDeviceLost": (
        "the driver has given this device up, with all that was queued on it; close what was made "
        "of it, and begin again with a new device and a new publisher"
    ),
    "VkErrorIncompatibleDriver": (
        "no Vulkan driver that is installed could be loaded; VK_LOADER_DEBUG=error tells why. In a "
        "container NVIDIA's needs NVIDIA_DRIVER_CAPABILITIES=all, and a driver without a GPU is in "
        "mesa-vulkan-drivers"
    ),
}
"""What to do, by result."""


class VulkanError(DeviceError):
    """A call of Vulkan failed.

    Attributes
    ----------
    call : str
        Name of the function.
    result : str
        What it returned, such as ``VkErrorDeviceLost``.
    """

    def __init__(self, call: str, result: str) -> None:
        super().__init__(call, result)
        self.call = call
        self.result = result

    def __str__(self) -> str:
        text = f"{self.call} failed: {self.result}"
        advice = _ADVICE.get(self.result)
        return f"{text}: {advice}" if advice else text


@functools.cache
def vulkan() -> ModuleType:
    """Return the module ``vulkan``.

    Raises
    ------
    UnsupportedError
        If the bindings or Vulkan's loader are not installed; the message says which.
    """
    try:
        import vulkan as module
    except ImportError as failure:
        raise UnsupportedError(
            f"the Vulkan bindings for Python are not installed ({failure}): install "
            f"'cuframes-nb[vulkan]'"
        ) from failure
    except OSError as failure:
        raise UnsupportedError(
            f"there is no Vulkan loader, libvulkan.so.1, on this machine ({failure}): on Debian "
            f"and Ubuntu, apt install libvulkan1; a driver without a GPU is in mesa-vulkan-drivers"
        ) from failure
    return module  # type: ignore[no-any-return]  # vulkan has no types


def call(name: str, *arguments: Any) -> Any:
    """Call a function of Vulkan's core and return its value.

    Raises
    ------
    VulkanError
        If it fails.
    """
    return _checked(name, getattr(vulkan(), name), arguments)


def device_call(device: Any, name: str, *arguments: Any) -> Any:
    """Call a function of an extension, whose first argument is the device.

    Raises
    ------
    UnsupportedError
        If the device was made without that extension.
    VulkanError
        If the call fails.
    """
    api = vulkan()
    try:
        function = api.vkGetDeviceProcAddr(device, name)
    except (api.ProcedureNotFoundError, api.ExtensionNotSupportedError) as failure:
        raise UnsupportedError(
            f"the Vulkan device has no {name}: it has to be made with the extension "
            f"VK_KHR_external_memory_fd, for semaphores VK_KHR_external_semaphore_fd, for host "
            f"memory VK_EXT_external_memory_host"
        ) from failure
    return _checked(name, function, (device, *arguments))


def chained(kind: str, structure_type: str, following: Any = None) -> Any:
    """Return a structure for Vulkan to fill in, zeroed; the caller keeps `following` alive.

    Parameters
    ----------
    kind
        Name of the structure.
    structure_type
        Name of its type without ``VK_STRUCTURE_TYPE_``.
    following
        What its ``pNext`` is to show.
    """
    structure = vulkan().ffi.new(f"{kind}*")
    structure.sType = getattr(vulkan(), f"VK_STRUCTURE_TYPE_{structure_type}")
    if following is not None:
        structure.pNext = following
    return structure


def handle(kind: str, value: Any) -> Any:
    """Return `value`, a handle of the module ``vulkan`` or a number, as a handle of `kind`.

    Raises
    ------
    InvalidArgumentError
        If it is neither, or null.
    """
    ffi = vulkan().ffi
    if isinstance(value, int) and value > 0:
        return ffi.cast(kind, value)
    if isinstance(value, ffi.CData) and ffi.typeof(value) is ffi.typeof(kind) and value != ffi.NULL:
        return value
    raise InvalidArgumentError(
        f"{value!r} is no {kind}: pass the handle that the module vulkan returned, or its number"
    )


def number(raw: Any) -> int:
    """Return a handle as a number."""
    return int(vulkan().ffi.cast("uintptr_t", raw))


def _checked(name: str, function: Any, arguments: tuple[Any, ...]) -> Any:
    api = vulkan()
    try:
        return function(*arguments)
    except CuframesError:
        raise
    except (api.VkError, api.VkException) as failure:
        raise VulkanError(name, type(failure).__name__) from failure
    except KeyError as failure:  # a result that the bindings have no exception for
        raise VulkanError(name, f"VkResult {failure}") from failure
