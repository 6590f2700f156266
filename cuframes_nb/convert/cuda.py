"""Conversion in GPU memory: one kernel each way, on CuPy's current stream.

CuPy is imported by the first call, not by this module. It ships no types: its arrays are ``Any``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._encode import copy_rgb
from cuframes_nb.convert._kernels import SOURCE
from cuframes_nb.convert._matrix import decode_matrix, encode_matrix
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

__all__ = ["empty", "from_rgb", "to_rgb"]

FORMATS: Final = {
    PixelFormat.NV12: 0,
    PixelFormat.P010: 1,
    PixelFormat.GRAY8: 2,
    PixelFormat.RGB24: 3,
    PixelFormat.RGBA32: 4,
}
OUT_TYPES: Final = {"uint8": 0, "float16": 1, "float32": 2}
BLOCK: Final = (32, 8)
"""Threads: a warp a row of pixels, so that its loads and stores are neighbours."""


def empty(shape: tuple[int, ...], dtype: str, like: Any) -> Any:
    """Return a new array on the device of `like`."""
    with like.device:
        return _cupy().empty(shape, dtype)


def to_rgb(
    planes: Sequence[Any],
    fmt: PixelFormat,
    color: ColorSpec,
    out: Any,
    *,
    crop: tuple[int, int, int, int] | None = None,
) -> None:
    """Write R, G, B into `out`; see ``cpu.to_rgb``, whose arguments these are.

    The kernel is queued on the current stream of the planes' device, and nothing waits for it. Rows
    of the planes may be any number of bytes apart, but pixels in a row must follow each other.

    Raises
    ------
    InvalidArgumentError
        If they do not, or `out` is on another device.
    """
    height, width = planes[0].shape[:2]
    crop = crop or (0, 0, width, height)
    rows, columns = out.shape[:2]
    _check_device(planes[0], [*planes, out])
    arguments = [
        *_plane_arguments(planes),
        np.int32(FORMATS[fmt]),
        *map(np.int32, crop),
        np.uint64(out.data.ptr),
        *map(np.int64, out.strides),
        np.int32(OUT_TYPES[out.dtype.name]),
        np.int32(columns),
        np.int32(rows),
        *decode_matrix(fmt, color).astype(np.float32).ravel(),
    ]
    _launch(planes[0].device, "to_rgb", columns, rows, arguments)


def from_rgb(rgb: Any, fmt: PixelFormat, color: ColorSpec, planes: Sequence[Any]) -> None:
    """Write uint8 (height, width, 3 or 4) into the planes of a frame; see ``cpu.from_rgb``.

    Queued, and checked, like :func:`to_rgb`.
    """
    _check_device(planes[0], [*planes, rgb])
    if not fmt.is_yuv:
        with planes[0].device:
            copy_rgb(rgb, planes[0])
        return
    height, width = rgb.shape[:2]
    arguments = [
        np.uint64(rgb.data.ptr),
        *map(np.int64, rgb.strides),
        np.int32(width),
        np.int32(height),
        *_plane_arguments(planes),
        np.int32(FORMATS[fmt]),
        *encode_matrix(fmt, color).astype(np.float32).ravel(),
    ]
    _launch(planes[0].device, "from_rgb", (width + 1) // 2, (height + 1) // 2, arguments)


def _cupy() -> Any:  # an untyped module
    import cupy

    return cupy


@functools.cache
def _module(device: int) -> Any:
    """Return the kernels, compiled for the device of that number, which must be current."""
    del device
    return _cupy().RawModule(code=SOURCE, options=("--std=c++14",))


def _launch(device: Any, name: str, columns: int, rows: int, arguments: list[Any]) -> None:
    """Queue a kernel with one thread for each column and row."""
    grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]))
    with device:
        _module(device.id).get_function(name)(grid, BLOCK, tuple(arguments))


def _plane_arguments(planes: Sequence[Any]) -> list[Any]:
    """Return pointer and pitch of two planes; zeros stand for a second one that is not there."""
    arguments: list[Any] = []
    for index, plane in enumerate(planes):
        packed = plane.dtype.itemsize
        for extent, stride in zip(plane.shape[:0:-1], plane.strides[:0:-1], strict=True):
            if extent > 1 and stride != packed:
                raise InvalidArgumentError(
                    f"plane {index} has strides {plane.strides}; on a GPU the pixels of a row must "
                    "follow each other, so pass a plane that was sliced by rows only, or a copy"
                )
            packed *= extent
        arguments += [np.uint64(plane.data.ptr), np.int64(plane.strides[0])]
    return arguments + [np.uint64(0), np.int64(0)] * (2 - len(planes))


def _check_device(first: Any, arrays: Sequence[Any]) -> None:
    for array in arrays:
        if array.device.id != first.device.id:
            raise InvalidArgumentError(
                f"the first plane is on GPU {first.device.id}, another array on GPU "
                f"{array.device.id}; copy one so that all are on the same GPU"
            )
