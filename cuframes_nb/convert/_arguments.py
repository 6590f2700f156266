"""Checks of what callers pass: every message says what was found and what to use."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import MAX_DIMENSION, PixelFormat

__all__ = [
    "Source",
    "check_crop",
    "check_pixels",
    "check_size",
    "check_writable",
]


@dataclasses.dataclass(frozen=True, slots=True)
class Source:
    """Planes that fit their format."""

    format: PixelFormat
    width: int
    height: int
    memory: str

    @classmethod
    def check(cls, planes: Any, format: str, color: Any) -> Source:  # noqa: A002
        """Return what `planes` are, or raise."""
        fmt = PixelFormat.parse(format)
        if not isinstance(color, ColorSpec):
            raise InvalidArgumentError(f"color must be a ColorSpec, not {color!r}")
        if fmt.is_yuv and color.matrix == "rgb":
            raise InvalidArgumentError(
                f"colour matrix 'rgb' was given for {fmt}, which holds luma and chroma; use "
                "'bt601', 'bt709' or 'bt2020'"
            )
        if not isinstance(planes, list | tuple) or not planes:
            raise InvalidArgumentError(
                f"planes must be a list or tuple of arrays, not {type(planes).__name__}"
            )
        memory = memory_of("plane 0", planes[0])
        if planes[0].ndim < 2 or not all(planes[0].shape):
            raise InvalidArgumentError(
                f"plane 0 has shape {planes[0].shape}; it needs rows and columns"
            )
        height, width = planes[0].shape[:2]
        _check_planes(planes, fmt, width, height, memory)
        return cls(fmt, width, height, memory)


def _check_planes(
    planes: Sequence[Any], fmt: PixelFormat, width: int, height: int, memory: str
) -> None:
    shapes = fmt.plane_shapes(width, height)
    if len(planes) != len(shapes):
        raise InvalidArgumentError(f"{fmt} has {len(shapes)} planes, but {len(planes)} were given")
    for index, (plane, shape) in enumerate(zip(planes, shapes, strict=True)):
        check_memory(f"plane {index}", plane, memory)
        if plane.shape != shape or plane.dtype != np.dtype(fmt.dtype):
            raise InvalidArgumentError(
                f"plane {index} is {plane.dtype} of shape {plane.shape}; {fmt} at {width}x{height} "
                f"needs {fmt.dtype} of shape {shape}"
            )


def memory_of(name: str, array: Any) -> str:
    """Return ``"numpy"`` or ``"cupy"``: the library that an array belongs to."""
    if isinstance(array, np.ndarray):
        return "numpy"
    # Asked of every class, so that subclasses count, and without importing CuPy.
    if any(kind.__module__.partition(".")[0] == "cupy" for kind in type(array).__mro__):
        return "cupy"
    raise InvalidArgumentError(
        f"{name} is a {type(array).__module__}.{type(array).__qualname__}; pass a NumPy or CuPy "
        "array, e.g. numpy.asarray(...) or cupy.from_dlpack(...)"
    )


def check_memory(name: str, array: Any, memory: str) -> None:
    """Refuse an array that is not of the library `memory`."""
    found = memory_of(name, array)
    if found != memory:
        raise InvalidArgumentError(
            f"{name} is a {found} array, but plane 0 is a {memory} array; pass all in one memory"
        )


def check_size(size: tuple[int, int] | None, default: tuple[int, int]) -> tuple[int, int]:
    """Return (width, height) of the result."""
    if size is None:
        return default
    width, height = _integers("size", size, "(width, height)", 2)
    if not (1 <= width <= MAX_DIMENSION and 1 <= height <= MAX_DIMENSION):
        raise InvalidArgumentError(
            f"size is {width}x{height}; width and height must be between 1 and {MAX_DIMENSION}"
        )
    return width, height


def check_crop(
    crop: tuple[int, int, int, int] | None, width: int, height: int
) -> tuple[int, int, int, int]:
    """Return the rectangle of the source to convert."""
    if crop is None:
        return 0, 0, width, height
    x, y, columns, rows = _integers("crop", crop, "(x, y, width, height)", 4)
    inside = x >= 0 and y >= 0 and x + columns <= width and y + rows <= height
    if not inside or columns < 1 or rows < 1:
        raise InvalidArgumentError(
            f"crop {(x, y, columns, rows)} is empty or leaves the frame of {width}x{height}; "
            "use (x, y, width, height) within it"
        )
    return x, y, columns, rows


def check_writable(name: str, array: Any) -> None:
    """Refuse a read-only NumPy array."""
    if isinstance(array, np.ndarray) and not array.flags.writeable:
        raise InvalidArgumentError(f"{name} is read-only; pass an array that may be written")


def check_pixels(rgb: Any, source: Source) -> None:
    """Refuse RGB pixels that do not fit the planes."""
    check_memory("rgb", rgb, source.memory)
    size = (source.height, source.width)
    fits = rgb.ndim == 3 and rgb.shape[:2] == size and rgb.shape[2] in {3, 4}
    if not fits or rgb.dtype != np.uint8:
        raise InvalidArgumentError(
            f"rgb is {rgb.dtype} of shape {rgb.shape}; these planes need uint8 of shape "
            f"{(*size, 3)} or {(*size, 4)}"
        )


def _integers(name: str, value: Any, form: str, count: int) -> tuple[int, ...]:
    try:
        numbers = tuple(operator.index(number) for number in value)
    except TypeError:
        numbers = ()
    if len(numbers) != count:
        raise InvalidArgumentError(f"{name} is {value!r}; use whole numbers {form}")
    return numbers
