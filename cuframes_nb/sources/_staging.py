"""From host memory up to a GPU without waiting for it: pinned memory in between."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._cuda.devices import activated

__all__ = ["upload"]

_PENDING: Final = 16
"""Copies under way, before who makes one more waits for the first of them."""

_copies: deque[tuple[Any, Any]] = deque()
_lock = threading.Lock()


def upload(target: Any, write: Callable[[NDArray[Any]], object]) -> None:
    """Have an array written in pinned memory, and queue its copy on the current stream.

    Memory that is not pinned is copied by the driver first, and the host waits for that and more.

    Parameters
    ----------
    target
        CuPy's, whose rows may be any number of bytes apart.
    write
        Is called with an array of the same shape and type in host memory, to write it.
    """
    import cupy
    from cupy.cuda import runtime

    memory = cupy.cuda.alloc_pinned_memory(target.nbytes)  # from a pool
    array = np.frombuffer(memory, target.dtype, target.size).reshape(target.shape)
    write(array)
    with activated(target.device.id):
        stream = cupy.cuda.get_current_stream()
        rows, pitch = target.shape[0], target.strides[0]
        width = target.nbytes // rows
        runtime.memcpy2DAsync(
            target.data.ptr, pitch, memory.ptr, width, width, rows,
            runtime.memcpyHostToDevice, stream.ptr,
        )  # fmt: skip
        copied = cupy.cuda.Event(disable_timing=True)
        copied.record(stream)
    _keep(copied, memory)


def _keep(copied: Any, memory: Any) -> None:
    """Keep memory, which the pool would hand out again, until it was copied."""
    with _lock:
        _copies.append((copied, memory))
        if len(_copies) > _PENDING:
            _copies[0][0].synchronize()
        while _copies and _copies[0][0].done:
            _copies.popleft()
