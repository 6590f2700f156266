"""From a slot into a picture of the encoder's, in one pass."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuframes_nb import convert
from cuframes_nb._api.frame import Frame
from cuframes_nb._api.pyav import import_av
from cuframes_nb._cuda.devices import activated
from cuframes_nb.color import (
    MATRIX_CODES,
    PRIMARIES_CODES,
    TRANSFER_CODES,
    UNSPECIFIED,
    ColorSpec,
)
from cuframes_nb.formats import PixelFormat

__all__ = ["Downloads", "Painter", "Shape", "choices", "shape_of", "tag"]

Planes: TypeAlias = Sequence[NDArray[Any]]

_AV_RANGES: Final = {"limited": 1, "full": 2}
"""FFmpeg's AVColorRange, which is not H.273's flag. Its other tables have H.273's numbers."""

_NEUTRAL: Final = 128
"""Chroma of gray, at 8 bits."""


class Shape(NamedTuple):
    """What the frames of one file have in common."""

    format: PixelFormat
    width: int
    height: int
    color: ColorSpec


def shape_of(frame: Frame) -> Shape:
    """Return what a frame has in common with others of its file."""
    return Shape(frame.format, frame.width, frame.height, frame.color)


def tag(target: Any, color: ColorSpec) -> None:
    """Say what the colours are.

    Parameters
    ----------
    target
        PyAV's codec context or ``VideoFrame``.
    """
    target.colorspace = MATRIX_CODES[color.matrix]
    target.color_range = _AV_RANGES[color.range]
    target.color_primaries = PRIMARIES_CODES.get(color.primaries or "", UNSPECIFIED)
    target.color_trc = TRANSFER_CODES.get(color.transfer or "", UNSPECIFIED)


class Downloads:
    """Brings planes to the host; for one thread, on streams of its own.

    A stream of its own waits for nothing that the user's other threads have queued on theirs, and
    they do not wait for the copy.
    """

    def __init__(self) -> None:
        self._streams: dict[str, Any] = {}

    def planes(self, frame: Frame) -> Planes:
        """Return a frame's planes in host memory: views on the slot if they are there already."""
        if frame.device == "cpu":
            planes: Planes = frame.planes
            return planes
        with activated(int(frame.device.removeprefix("cuda:"))):
            stream = self._streams.get(frame.device)
            if stream is None:
                stream = self._streams[frame.device] = frame.xp.cuda.Stream(non_blocking=True)
            with stream:  # for which a frame that was copied has it wait
                return [plane.get() for plane in frame.planes]


_Fill: TypeAlias = Callable[[Planes, Planes], None]
"""Writes the second planes, a frame's, into the first, the encoder's."""


def _same(target: Planes, source: Planes) -> None:
    for to, plane in zip(target, source, strict=True):
        _room(to, plane)[...] = plane


def _planar(shift: int) -> _Fill:
    """Return what gives U and V planes of their own, each sample moved down by `shift` bits."""

    def fill(target: Planes, source: Planes) -> None:
        luma, chroma = source
        parts = (luma, chroma[..., 0], chroma[..., 1])
        for to, plane in zip(target, parts, strict=True):
            if shift:
                np.right_shift(plane, shift, out=_room(to, plane))
            else:
                _room(to, plane)[...] = plane

    return fill


def _gray(target: Planes, source: Planes) -> None:
    """Write luma, and the chroma of gray: many players show no film without chroma."""
    _room(target[0], source[0])[...] = source[0]
    for plane in target[1:]:
        plane[...] = _NEUTRAL


def _swapped(target: Planes, source: Planes) -> None:
    """Write R, G, B as B, G, R, and alpha behind them."""
    to, rgb = target[0], source[0]
    to[..., :3] = rgb[..., 2::-1]
    to[..., 3] = rgb[..., 3] if rgb.shape[-1] == 4 else 0


def _room(target: NDArray[Any], plane: NDArray[Any]) -> NDArray[Any]:
    """Return the part of a target, which may be a row or a column larger, for a plane."""
    return target[: plane.shape[0], : plane.shape[1]]


_NV12: Final[dict[str, _Fill]] = {"nv12": _same, "yuv420p": _planar(0)}

_FILLS: Final[dict[PixelFormat, dict[str, _Fill]]] = {
    PixelFormat.NV12: _NV12,
    PixelFormat.P010: {"p010le": _same, "yuv420p10le": _planar(6)},
    PixelFormat.GRAY8: {"yuv420p": _gray, "nv12": _gray},
    PixelFormat.RGB24: _NV12,
    PixelFormat.RGBA32: _NV12,
}
"""FFmpeg's pixel formats for each of ours, the best first."""

_EXACT: Final[dict[PixelFormat, dict[str, _Fill]]] = {
    **_FILLS,
    PixelFormat.GRAY8: {"gray": _same},
    PixelFormat.RGB24: {"bgr0": _swapped},
    PixelFormat.RGBA32: {"bgra": _swapped},
}
"""The same where nothing may be lost."""

_COMPONENTS: Final = {"bgr0": (4,), "bgra": (4,), "nv12": (1, 2), "p010le": (1, 2)}
"""Samples of a pixel in each plane, where that is not 1."""


def choices(format_: PixelFormat, *, lossless: bool) -> tuple[str, ...]:
    """Return FFmpeg's pixel formats that frames of a format can be written as, the best first."""
    return tuple((_EXACT if lossless else _FILLS)[format_])


class Painter:
    """Makes the encoder's pictures of frames of one shape.

    Parameters
    ----------
    shape
        What the frames are.
    pixels
        FFmpeg's pixel format, one of `choices`.
    lossless
        Whether RGB stays RGB.
    any_size
        Whether the encoder takes odd sizes; else the last column or row is repeated.
    """

    def __init__(self, shape: Shape, pixels: str, *, lossless: bool, any_size: bool) -> None:
        self.shape = shape
        self.pixels = pixels
        self.size = shape.width, shape.height
        if not any_size:
            self.size = shape.width + shape.width % 2, shape.height + shape.height % 2
        self.color = shape.color
        self._converts = not shape.format.is_yuv and not lossless
        if self._converts:
            usual = ColorSpec.assume(shape.height)
            self.color = ColorSpec(
                usual.matrix, usual.range, shape.color.primaries, shape.color.transfer
            )
        self._fill = (_EXACT if lossless else _FILLS)[shape.format][pixels]
        self.nbytes = (
            sum(  # about what a picture takes
                math.prod(plane) for plane in shape.format.plane_shapes(*self.size)
            )
            * shape.format.itemsize
        )

    def paint(self, planes: Planes) -> Any:
        """Return PyAV's ``VideoFrame`` with a copy of a frame's planes."""
        picture = import_av().VideoFrame(*self.size, self.pixels)
        if self._converts:
            planes = self._converted(planes[0])
        target = self._planes(picture)
        self._fill(target, planes)
        width, height = self.shape.width, self.shape.height
        luma = target[0]
        if luma.shape[1] > width:
            luma[:, width] = luma[:, width - 1]
        if luma.shape[0] > height:
            luma[height] = luma[height - 1]
        tag(picture, self.color)
        return picture

    def _planes(self, picture: Any) -> Planes:
        """Return a picture's planes as arrays on its memory."""
        components = _COMPONENTS.get(self.pixels, (1, 1, 1))
        item = 2 if self.shape.format is PixelFormat.P010 else 1
        return [
            np.ndarray(
                (plane.height, plane.width, *((count,) if count > 1 else ())),
                np.dtype(f"<u{item}"),
                plane,
                strides=(plane.line_size, count * item, *((item,) if count > 1 else ())),
            )
            for plane, count in zip(picture.planes, components, strict=False)
        ]

    def _converted(self, rgb: NDArray[Any]) -> Planes:
        shapes = PixelFormat.NV12.plane_shapes(self.shape.width, self.shape.height)
        planes = [np.empty(shape, np.uint8) for shape in shapes]
        convert.from_rgb(rgb, planes, PixelFormat.NV12, self.color)
        return planes
