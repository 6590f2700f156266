"""Colour conversion between the planes of a frame and RGB arrays, on the CPU and on the GPU.

Results are within one code value of an exact conversion (``reference``) for every matrix, range and
depth. Importing this package does not import CuPy.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import ModuleType
from typing import Any, Literal

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import cpu, cuda
from cuframes_nb.convert._arguments import (
    Source,
    check_crop,
    check_dtype,
    check_layout,
    check_out,
    check_pixels,
    check_size,
    check_writable,
)
from cuframes_nb.formats import PixelFormat

__all__ = ["from_rgb", "to_rgb"]


def to_rgb(
    planes: Sequence[Any],  # NumPy arrays or CuPy ones; CuPy has no types
    format: PixelFormat | str,  # noqa: A002  the field's word, as in PyAV
    color: ColorSpec,
    *,
    layout: Literal["hwc", "chw"] = "hwc",
    dtype: Literal["uint8", "float16", "float32"] = "uint8",
    size: tuple[int, int] | None = None,
    crop: tuple[int, int, int, int] | None = None,
    out: Any = None,
) -> Any:
    """Convert a frame, or a rectangle of it, to an RGB array.

    Parameters
    ----------
    planes
        The frame's planes, with the shapes of :meth:`PixelFormat.plane_shapes` and any pitch: all
        NumPy arrays, or all CuPy arrays of one GPU. They are only read.
    format
        Pixel format of the planes.
    color
        What the code values mean. Not used for RGB formats, which are copied without their alpha.
    layout
        ``"hwc"``: (height, width, 3). ``"chw"``: (3, height, width).
    dtype
        ``"uint8"``: 0..255, rounded. ``"float16"``, ``"float32"``: 0..1. All are clipped.
    size
        ``(width, height)`` in pixels to resize to, bilinearly and without an antialiasing filter;
        by default that of `crop`. Luma and chroma are interpolated each at its own resolution, a
        chroma sample lying in the middle of its four pixels. Without resizing a chroma sample
        applies to its four pixels as it is.
    crop
        ``(x, y, width, height)`` in pixels of the frame, odd numbers allowed; by default all of it.
    out
        Array to write, of the result's shape and dtype, in the same memory as the planes, of any
        strides; it must not overlap them. By default a new one is made.

    Returns
    -------
    numpy.ndarray or cupy.ndarray
        `out`, or a new array that is the caller's. On a GPU the work is queued on CuPy's current
        stream and may not be done yet.

    Raises
    ------
    InvalidArgumentError
        If an argument is wrong; nothing was written.
    """
    source = Source.check(planes, format, color)
    check_layout(layout)
    dtype_name = check_dtype(dtype)
    window = check_crop(crop, source.width, source.height)
    width, height = check_size(size, window[2:])
    shape = (height, width, 3) if layout == "hwc" else (3, height, width)
    backend = _backend(source)
    if out is None:
        out = backend.empty(shape, dtype_name, planes[0])
    else:
        check_out(out, shape, dtype_name, source.memory)
    view = out if layout == "hwc" else out.transpose(1, 2, 0)
    backend.to_rgb(planes, source.format, color, view, crop=window)
    return out


def from_rgb(
    rgb: Any,  # a NumPy array or a CuPy one; CuPy has no types
    planes: Sequence[Any],
    format: PixelFormat | str,  # noqa: A002  the field's word, as in PyAV
    color: ColorSpec,
) -> None:
    """Write an RGB array into the planes of a frame.

    Parameters
    ----------
    rgb
        uint8 of shape (height, width, 3), or (height, width, 4) with alpha; any strides.
    planes
        The frame's planes, with the shapes of :meth:`PixelFormat.plane_shapes` and any pitch, in
        the same memory as `rgb`; they must not overlap it. Chroma becomes the mean over its block
        of pixels. Padding between rows is left as it is.
    format
        Pixel format of the planes. Only RGBA32 keeps alpha; it is 255 where `rgb` has none.
    color
        What the code values shall mean. Not used for RGB formats.

    Raises
    ------
    InvalidArgumentError
        If an argument is wrong; nothing was written.
    """
    source = Source.check(planes, format, color)
    check_pixels(rgb, source)
    for index, plane in enumerate(planes):
        check_writable(f"plane {index}", plane)
    _backend(source).from_rgb(rgb, source.format, color, planes)


def _backend(source: Source) -> ModuleType:
    return cpu if source.memory == "numpy" else cuda
