"""From a decoder's planes into a slot: one pass on the host, one upload a plane on a GPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.slot import WritableSlot

__all__ = ["Writer", "write_as_they_are", "write_planar"]

Planes: TypeAlias = Sequence[NDArray[Any]]
"""Each plane as rows of samples, padding included, on the decoder's memory."""

Writer: TypeAlias = Callable[[WritableSlot, Planes], None]


def write_as_they_are(slot: WritableSlot, planes: Planes) -> None:
    """Write planes that the decoder lays out as the slot does."""
    for target, plane in zip(slot.planes, planes, strict=True):
        rows = plane[: target.shape[0], : _row_items(target)]
        if isinstance(target, np.ndarray):
            target[...] = rows.reshape(target.shape)
        else:
            _upload(target, rows)


def write_planar(shift: int) -> Writer:
    """Return what writes Y, U, V planes, each sample moved up by `shift` bits."""

    def write(slot: WritableSlot, planes: Planes) -> None:
        luma, chroma = slot.planes
        _interleave(luma[..., None], planes[:1], shift)
        _interleave(chroma, planes[1:], shift)

    return write


def _interleave(target: Any, planes: Planes, shift: int) -> None:
    """Write each of `planes` as one component of `target`."""
    rows, columns, components = target.shape
    cut = [plane[:rows, :columns] for plane in planes]
    if isinstance(target, np.ndarray):
        for component, samples in enumerate(cut):
            _move(target[..., component], samples, shift)
    elif components == 1 and not shift:
        _upload(target, cut[0])
    else:
        host = np.empty(target.shape, target.dtype)
        _interleave(host, cut, shift)
        _upload(target, host)


def _move(target: NDArray[Any], samples: NDArray[Any], shift: int) -> None:
    if shift:
        np.left_shift(samples, shift, out=target)
    else:
        target[...] = samples


def _upload(target: Any, rows: NDArray[Any]) -> None:
    """Copy rows of any pitch to rows of any pitch on the GPU, on CuPy's current stream.

    From memory that is not page-locked the driver returns once it has read the source.
    """
    import cupy

    runtime = cupy.cuda.runtime
    runtime.memcpy2DAsync(
        target.data.ptr,
        target.strides[0],
        rows.ctypes.data,
        rows.strides[0],
        _row_items(target) * target.itemsize,
        target.shape[0],
        runtime.memcpyHostToDevice,
        cupy.cuda.get_current_stream().ptr,
    )


def _row_items(target: Any) -> int:
    return int(target.size // target.shape[0])
