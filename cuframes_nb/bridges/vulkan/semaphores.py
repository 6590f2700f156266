"""Frames that are complete when a Vulkan semaphore says so."""

from __future__ import annotations

import contextlib
from typing import Any, Self

from cuframes_nb._cuda import devices
from cuframes_nb._cuda.external import SemaphoreStream
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._vulkan.calls import VulkanError, call, device_call, handle, vulkan
from cuframes_nb._vulkan.device import Device
from cuframes_nb.errors import CuframesError, DeviceError, InvalidArgumentError, UnsupportedError

__all__ = ["Semaphore"]

_SECONDS = 10.0
"""How long `after` waits for a semaphore where it has to wait itself."""


class Semaphore:
    """A Vulkan semaphore that `publish_buffer` does not wait for, but the GPU.

    ``pub.publish_buffer(i, stream=semaphore.after(value))``: the frame is announced at once and
    complete when the semaphore has come to `value`. On an NVIDIA GPU the semaphore is exported and
    given to CUDA, a stream of which waits for it and then tells the subscribers. Elsewhere `after`
    itself waits, on the CPU. `how` says which.

    Parameters
    ----------
    device
        The device.
    semaphore
        The ``VkSemaphore`` of a program, or its number, made with a ``VkExportSemaphoreCreateInfo``
        for opaque descriptors; by default one is made here.
    timeline
        Whether it counts (``VK_SEMAPHORE_TYPE_TIMELINE``). A binary one has to be signalled once
        for each `after`, by work that was submitted before, and works on NVIDIA GPUs only.

    Attributes
    ----------
    handle
        The ``VkSemaphore``, for the program to signal.
    how : str
        Who waits, for people.

    Raises
    ------
    UnsupportedError
        If nobody could wait for it.
    VulkanError
        If it cannot be made or exported.
    """

    def __init__(self, device: Device, semaphore: Any = None, *, timeline: bool = True) -> None:
        self._device = device
        self._timeline = timeline
        self._undo = contextlib.ExitStack()
        with contextlib.ExitStack() as undo:
            if semaphore is None:
                self.handle = _create(device, timeline=timeline)
                undo.callback(vulkan().vkDestroySemaphore, device.handle, self.handle, None)
            else:
                self.handle = handle("VkSemaphore", semaphore)
            self._stream, why = _stream(device, self.handle, timeline=timeline)
            if self._stream is None and not timeline:
                raise UnsupportedError(
                    f"a binary semaphore can be waited for by a GPU's queue only, and {why}: use a "
                    f"timeline semaphore, or wait for the queue"
                )
            self._undo = undo.pop_all()
        self.how = "the GPU waits for the semaphore" if not why else f"the CPU waits: {why}"

    def after(self, value: int = 1) -> SemaphoreStream | None:
        """Return what `publish_buffer` takes as `stream`: a CUDA stream behind the semaphore.

        Parameters
        ----------
        value
            What a timeline semaphore has to come to; a binary one has none. Values have to rise
            from call to call.

        Returns
        -------
        object
            The stream; None where the CPU has waited.

        Raises
        ------
        DeviceError
            If the device is lost; where the CPU waits, also if that takes more than ten seconds.
        """
        if self._timeline and value < 1:
            raise InvalidArgumentError(f"a timeline semaphore cannot be waited for to be {value}")
        if self._stream is not None:
            self._stream.wait(value if self._timeline else 0)
            return self._stream
        info = vulkan().VkSemaphoreWaitInfo(
            semaphoreCount=1, pSemaphores=[self.handle], pValues=[value]
        )
        try:
            call("vkWaitSemaphores", self._device.handle, info, int(_SECONDS * 1e9))
        except VulkanError as error:
            if error.result != "VkTimeout":
                raise
            raise DeviceError(
                f"the semaphore did not come to {value} within {_SECONDS:g} s: submit the work "
                f"that signals it before publishing"
            ) from None
        return None

    def close(self) -> None:
        """Destroy it, once, if it was made here; no frame may be waiting for it."""
        self._stream = None
        self._undo.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def _create(device: Device, *, timeline: bool) -> Any:
    api = vulkan()
    kind = api.VkSemaphoreTypeCreateInfo(
        semaphoreType=(
            api.VK_SEMAPHORE_TYPE_TIMELINE if timeline else api.VK_SEMAPHORE_TYPE_BINARY
        ),
        initialValue=0,
    )
    following = kind
    if _is_shareable(device):
        opaque = api.VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT
        following = api.VkExportSemaphoreCreateInfo(pNext=kind, handleTypes=opaque)
    info = api.VkSemaphoreCreateInfo(pNext=following)
    return call("vkCreateSemaphore", device.handle, info, None)


def _is_shareable(device: Device) -> bool:
    return "VK_KHR_external_semaphore_fd" in device.physical.extensions


def _stream(
    device: Device, semaphore: Any, *, timeline: bool
) -> tuple[SemaphoreStream | None, str]:
    """Return a CUDA stream that can wait for the semaphore, or None and why not."""
    if not _is_shareable(device):
        return None, f"{device.name} does not export semaphores"
    try:
        gpu = devices.find_by_uuid(device.uuid)
    except CuframesError as error:
        return None, f"CUDA is not to be had here ({error})"
    opaque = vulkan().VK_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD_BIT
    info = vulkan().VkSemaphoreGetFdInfoKHR(semaphore=semaphore, handleType=opaque)
    with OwnedFd(device_call(device.handle, "vkGetSemaphoreFdKHR", info)) as fd:
        return SemaphoreStream(fd, gpu.ordinal, timeline=timeline), ""
