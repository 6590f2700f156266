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
from cuframes_nb.convert._arguments import Source, check_pixels, check_writable
from cuframes_nb.convert._pictures import Picture, placement_of, render
from cuframes_nb.convert._pixels import Options, Pixels, check_name
from cuframes_nb.convert._placing import Placement
from cuframes_nb.formats import PixelFormat

__all__ = [
    "Options",
    "Picture",
    "Pixels",
    "Placement",
    "from_rgb",
    "placement_of",
    "render",
    "to_rgb",
]


def to_rgb(
    planes: Sequence[Any],  # NumPy arrays or CuPy ones; CuPy has no types
    format: PixelFormat | str,  # noqa: A002  the field's word, as in PyAV
    color: ColorSpec,
    *,
    layout: Literal["hwc", "chw"] = "hwc",
    dtype: Literal["uint8", "float16", "bfloat16", "float32"] = "uint8",
    size: tuple[int, int] | None = None,
    crop: tuple[int, int, int, int] | None = None,
    channels: Literal["rgb", "bgr", "gray"] = "rgb",
    interpolation: Literal["bilinear", "nearest", "area"] = "bilinear",
    siting: Literal["left", "center", "topleft"] = "left",
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
        ``"uint8"``: 0..255, rounded. ``"float16"``, ``"bfloat16"``, ``"float32"``: 0..1. All are
        clipped. New arrays of bfloat16 need the package ``ml_dtypes``.
    size
        ``(width, height)`` in pixels to resize to; by default that of `crop`. Luma and chroma are
        resized each at its own resolution. Without resizing a chroma sample applies to its four
        pixels as it is.
    crop
        ``(x, y, width, height)`` in pixels of the frame, odd numbers allowed; by default all of it.
    channels
        ``"rgb"``, ``"bgr"``, or ``"gray"``: one channel, luma alone.
    interpolation
        ``"bilinear"``, without a filter against aliasing; ``"area"``, the mean over the pixel's
        square; ``"nearest"``.
    siting
        Where chroma samples lie, for resizing: ``"left"``, as in H.264 and H.265 that do not say
        otherwise, ``"center"`` or ``"topleft"``.
    out
        Array to write, of the result's shape and dtype, in the same memory as the planes, of any
        strides and any library with DLPack; it must not overlap the planes. By default a new one is
        made.

    Returns
    -------
    numpy.ndarray, cupy.ndarray or what `out` is
        `out`, or a new array that is the caller's. On a GPU the work is queued on CuPy's current
        stream and may not be done yet.

    Raises
    ------
    InvalidArgumentError
        If an argument is wrong; nothing was written.
    """
    source = Source.check(planes, format, color)
    check_name("layout", layout, ("hwc", "chw"))
    pixels = Pixels.of(Options(layout, dtype, channels, interpolation, siting))
    placement = placement_of(source.width, source.height, crop, size)
    picture = Picture(planes, source.format, color)
    if source.memory == "cupy":
        cuda.check_planes(planes)
        picture = picture._replace(planes=cuda.planes_of(planes))
    return render([picture], [placement], pixels, out)


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
