"""Conversion in GPU memory, on CuPy's current stream.

CuPy is imported by the first call, not by this module. It ships no types: its arrays are ``Any``.

All that a kernel has to know travels by value in its one parameter: nothing is allocated or copied
for a launch, and nothing waits, so that a CUDA graph can hold it.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._cuda.devices import activated
from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._decode_kernel import KERNEL as DECODE
from cuframes_nb.convert._encode import copy_rgb
from cuframes_nb.convert._encode_kernel import KERNEL as ENCODE
from cuframes_nb.convert._kernel_parts import BLOCK, COMMON, INTRINSICS
from cuframes_nb.convert._launches import Launch, Macros, encode_launch, launches
from cuframes_nb.convert._outputs import Buffer, bfloat16, buffer_of
from cuframes_nb.convert._pixels import Pixels
from cuframes_nb.convert._placing import Placement
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError
from cuframes_nb.formats import PixelFormat

__all__ = ["check_planes", "from_rgb", "new_target", "planes_of", "render", "target_of"]

# --- Results --------------------------------------------------------------------------------------


def new_target(shape: tuple[int, ...], dtype: str, device: int) -> tuple[Any, Buffer]:
    """Return a new array on the GPU of that number, and where it is."""
    kind = bfloat16() if dtype == "bfloat16" else dtype
    try:
        array = _on(device, _cupy().empty, shape, kind)
    except (KeyError, NotImplementedError, TypeError, ValueError) as error:
        if dtype != "bfloat16":
            raise
        raise UnsupportedError(
            "this CuPy has no bfloat16; use CuPy 14, or pass out=, such as a torch tensor"
        ) from error
    return array, Buffer(array.data.ptr, shape, array.strides, dtype, device)


def target_of(out: Any, device: int) -> Buffer:
    """Return where `out`, of any library, is. It must be on the GPU of that number."""
    if isinstance(out, _cupy().ndarray):
        memory = out.data
        target = Buffer(memory.ptr, out.shape, out.strides, out.dtype.name, memory.device_id)
    else:
        target = buffer_of(out, _order())
    if target.device != device:
        where = "host memory" if target.device is None else f"GPU {target.device}"
        raise InvalidArgumentError(
            f"out is in {where}, but the frame is on GPU {device}; pass all in one memory"
        )
    return target


def _order() -> int:
    """Return the current stream as DLPack names it; -1, which means no order, in a capture."""
    stream = _cupy().cuda.get_current_stream()
    if not stream.ptr:
        return 1
    return -1 if stream.is_capturing() else int(stream.ptr)


# --- Frames to pixels -----------------------------------------------------------------------------


def render(
    pictures: Sequence[Any], placements: Sequence[Placement], pixels: Pixels, target: Buffer
) -> None:
    """Queue the conversion of `pictures`, whose planes are `GpuPlanes`, into `target` beside them.

    Nothing waits for it. Planes are taken to be right; see :func:`check_planes`.
    """
    for launch in launches(pictures, placements, pixels, target):
        _launch(launch, DECODE, "convert", pictures[0].planes.device)


def planes_of(arrays: Sequence[Any]) -> GpuPlanes:
    """Return where planes are that are CuPy arrays."""
    first, last = arrays[0], arrays[-1]
    return GpuPlanes(
        first.data.device_id, (first.data.ptr, last.data.ptr, first.strides[0], last.strides[0])
    )


@functools.cache
def _bytes_type(count: int) -> np.dtype[Any]:
    return np.dtype(f"V{count}")


def _launch(launch: Launch, source: str, name: str, device: int) -> None:
    """Queue a launch on the current stream of that device."""
    # CuPy passes an array of one item by value.
    argument = np.frombuffer(launch.parameter, _bytes_type(len(launch.parameter)))
    kernel = _kernel(device, source, name, launch.macros)
    _on(device, kernel, launch.grid, BLOCK, (argument,))


@functools.cache
def _kernel(device: int, source: str, name: str, macros: Macros) -> Any:
    """Return a kernel for the device of that number, compiled and loaded."""
    options = ("--std=c++17", *(f"-D{macro}={value}" for macro, value in macros))
    with activated(device):
        module = _cupy().RawModule(code=INTRINSICS + COMMON + source, options=options)
        return module.get_function(name).kernel


def _on(device: int, act: Any, *arguments: Any) -> Any:
    """Call `act` with that device current; to make it so would cost more than a launch."""
    if _cupy().cuda.runtime.getDevice() == device:
        return act(*arguments)
    with activated(device):
        return act(*arguments)


def check_planes(planes: Sequence[Any]) -> None:
    """Refuse planes that a kernel cannot read.

    Rows may be any number of bytes apart, but pixels in a row must follow each other.

    Raises
    ------
    InvalidArgumentError
        If they do not, or planes are on two devices.
    """
    _check_device(planes[0], planes)
    for index, plane in enumerate(planes):
        packed = plane.dtype.itemsize
        if (plane.data.ptr | plane.strides[0]) % packed:
            raise InvalidArgumentError(f"plane {index} is not aligned to {packed} bytes")
        for extent, stride in zip(plane.shape[:0:-1], plane.strides[:0:-1], strict=True):
            if extent > 1 and stride != packed:
                raise InvalidArgumentError(
                    f"plane {index} has strides {plane.strides}; on a GPU the pixels of a row must "
                    "follow each other, so pass a plane that was sliced by rows only, or a copy"
                )
            packed *= extent


def _check_device(first: Any, arrays: Sequence[Any]) -> None:
    for array in arrays:
        if array.device.id != first.device.id:
            raise InvalidArgumentError(
                f"the first plane is on GPU {first.device.id}, another array on GPU "
                f"{array.device.id}; copy one so that all are on the same GPU"
            )


# --- RGB to frames --------------------------------------------------------------------------------


def from_rgb(rgb: Any, fmt: PixelFormat, color: ColorSpec, planes: Sequence[Any]) -> None:
    """Write uint8 (height, width, 3 or 4) into the planes of a frame; see ``cpu.from_rgb``.

    Queued on the current stream of the planes' device.
    """
    _check_device(planes[0], [*planes, rgb])
    if not fmt.is_yuv:
        with activated(planes[0].data.device_id):
            copy_rgb(rgb, planes[0])
        return
    check_planes(planes)
    target = Buffer(rgb.data.ptr, rgb.shape, rgb.strides, "uint8", rgb.data.device_id)
    launch = encode_launch(target, fmt, color, planes_of(planes).addresses)
    _launch(launch, ENCODE, "encode", rgb.data.device_id)


def _cupy() -> Any:  # an untyped module
    import cupy

    return cupy
