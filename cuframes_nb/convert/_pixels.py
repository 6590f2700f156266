"""What the pixels of a result are: their order, type, channels and scale."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._matrix import decode_matrix
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

__all__ = ["LAYOUTS", "SITINGS", "Options", "Pixels", "check_name"]

LAYOUTS: Final = ("hwc", "chw", "nhwc", "nchw")
DTYPES: Final = ("uint8", "float16", "bfloat16", "float32")
CHANNELS: Final = {"rgb": (0, 1, 2), "bgr": (2, 1, 0), "gray": (0,)}
INTERPOLATIONS: Final = ("bilinear", "nearest", "area")
SITINGS: Final = {"left": (0.0, 0.25), "center": (0.25, 0.25), "topleft": (0.0, 0.0)}
"""By how much the centre of a chroma sample is right of and below that of its first luma sample, in
chroma samples: Chroma420SampleLocType 0, 1 and 2 of Rec. ITU-T H.273 (07/2021) clause 8.7. Streams
that say nothing have type 0: Rec. ITU-T H.264 clause E.2.1, H.265 clause E.3.1."""

_GRAY_WEIGHTS: Final = (0.299, 0.587, 0.114)
"""Of R, G, B, by BT.601-7 2.5.1, as other libraries take them for pictures that are RGB already."""

_Scale: TypeAlias = float | Sequence[float] | None


class Options(NamedTuple):
    """What callers say about the pixels of a result."""

    layout: str = "hwc"
    dtype: Any = "uint8"  #: what NumPy, CuPy or torch take for one
    channels: str = "rgb"
    interpolation: str = "bilinear"
    siting: str = "left"
    fill: float = 0
    mean: _Scale = None
    std: _Scale = None


@dataclasses.dataclass(frozen=True, slots=True, eq=False)
class Pixels:
    """What the pixels of a result are.

    One object stands for one set of options, so that it can be looked up fast.

    Attributes
    ----------
    layout, dtype, channels, interpolation, siting
        Names, as callers say them.
    scale, offset
        A channel's value is ``code * scale + offset`` for a code of 0..255.
    low, high, border
        Least and greatest value of each channel, and that of a border.
    """

    layout: str
    dtype: str
    channels: str
    interpolation: str
    siting: str
    scale: tuple[float, ...]
    offset: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    border: tuple[float, ...]

    @staticmethod
    def of(options: Options) -> Pixels:
        """Check the options and return what they mean."""
        try:
            return _pixels_of(options)
        except TypeError:  # lists and arrays have no hash
            mean, std = _hashable(options.mean), _hashable(options.std)
            return _pixels_of(options._replace(mean=mean, std=std))

    @property
    def batched(self) -> bool:
        """Whether the first axis counts frames."""
        return len(self.layout) == 4

    def shape(self, count: int, size: tuple[int, int]) -> tuple[int, ...]:
        """Return the result's shape for `count` frames of (width, height)."""
        return _shape(self, count, size)

    def matrix(self, fmt: PixelFormat, color: ColorSpec) -> npt.NDArray[np.float32]:
        """Return the matrix from code values and 1 to the channels: (1 or 3, 4)."""
        return _matrix(self, fmt, color)


@functools.lru_cache(maxsize=256)
def _pixels_of(options: Options) -> Pixels:
    check_name("layout", options.layout, LAYOUTS)
    check_name("channels", options.channels, tuple(CHANNELS))
    check_name("interpolation", options.interpolation, INTERPOLATIONS)
    check_name("siting", options.siting, tuple(SITINGS))
    dtype = _dtype(options.dtype)
    (fill,) = _numbers("fill", options.fill, 0.0, 1)
    if not 0 <= fill <= 255:
        raise InvalidArgumentError(f"fill is {fill!r}; use a code value from 0 to 255")
    scale, offset = _scale(options, dtype)

    def values(code: float) -> tuple[float, ...]:
        return tuple(code * a + b for a, b in zip(scale, offset, strict=True))

    bounds = values(0.0), values(255.0), values(fill)
    return Pixels(options.layout, dtype, *options[2:5], scale, offset, *bounds)


def _scale(options: Options, dtype: str) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Return what code values are multiplied by, and what is added then."""
    count = len(CHANNELS[options.channels])
    if dtype == "uint8":
        if options.mean is not None or options.std is not None:
            raise InvalidArgumentError("uint8 has no mean and std; use a float dtype with them")
        return (1.0,) * count, (0.0,) * count
    means = _numbers("mean", options.mean, 0.0, count)
    stds = _numbers("std", options.std, 1.0, count)
    if not all(value > 0 for value in stds):
        raise InvalidArgumentError(f"std is {options.std!r}; use numbers above 0")
    offset = tuple(-m / s for m, s in zip(means, stds, strict=True))
    return tuple(1 / (255 * value) for value in stds), offset


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, Sequence | np.ndarray) else value


@functools.lru_cache(maxsize=256)
def _shape(pixels: Pixels, count: int, size: tuple[int, int]) -> tuple[int, ...]:
    extents = {"n": count, "h": size[1], "w": size[0], "c": len(pixels.scale)}
    return tuple(extents[axis] for axis in pixels.layout)


def check_name(name: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a value that is not one of the words `known`."""
    if value not in known:
        raise InvalidArgumentError(f"{name} {value!r} is not known; use one of {', '.join(known)}")


def _dtype(dtype: Any) -> str:  # what NumPy, CuPy or torch take for a dtype
    if isinstance(dtype, str) and dtype in DTYPES:
        return dtype
    try:
        name: str = np.dtype(dtype).name
    except TypeError:
        name = str(dtype).rpartition(".")[2]  # torch.float16
    check_name("dtype", name, DTYPES)
    return name


def _numbers(name: str, value: _Scale, default: float, count: int) -> tuple[float, ...]:
    if value is None:
        return (default,) * count
    try:
        given = value if isinstance(value, Sequence) else (value,) * count
        numbers = tuple(float(number) for number in given)
    except (TypeError, ValueError):
        numbers = ()
    if len(numbers) != count or not all(map(math.isfinite, numbers)):
        raise InvalidArgumentError(
            f"{name} is {value!r}; use a number, or one for each of {count} channel(s)"
        )
    return numbers


@functools.lru_cache(maxsize=256)
def _matrix(pixels: Pixels, fmt: PixelFormat, color: ColorSpec) -> npt.NDArray[np.float32]:
    matrix = _channel_matrix(fmt, color, pixels.channels) * np.array(pixels.scale)[:, None]
    matrix[:, 3] += pixels.offset
    return np.asarray(matrix, dtype=np.float32)


def _channel_matrix(fmt: PixelFormat, color: ColorSpec, channels: str) -> npt.NDArray[np.float64]:
    """Return the matrix from code values to 0..255 of these channels."""
    matrix = decode_matrix(fmt, color)
    if channels != "gray":
        return matrix[list(CHANNELS[channels])]
    if not fmt.is_yuv:
        return np.array([[*_GRAY_WEIGHTS, 0.0]])
    scale, u, v, offset = matrix[0]  # luma alone: what it gives with the middle of chroma
    middle = 2.0 ** (fmt.bit_depth - 1) if fmt.is_semiplanar else 0.0
    return np.array([[scale, 0.0, 0.0, offset + (u + v) * middle]])
