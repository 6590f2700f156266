"""Arrays that users give as buffers: where they are, and how a frame lies in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cuframes_nb._memory.external import WAY_OUT
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["address_of", "check_on_gpu", "frame_of", "layout_of_rows"]

_ON_HOST: Final = 1  # kDLCPU, dlpack.h
_ON_GPU: Final = frozenset({2, 3, 13})  # kDLCUDA, kDLCUDAHost, kDLCUDAManaged, dlpack.h


def address_of(buffer: Any) -> int | None:
    """Return where a buffer, or the first of a sequence of planes, begins; None if it is no array.

    What a frame's time allows: no array is made where the object itself can tell.
    """
    if isinstance(buffer, list | tuple):
        return address_of(buffer[0]) if buffer else None
    if hasattr(buffer, "data_ptr"):  # torch
        return int(buffer.data_ptr())
    interface = getattr(buffer, "__cuda_array_interface__", None)
    if interface is not None:
        return int(interface["data"][0])
    if _place(buffer) in _ON_GPU:
        return int(_as_cupy(buffer).data.ptr)
    return None


def check_on_gpu(number: int, buffer: Any) -> None:
    """Raise unless a buffer is an array, or planes, that a GPU can reach.

    Raises
    ------
    UnsupportedError
        If it is in host memory that nobody shares.
    InvalidArgumentError
        If it is no array.
    """
    planes = buffer if isinstance(buffer, list | tuple) else (buffer,)
    if not planes:
        raise InvalidArgumentError(f"buffer {number} has no planes")
    for plane in planes:
        place = _place(plane)
        if place == _ON_HOST:
            raise UnsupportedError(
                f"buffer {number} ({type(plane).__name__}) cannot be shared: it is host memory, "
                f"which other processes cannot map; {WAY_OUT}"
            )
        if place not in _ON_GPU:
            raise InvalidArgumentError(
                f"buffer {number} ({type(plane).__name__}) is no array on a GPU: pass arrays of "
                f"CuPy or torch, anything with DLPack or __cuda_array_interface__, or planes"
            )


def frame_of(number: int, buffer: Any, wanted: FrameLayout) -> tuple[list[Any], FrameLayout]:
    """Return a buffer's arrays as CuPy's, and how the frame lies in them by their own word.

    Raises
    ------
    InvalidArgumentError
        If they are no frame of that format and size.
    UnsupportedError
        If CuPy does not take them.
    """
    if not isinstance(buffer, list | tuple):
        rows = _as_cupy(buffer)
        return [rows], layout_of_rows(number, rows, wanted)
    planes = [_as_cupy(plane) for plane in buffer]
    if len(planes) != len(wanted.planes):
        raise InvalidArgumentError(
            f"buffer {number} has {len(planes)} planes, and {wanted.format} has "
            f"{len(wanted.planes)}"
        )
    for plane, place in zip(planes, wanted.planes, strict=True):
        _check_array(number, plane, place.shape, place.strides[1:], wanted)
    start = planes[0].data.ptr
    offsets = [int(plane.data.ptr) - start for plane in planes]
    return planes, _layout(number, wanted, [int(plane.strides[0]) for plane in planes], offsets)


def layout_of_rows(number: int, rows: Any, wanted: FrameLayout) -> FrameLayout:
    """Return the layout of a frame that is one array."""
    first, last = wanted.planes[0], wanted.planes[-1]
    shape, inner = first.shape, first.strides[1:]
    if last is not first:
        if wanted.width % 2:
            raise InvalidArgumentError(
                f"buffer {number} is one array, and {wanted.format} of odd width is none: pass its "
                f"planes as a tuple"
            )
        shape = (first.rows + last.rows, wanted.width)
    _check_array(number, rows, shape, inner, wanted)
    pitch = int(rows.strides[0])
    offsets = [0] if last is first else [0, first.rows * pitch]
    return _layout(number, wanted, [pitch] * len(offsets), offsets)


def _place(array: Any) -> int | None:
    """Return where an array is, as DLPack numbers it; None if it is no array."""
    if hasattr(array, "__dlpack_device__"):
        return int(array.__dlpack_device__()[0])
    if hasattr(array, "__cuda_array_interface__"):
        return 2
    if hasattr(array, "__array_interface__") or isinstance(array, bytes | bytearray | memoryview):
        return _ON_HOST
    return None


def _as_cupy(array: Any) -> Any:
    import cupy

    if isinstance(array, cupy.ndarray):
        return array
    # DLPack first: it has CuPy's stream wait for the producer's, the older protocol need not.
    ways = (("__dlpack__", cupy.from_dlpack), ("__cuda_array_interface__", cupy.asarray))
    failures = []
    for name, convert in ways:
        try:
            if hasattr(array, name):
                return convert(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            failures.append(str(error))
    raise UnsupportedError(
        f"CuPy cannot take {type(array).__name__} ({'; '.join(failures)}); {WAY_OUT}"
    )


def _check_array(
    number: int, array: Any, shape: tuple[int, ...], inner: tuple[int, ...], wanted: FrameLayout
) -> None:
    dtype = wanted.format.dtype
    if tuple(array.shape) != shape or str(array.dtype) != dtype:
        raise InvalidArgumentError(
            f"buffer {number} has {array.dtype} of shape {tuple(array.shape)}, where "
            f"{wanted.format} at {wanted.width}x{wanted.height} has {dtype} of shape {shape}"
        )
    if tuple(array.strides[1:]) != inner:
        raise InvalidArgumentError(
            f"buffer {number} has strides of {tuple(array.strides)} bytes: within a row, pixels "
            f"have to follow each other ({inner})"
        )


def _layout(
    number: int, wanted: FrameLayout, pitches: Sequence[int], offsets: Sequence[int]
) -> FrameLayout:
    try:
        return FrameLayout.make(
            wanted.format, wanted.width, wanted.height, pitch=pitches, offsets=offsets
        )
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"buffer {number} is no frame: {error}") from None
