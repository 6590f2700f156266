"""Which kind of memory, and why."""

from __future__ import annotations

import os
from typing import Final

from cuframes_nb._cuda.devices import ENVIRONMENT as DEVICE_ENVIRONMENT
from cuframes_nb._runtime.backend import Backend, unmappable
from cuframes_nb._runtime.host_backend import HostBackend
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import CuframesError, InvalidArgumentError, UnsupportedError

__all__ = ["MEMORY_CHOICES", "buffers_backend", "publisher_backend", "subscriber_backend"]

MEMORY_CHOICES: Final = ("auto", "cuda", "host")


def publisher_backend(memory: str, device: str | int | None) -> Backend:
    """Return the backend for a new ring.

    ``"auto"`` takes a GPU if one can really share memory (tried, not looked up) and CuPy is
    installed, else host memory; the backend's ``reason`` says which of these it was.

    Raises
    ------
    InvalidArgumentError
        If `memory` is no choice, or a `device` is named for host memory.
    DeviceError, UnsupportedError
        If ``"cuda"`` was asked for and cannot be had.
    """
    _check_choice(memory)
    if memory == "host":
        if device is not None:
            raise InvalidArgumentError(
                f"host memory has no device, but device={device!r} was given"
            )
        return HostBackend("asked for")
    from cuframes_nb._runtime.cuda_backend import CudaBackend

    # A GPU that somebody names is not silently replaced by host memory.
    if memory == "cuda" or device is not None or os.environ.get(DEVICE_ENVIRONMENT):
        return CudaBackend.for_publisher(device, "asked for")
    try:
        return CudaBackend.for_publisher(None, "a GPU that can share memory is there")
    except CuframesError as error:
        return HostBackend(f"no GPU memory: {error}")


def buffers_backend(memory: str, device: str | int | None, ordinal: int | None) -> Backend:
    """Return the backend for buffers that the user made: where they are decides.

    Parameters
    ----------
    memory, device
        What the user asked for; ``"auto"`` and None fit everything.
    ordinal
        The GPU that they are on, None for host memory.

    Raises
    ------
    InvalidArgumentError
        If they are elsewhere than the user asked for.
    DeviceError, UnsupportedError
        If there is no such device, or CuPy is missing.
    """
    _check_choice(memory)
    if ordinal is None:
        if memory == "cuda" or device is not None:
            raise InvalidArgumentError(
                f"memory={memory!r} and device={device!r} were asked for, and the buffers are in "
                f"host memory"
            )
        return HostBackend("in host memory")
    from cuframes_nb._cuda import devices
    from cuframes_nb._runtime.cuda_backend import CudaBackend

    if memory == "host":
        raise InvalidArgumentError(
            f"memory='host' was asked for, and the buffers are on GPU {ordinal}"
        )
    if device is not None and devices.select(device)[0].ordinal != ordinal:
        raise InvalidArgumentError(
            f"device={device!r} was asked for, and the buffers are on GPU {ordinal}"
        )
    return CudaBackend.for_buffers(ordinal)


def _check_choice(memory: str) -> None:
    if memory not in MEMORY_CHOICES:
        raise InvalidArgumentError(
            f"memory {memory!r} is not known; use one of {', '.join(MEMORY_CHOICES)}"
        )


def subscriber_backend(
    description: ArenaDescription,
    device: str | int | None,
    *,
    peer: bool = False,
    copy_to: str | int | None = None,
) -> Backend:
    """Return the backend that maps an arena of another process.

    Parameters
    ----------
    description
        What the publisher says of it.
    device, peer, copy_to
        As `subscribe` has them.

    Raises
    ------
    InvalidArgumentError
        If a GPU is named for host memory.
    DeviceError
        If the GPU that holds it is not here, hidden, or another than the one asked for.
    UnsupportedError
        If this version cannot map that kind, or not so.
    """
    if description.kind is MemoryKind.HOST:
        for name, gpu in (("device", device), ("copy_to", copy_to)):
            if gpu is not None:
                raise InvalidArgumentError(
                    f"the frames are in host memory, which has no device, but {name}={gpu!r} "
                    f"was given: subscribe without {name}= and copy to the GPU what it needs"
                )
        return HostBackend("the publisher's choice")
    hint = ""
    if description.kind is not MemoryKind.CUDA_VMM:
        refused = "peer=True and copy_to= are for frames that the library allocated or that are"
        refused += f" shared like those, and these are memory of kind {description.kind.label}"
        if copy_to is not None:
            raise UnsupportedError(f"{refused}: subscribe without copy_to= and copy with CuPy")
        hint = refused if peer else ""
    match description.kind:
        case MemoryKind.CUDA_VMM:
            from cuframes_nb._runtime import other_gpu

            return other_gpu.for_subscriber(
                description.device_uuid, device, peer=peer, copy_to=copy_to
            )
        case MemoryKind.CUDA_IPC:
            from cuframes_nb._runtime.cuda_backend import CudaBackend

            return CudaBackend.for_subscriber(description.device_uuid, device, hint)
        case MemoryKind.VULKAN:
            from cuframes_nb._runtime import vulkan_backend

            return vulkan_backend.for_subscriber(description, device, hint)
        case kind:
            raise unmappable(kind)
