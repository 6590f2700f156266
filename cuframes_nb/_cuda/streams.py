"""Streams and events, given as whatever a user has."""

from __future__ import annotations

import functools
from typing import Any, Final

from cuframes_nb._cuda.driver import call, driver, succeeded
from cuframes_nb.errors import InvalidArgumentError

__all__ = [
    "LEGACY",
    "PER_THREAD",
    "Event",
    "RelaxedCapture",
    "is_capturing",
    "is_idle",
    "relax_this_thread",
    "stream_handle",
    "synchronise",
]

_NOT_CAPTURING: Final = 0
"""CU_STREAM_CAPTURE_STATUS_NONE (cuda.h)."""

PER_THREAD: Final = 2
"""CU_STREAM_PER_THREAD (cuda.h): another default stream on each thread."""

LEGACY: Final = 1
"""CU_STREAM_LEGACY (cuda.h): the default stream with which all blocking streams synchronise."""


def stream_handle(stream: Any) -> int:
    """Return the driver's handle of a stream.

    Parameters
    ----------
    stream
        A number, or an object of CuPy (``ptr``), torch (``cuda_stream``), cuda.core or any other
        library (``__cuda_stream__``, cuda.core's stream protocol).

    Raises
    ------
    InvalidArgumentError
        If it is none of these.
    """
    if isinstance(stream, int):
        return stream
    protocol = getattr(stream, "__cuda_stream__", None)
    if protocol is not None:
        value = protocol() if callable(protocol) else protocol
        return int(value[1])
    for name in ("ptr", "cuda_stream", "handle"):
        value = getattr(stream, name, None)
        if value is not None:
            return int(value)
    raise InvalidArgumentError(
        f"{stream!r} is no CUDA stream: pass a cupy.cuda.Stream, a torch.cuda.Stream, an object "
        f"with __cuda_stream__, or the handle as a number"
    )


def is_idle(handle: int) -> bool:
    """Whether all work queued on the stream so far is done; its context must be current."""
    return succeeded("cuStreamQuery", handle)


def is_capturing(handle: int) -> bool:
    """Whether the stream records a graph instead of running."""
    if handle in {0, LEGACY}:
        return False  # the legacy stream cannot capture, and asking could break others' captures
    return bool(call("cuStreamIsCapturing", handle) != _NOT_CAPTURING)


def relax_this_thread() -> Any:
    """Let this thread ask the driver anything without breaking other threads' graph captures.

    Returns
    -------
    object
        How it was before.
    """
    return call("cuThreadExchangeStreamCaptureMode", _relaxed())


class RelaxedCapture:
    """Do so for a block. A class, because it is used for every frame."""

    __slots__ = ("_before",)

    def __enter__(self) -> None:
        self._before = relax_this_thread()

    def __exit__(self, *exc_info: object) -> None:
        call("cuThreadExchangeStreamCaptureMode", self._before)


@functools.cache
def _relaxed() -> Any:
    return driver().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED


def synchronise(handle: int) -> None:
    """Wait until all work queued on the stream is done; its context must be current."""
    call("cuStreamSynchronize", handle)


class Event:
    """A mark in a stream; its context must be current for every call."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        flags = driver().CUevent_flags.CU_EVENT_DISABLE_TIMING
        self._event = call("cuEventCreate", int(flags))

    def record(self, handle: int) -> None:
        """Set the mark behind what is queued on the stream now."""
        call("cuEventRecord", self._event, handle)

    def passed(self) -> bool:
        """Whether the stream has come past the mark."""
        return succeeded("cuEventQuery", self._event)
