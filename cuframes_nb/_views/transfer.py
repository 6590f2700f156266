"""Copies from host to GPU arrays with rows of any pitch: one copy, no staging array."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np
from numpy.typing import NDArray

from cuframes_nb._cuda.devices import activated

__all__ = ["to_gpu", "to_this_gpu"]


def to_gpu(target: Any, source: NDArray[Any]) -> None:
    """Copy a NumPy array into a CuPy array of the same shape, on the current stream.

    `source` may be changed as soon as this returns.
    """
    source = _rows(source)
    width = _row_bytes(source)
    stream = cupy.cuda.get_current_stream(target.device.id)
    with activated(target.device.id):
        cupy.cuda.runtime.memcpy2DAsync(
            target.data.ptr,
            target.strides[0],
            source.ctypes.data,
            source.strides[0],
            width,
            source.shape[0],
            cupy.cuda.runtime.memcpyHostToDevice,
            stream.ptr,
        )
        # Pageable memory is staged before the call returns, pinned memory is not.
        stream.synchronize()


def to_this_gpu(source: Any) -> Any:
    """Return a CuPy array on the current GPU: `source`, or a copy if it is on another one.

    The copy is made on this GPU's current stream, behind what is queued on the other's; what is
    queued there later, which may use the memory again, waits for it.
    """
    here = cupy.cuda.Device()
    if source.device == here:
        return source
    stream = cupy.cuda.get_current_stream()
    there = activated(source.device.id)
    with there:
        theirs = cupy.cuda.get_current_stream()
        written = theirs.record()
    stream.wait_event(written)
    copy = cupy.array(source)
    read = stream.record()
    with there:
        theirs.wait_event(read)
    return copy


def _rows(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` with contiguous rows, copied only if they are not."""
    expected = np.empty((1, *array.shape[1:]), array.dtype).strides[1:]
    if array.strides[1:] == expected and array.strides[0] > 0:
        return array
    return np.ascontiguousarray(array)


def _row_bytes(array: NDArray[Any]) -> int:
    return int(np.prod(array.shape[1:], dtype=np.int64)) * array.itemsize
