"""What a `process` function returned, as a picture of 8 bits."""

from __future__ import annotations

import dataclasses
import math
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._cuda.nvjpeg.pictures import own_pixels
from cuframes_nb._viewer.colormaps import COLORMAPS, colormap
from cuframes_nb._views.downloads import as_numpy
from cuframes_nb.errors import InvalidArgumentError

__all__ = [
    "DevicePixels",
    "Heatmap",
    "Pixels",
    "as_pixels",
    "device_of",
    "host_array",
    "on_host",
    "shown_pixels",
]

Pixels: TypeAlias = NDArray[np.uint8]
"""RGB, ``(height, width, 3)``, or gray, ``(height, width)``."""

DevicePixels: TypeAlias = Any
"""The same, or RGBA, in GPU memory: CuPy's, which has no types."""

_CHANNELS: Final = (1, 3, 4)


@dataclasses.dataclass(frozen=True, slots=True)
class Heatmap:
    """Numbers to be shown as colours; what a `process` function may return.

    Parameters
    ----------
    values
        Two dimensions: NumPy, CuPy or torch, of any number type.
    colormap
        ``"viridis"``, ``"turbo"``, ``"magma"`` or ``"gray"``.
    limits
        The values that get the first and the last colour; by default the least and the greatest of
        each picture. NaN gets the first.

    Raises
    ------
    InvalidArgumentError
        If there is no such colour map, or the limits are no pair.
    """

    values: Any
    colormap: str = "viridis"
    limits: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        if self.colormap not in COLORMAPS:
            raise InvalidArgumentError(
                f"colormap {self.colormap!r} is not known; use one of {', '.join(COLORMAPS)}"
            )
        if self.limits is not None:
            object.__setattr__(self, "limits", _limits(self.limits))

    def pixels(self) -> Pixels:
        """Return it in colours."""
        values = host_array(self.values)
        if values.ndim != 2 or not values.size:
            raise InvalidArgumentError(
                f"a heat map has two dimensions and is not empty; this has {tuple(values.shape)}"
            )
        with np.errstate(all="ignore"):  # about what is not finite
            values = values.astype(np.result_type(values, np.float32), copy=False)
            known = values[np.isfinite(values)]
            least, greatest = (known.min(), known.max()) if known.size else (0.0, 1.0)
            low, high = self.limits or (float(least), float(greatest))
            scale = 255.0 / (high - low) if high != low else 0.0
            codes = np.nan_to_num((values - low) * scale + 0.5, nan=0.0, posinf=255.0, neginf=0.0)
        pixels: Pixels = colormap(self.colormap)[np.clip(codes, 0, 255).astype(np.uint8)]
        return pixels


def _limits(limits: Any) -> tuple[float, float]:
    try:
        low, high = (float(limit) for limit in limits)
    except (TypeError, ValueError, OverflowError):
        low = high = math.nan
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InvalidArgumentError(f"limits are {limits!r}; they must be a pair of numbers")
    return low, high


def as_pixels(value: Any) -> Pixels:
    """Return a picture.

    Parameters
    ----------
    value
        An array of NumPy, CuPy or torch: RGB or RGBA ``(height, width, 3 or 4)``, also with the
        channels first, or gray ``(height, width)``. uint8 as it is, bool as black and white, RGB of
        floats from 0 to 1; other numbers of two dimensions as a `Heatmap`. Or a `Heatmap`.

    Raises
    ------
    InvalidArgumentError
        If it is no picture.
    """
    if isinstance(value, Heatmap):
        return value.pixels()
    array = _channels_last(host_array(value))
    if array.dtype == np.bool_:
        array = array.astype(np.uint8) * np.uint8(255)
    elif array.dtype != np.uint8:
        if array.ndim == 2:
            return Heatmap(array).pixels()
        if array.dtype.kind != "f":
            raise _no_picture(array)
        array = (np.clip(np.nan_to_num(array), 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
    if array.ndim == 3 and array.shape[2] == 4:
        array = array[..., :3]
    is_own = array.flags.owndata and array.flags.c_contiguous
    return array if is_own else np.array(array, order="C")  # a view could keep the frame's slot


def shown_pixels(value: Any) -> Pixels | DevicePixels:
    """Return a picture as `as_pixels`, but where it is, if that is a GPU and it has 8 bits there.

    Raises
    ------
    InvalidArgumentError
        If it is no picture.
    """
    pixels = own_pixels(value)
    return as_pixels(value) if pixels is None else pixels


def device_of(pixels: Pixels | DevicePixels) -> str:
    """Return where a picture is: ``"cpu"``, or ``"cuda:N"``."""
    return "cpu" if isinstance(pixels, np.ndarray) else f"cuda:{pixels.device.id}"


def on_host(pixels: Pixels | DevicePixels) -> Pixels:
    """Return a picture in host memory."""
    return pixels if device_of(pixels) == "cpu" else as_pixels(pixels)


def host_array(value: Any) -> NDArray[Any]:
    """Return an array of NumPy, CuPy or torch in host memory, waiting for its GPU.

    Raises
    ------
    InvalidArgumentError
        If it is no array.
    """
    try:
        if hasattr(value, "detach"):  # torch
            array = np.asarray(value.detach().cpu().numpy())
        elif hasattr(value, "get") and hasattr(value, "__cuda_array_interface__"):  # CuPy
            array = as_numpy(value)
        else:
            array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise _no_array(value) from error
    if array.dtype.kind not in "buif":
        raise _no_array(value)
    return array


def _no_array(value: Any) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{type(value).__name__} is no picture: return an array of NumPy, CuPy or torch, or a "
        f"cf.Heatmap"
    )


def _channels_last(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim == 3 and array.shape[0] in _CHANNELS and array.shape[2] not in _CHANNELS:
        array = np.moveaxis(array, 0, 2)
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[..., 0]
    if (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in {3, 4})) and array.size:
        return array
    raise _no_picture(array)


def _no_picture(array: NDArray[Any]) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"an array of shape {tuple(array.shape)} and type {array.dtype} is no picture: RGB has "
        f"(height, width, 3) of uint8 or of floats from 0 to 1, gray has (height, width)"
    )
