"""A moving test pattern with the frame's number in it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from datetime import datetime
from types import ModuleType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.slot import WritableSlot
from cuframes_nb.color import ColorSpec
from cuframes_nb.convert import from_rgb
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout, PixelFormat
from cuframes_nb.sources._digits import PITCH, ROWS, draw
from cuframes_nb.sources._pattern_kernel import Canvas, Moment
from cuframes_nb.sources.playing import Source

__all__ = ["Pattern", "read_stamp"]

_BITS: Final = 32
_LARGEST_CELL: Final = 16
_STEP: Final = 8
"""Pixels that the box moves from frame to frame."""

_LETTERS: Final = len("00000000 00:00:00.000")
"""Of a caption, if it has no more frames to count."""

_BARS: Final = (
    (191, 191, 191), (191, 191, 0), (0, 191, 191), (0, 191, 0),
    (191, 0, 191), (191, 0, 0), (0, 0, 191), (16, 16, 16),
)  # fmt: skip
"""Colour bars of 75 %, from white to black."""


class Pattern(Source):
    """Colour bars, a box that bounces, and the frame's number as a row of black and white cells.

    On a GPU, a frame is one kernel on the current stream, and nothing is uploaded for it.

    Parameters
    ----------
    width, height
        Size in pixels; may be odd.
    format
        Any pixel format that a publisher takes.
    fps
        Frames per second.
    color
        What the code values mean; by default what untagged video is taken to be.
    frames
        How many, None without end. They are numbered from 0.
    caption
        Whether number and time of day are burnt in as digits, too: beside a clock, a picture of the
        screen tells how late the view is.
    """

    def __init__(
        self,
        width: int = 1280,
        height: int = 720,
        *,
        format: str = "nv12",  # noqa: A002  the field's word
        fps: float = 30.0,
        color: ColorSpec | None = None,
        frames: int | None = None,
        caption: bool = False,
    ) -> None:
        if not fps > 0:
            raise InvalidArgumentError(f"fps is {fps!r}; a pattern needs a positive rate")
        self.width, self.height, self.format, self.fps = width, height, format, fps
        self.color = color
        self._frames, self._caption = frames, caption
        self._side = max(2, min(width, height) // 4 // 2 * 2)
        spec = color or ColorSpec.assume(height, yuv=PixelFormat.parse(format).is_yuv)
        self._paint = _Paint(format, spec)
        self._bars = self._paint.planes(_bars(width, height, caption=caption))
        self._box = self._paint.planes(np.full((self._side, self._side, 3), 255, np.uint8))
        self._canvases: dict[int, Canvas] = {}

    def frames(self) -> Iterator[tuple[int, Any]]:
        """Yield times and numbers."""
        numbers = itertools.count() if self._frames is None else range(self._frames)
        for number in numbers:
            yield int(number * 1e9 / self.fps), number

    def write(self, slot: WritableSlot, frame: Any) -> None:
        """Draw the frame of number `frame` into `slot`."""
        moment = Moment(
            frame,
            _bounce(frame * _STEP, self.width - self._side),
            _bounce(frame * _STEP // 2, self.height - self._side),
            _caption(frame) if self._caption else "",
        )
        planes = slot.planes
        if slot.xp is np:
            self._draw(planes, moment)
        else:
            self._canvas(slot.xp, planes[0].device).draw(planes, moment)

    def _draw(self, planes: Sequence[NDArray[Any]], moment: Moment) -> None:
        """Draw in host memory."""
        for halved, (plane, bars) in enumerate(zip(planes, self._bars, strict=True)):
            plane[...] = bars
            box = self._box[halved]
            top, left = moment.top >> halved, moment.left >> halved
            target = plane[top : top + box.shape[0], left : left + box.shape[1]]
            target[...] = box[: target.shape[0], : target.shape[1]]
        stamp = self._paint.stamp(moment.number, self.width, self.height)
        planes[0][: stamp.shape[0], : stamp.shape[1]] = stamp
        if moment.caption:
            room = planes[0][_below_stamp(self.width, self.height) :]
            text = self._paint.text(moment.caption, _scale(self.width))
            text = text[: room.shape[0], : self.width]
            room[: text.shape[0], : text.shape[1]] = text

    def _canvas(self, xp: ModuleType, device: Any) -> Canvas:
        """Return what draws on a GPU, made by the first frame there."""
        if device.id not in self._canvases:
            bits, cell = _cells(self.width, self.height)
            white = [box[0, 0, ...] for box in self._box]
            self._canvases[device.id] = Canvas(
                xp, device, self._bars, white=white, black=self._paint.black,
                bits=bits, cell=cell, below=_below_stamp(self.width, self.height),
                scale=_scale(self.width), side=self._side,
            )  # fmt: skip
        return self._canvases[device.id]


class _Paint:
    """RGB in the planes of one format and colour.

    Attributes
    ----------
    black, white
        A pixel of the first plane.
    """

    def __init__(self, format_: str, color: ColorSpec) -> None:
        self._format = format_
        self._color = color
        self.black, self.white = (
            self.planes(np.full((2, 2, 3), level, np.uint8))[0][0, 0, ...] for level in (0, 255)
        )

    def planes(self, rgb: NDArray[np.uint8]) -> list[NDArray[Any]]:
        layout = FrameLayout.make(self._format, rgb.shape[1], rgb.shape[0])
        planes = [np.empty(plane.shape, layout.format.dtype) for plane in layout.planes]
        from_rgb(rgb, planes, self._format, self._color)
        return planes

    def stamp(self, number: int, width: int, height: int) -> NDArray[Any]:
        """Return the cells that say `number`, lowest bit first, as pixels of the first plane."""
        bits, cell = _cells(width, height)
        lit = np.array([[number >> bit & 1 for bit in range(bits)]], bool)
        return self._cells(lit).repeat(cell, axis=0).repeat(cell, axis=1)

    def text(self, text: str, scale: int) -> NDArray[Any]:
        """Return digits as pixels of the first plane, white on black."""
        return self._cells(draw(text, scale))

    def _cells(self, lit: NDArray[np.bool_]) -> NDArray[Any]:
        lit = lit.reshape(*lit.shape, *(1,) * self.black.ndim)
        return np.where(lit, self.white, self.black)


def read_stamp(plane: Any) -> int:
    """Return the number in a frame of a `Pattern`.

    Parameters
    ----------
    plane
        The frame's first plane (``frame.y``) or its RGB image, of the size it was drawn in. Of
        sizes under 32 pixels only the lowest bits fit, as many as the frame is wide.
    """
    height, width = plane.shape[:2]
    bits, cell = _cells(width, height)
    samples = plane[cell // 2, cell // 2 : bits * cell : cell]
    if samples.ndim > 1:
        samples = samples[:, 0]
    if hasattr(samples, "get"):
        samples = samples.get()  # the few samples, from the GPU
    middle = 1 << (8 * samples.dtype.itemsize - 1)
    return sum(1 << bit for bit, level in enumerate(samples) if level >= middle)


def _cells(width: int, height: int) -> tuple[int, int]:
    """Return how many bits there are, and the side of a cell in pixels."""
    return min(_BITS, width), max(1, min(_LARGEST_CELL, width // _BITS, height))


def _below_stamp(width: int, height: int) -> int:
    """Return how many rows there are above the caption; an even number."""
    _, cell = _cells(width, height)
    return cell + cell % 2


def _bars(width: int, height: int, *, caption: bool) -> NDArray[np.uint8]:
    """Return the background as RGB; neutral under what is drawn in luma alone."""
    columns = np.arange(width) * len(_BARS) // width
    rgb = np.broadcast_to(np.array(_BARS, np.uint8)[columns], (height, width, 3)).copy()
    bits, cell = _cells(width, height)
    top = _below_stamp(width, height)
    rgb[:top, : bits * cell + 1] = 0
    if caption:
        scale = _scale(width)
        rgb[top : top + ROWS * scale + 1, : _LETTERS * PITCH * scale + 1] = 0
    return rgb


def _caption(number: int) -> str:
    return f"{number:08d} {datetime.now():%H:%M:%S.%f}"[:-3]  # noqa: DTZ005  the wall's clock


def _scale(width: int) -> int:
    """Return how many pixels wide a cell of a digit is: the caption takes a third of the width."""
    return max(1, width // (3 * PITCH * _LETTERS))


def _bounce(way: int, room: int) -> int:
    """Return where between 0 and `room` one is who went `way` to and fro; an even number."""
    room = room // 2 * 2
    if room <= 0:
        return 0
    way %= 2 * room
    return min(way, 2 * room - way) // 2 * 2
