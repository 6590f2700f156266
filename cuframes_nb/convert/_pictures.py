"""From frames to one array: what all of it needs, whatever memory the frames are in."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import cpu, cuda
from cuframes_nb.convert._arguments import check_crop, check_size
from cuframes_nb.convert._pixels import Pixels, check_name
from cuframes_nb.convert._placing import FITS, Placement, place
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

__all__ = ["Picture", "placement_of", "render"]


class Picture(NamedTuple):
    """The planes of a frame, taken to fit their format, and what they mean."""

    planes: Sequence[Any] | GpuPlanes  #: NumPy arrays, or where they are on a GPU
    format: PixelFormat
    color: ColorSpec


def placement_of(
    width: int,
    height: int,
    crop: Any,  # whole numbers in any sequence; checked here
    size: Any,
    fit: str = "stretch",
) -> Placement:
    """Return how a frame of `width` x `height` is put into a result of `size`, checked."""
    try:
        return _placement(width, height, crop, size, fit)
    except TypeError:  # lists have no hash
        return _placement.__wrapped__(width, height, crop, size, fit)


@functools.lru_cache(maxsize=1024)
def _placement(width: int, height: int, crop: Any, size: Any, fit: str) -> Placement:
    check_name("fit", fit, FITS)
    source = check_crop(crop, width, height)
    return place(source, check_size(size, source[2:]), fit)


def render(
    pictures: Sequence[Picture],
    placements: Sequence[Placement],
    pixels: Pixels,
    out: Any = None,
) -> Any:
    """Write pictures of one memory, one after another, into `out` or a new array; return it."""
    size = placements[0].size
    for placement in placements:
        if placement.size != size:
            raise InvalidArgumentError(
                f"frames of different sizes, {size[0]}x{size[1]} and {placement.size[0]}x"
                f"{placement.size[1]}, do not fit one array; say which size= they shall have"
            )
    shape = pixels.shape(len(pictures), size)
    first = pictures[0].planes
    device = first.device if isinstance(first, GpuPlanes) else None
    backend: Any = cpu if device is None else cuda
    if out is None:
        result, target = backend.new_target(shape, pixels.dtype, device)
    else:
        result, target = out, backend.target_of(out, device)
        _check_target(target, shape, pixels.dtype)
    backend.render(pictures, placements, pixels, target)
    return result


def _check_target(target: Any, shape: tuple[int, ...], dtype: str) -> None:
    if tuple(target.shape) != shape or target.dtype != dtype:
        raise InvalidArgumentError(
            f"out is {target.dtype} of shape {tuple(target.shape)}; this call needs {dtype} of "
            f"shape {shape}"
        )
