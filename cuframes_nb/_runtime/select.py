"""Which kind of memory, and why."""

from __future__ import annotations

import os
from typing import Final

from cuframes_nb._cuda.devices import ENVIRONMENT as DEVICE_ENVIRONMENT
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._runtime.host_backend import HostBackend
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import CuframesError, InvalidArgumentError, UnsupportedError

__all__ = ["MEMORY_CHOICES", "publisher_backend", "subscriber_backend"]

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
    if memory not in MEMORY_CHOICES:
        raise InvalidArgumentError(
            f"memory {memory!r} is not known; use one of {', '.join(MEMORY_CHOICES)}"
        )
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


def subscriber_backend(description: ArenaDescription, device: str | int | None) -> Backend:
    """Return the backend that maps an arena of another process.

    Raises
    ------
    InvalidArgumentError
        If a `device` is named for host memory.
    DeviceError
        If the GPU that holds it is not here, hidden, or another than the one asked for.
    UnsupportedError
        If this version cannot map that kind.
    """
    if description.kind is MemoryKind.HOST:
        if device is not None:
            raise InvalidArgumentError(
                f"the frames are in host memory, which has no device, but device={device!r} was "
                f"given: subscribe without device= and copy to the GPU what it needs"
            )
        return HostBackend("the publisher's choice")
    if description.kind is MemoryKind.CUDA_VMM:
        from cuframes_nb._runtime.cuda_backend import CudaBackend

        return CudaBackend.for_subscriber(description.device_uuid, device)
    raise UnsupportedError(
        f"memory of kind {description.kind.label} cannot be mapped by this version of cuframes_nb; "
        f"publish with memory='cuda' or memory='host'"
    )
