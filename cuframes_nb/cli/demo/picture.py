"""The demo's picture: a frame in its colours, what was measured, and where its memory is."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeAlias

import cuframes_nb as cf
from cuframes_nb.cli._maps import region_at, regions

if TYPE_CHECKING:
    from cuframes_nb.cli.demo.watch import Sample

__all__ = ["Facts", "draw", "picture_size"]

_WIDTH: Final = 1280
_LARGEST_HEIGHT: Final = 720
_PANEL: Final = 264
_SCALE: Final = 2
"""The panel is drawn this much larger and then shrunk, which smooths its lines."""

_MARGIN: Final = 28
_CHART_WIDTH: Final = 700
_AXIS: Final = 48
_FACTS_LEFT: Final = _MARGIN + _CHART_WIDTH + 44

_Color: TypeAlias = tuple[int, int, int]

_BACKGROUND: Final = (18, 21, 27)
_GRID: Final = (44, 50, 60)
_DIM: Final = (140, 150, 164)
_TEXT: Final = (228, 232, 238)
_AMBER: Final = (245, 184, 75)
_TEAL: Final = (84, 205, 222)


class Facts(NamedTuple):
    """What is told about one frame."""

    seq: int
    pts_s: float
    age_ms: float
    fps: float
    skipped: int
    dropped: int
    memory: str
    form: str
    where: tuple[str, ...]

    @classmethod
    def of(cls, frame: cf.Frame, subscriber: cf.Subscriber, age_ns: int, fps: float) -> Self:
        """Collect them; `age_ns` is the age at which the frame was in hand."""
        info = subscriber.info
        color = frame.color
        assumed = " (assumed)" if color.assumed else ""
        return cls(
            seq=frame.seq,
            pts_s=frame.pts_ns / 1e9,
            age_ms=age_ns / 1e6,
            fps=fps,
            skipped=subscriber.stats.skipped,
            dropped=info.dropped,
            memory=info.memory,
            form=f"{frame.width} x {frame.height} {frame.format}, "
            f"{color.matrix} {color.range}{assumed}",
            where=_where(frame, info.pid),
        )


def picture_size(width: int, height: int) -> tuple[int, int]:
    """Return the size of the picture for frames of that size."""
    return _WIDTH, _shown_size(width, height)[1] + _PANEL


def draw(frame: cf.Frame, facts: Facts, samples: Sequence[Sample], out: Path) -> Callable[[], None]:
    """Convert the frame, and return what draws and writes the picture, on any thread."""
    rgb = frame.rgb(size=_shown_size(frame.width, frame.height))
    pixels = rgb.get() if hasattr(rgb, "get") else rgb
    size = picture_size(frame.width, frame.height)

    def paint() -> None:
        from PIL import Image

        picture = Image.new("RGB", size, _BACKGROUND)
        picture.paste(Image.fromarray(pixels), ((size[0] - pixels.shape[1]) // 2, 0))
        picture.paste(_panel(facts, samples), (0, size[1] - _PANEL))
        partial = out.with_name(f"{out.name}.part")
        picture.save(partial, "PNG", compress_level=3)
        partial.replace(out)

    return paint


def _shown_size(width: int, height: int) -> tuple[int, int]:
    scale = min(_WIDTH / width, _LARGEST_HEIGHT / height)
    return max(1, round(width * scale)), max(1, round(height * scale))


class _Pen:
    """Draws in pixels of the finished picture on an image that is `_SCALE` times as large."""

    def __init__(self, width: int, height: int) -> None:
        from PIL import Image, ImageDraw

        self.image: Any = Image.new("RGB", (width * _SCALE, height * _SCALE), _BACKGROUND)
        self._draw: Any = ImageDraw.Draw(self.image, "RGBA")

    def text(
        self, at: tuple[float, float], text: str, size: int, color: _Color, anchor: str = "ls"
    ) -> None:
        from PIL import ImageFont

        font = ImageFont.load_default(size * _SCALE)
        self._draw.text((at[0] * _SCALE, at[1] * _SCALE), text, color, font, anchor=anchor)

    def line(self, points: Sequence[tuple[float, float]], color: _Color, width: float) -> None:
        scaled = [(x * _SCALE, y * _SCALE) for x, y in points]
        self._draw.line(scaled, color, round(width * _SCALE), joint="curve")

    def area(self, points: Sequence[tuple[float, float]], color: tuple[int, ...]) -> None:
        self._draw.polygon([(x * _SCALE, y * _SCALE) for x, y in points], color)

    def finished(self) -> Any:
        from PIL import Image

        width, height = self.image.size
        return self.image.resize((width // _SCALE, height // _SCALE), Image.Resampling.LANCZOS)


def _panel(facts: Facts, samples: Sequence[Sample]) -> Any:
    pen = _Pen(_WIDTH, _PANEL)
    light = [(s.seconds, s.brightness) for s in samples]
    motion = [(s.seconds, s.motion) for s in samples]
    names = ("brightness", "mean of Y")
    _chart(pen, 38, names, light, span=_span([v for _, v in light]), color=_AMBER)
    names = ("motion", "mean change from frame to frame")
    _chart(pen, 148, names, motion, span=_span([0.0, *(v for _, v in motion)]), color=_TEAL)
    y = _PANEL - 12
    pen.text((_MARGIN, y), f"{light[-1][0] - light[0][0]:.0f} s ago", 13, _DIM)
    pen.text((_MARGIN + _CHART_WIDTH - _AXIS, y), "now", 13, _DIM, "rs")
    _facts(pen, facts)
    return pen.finished()


def _chart(
    pen: _Pen,
    top: float,
    names: tuple[str, str],
    curve: Sequence[tuple[float, float]],
    *,
    span: tuple[float, float],
    color: _Color,
) -> None:
    """Draw one curve of values over seconds."""
    left, right, height = _MARGIN, _MARGIN + _CHART_WIDTH, 74
    low, high = span
    pen.text((left, top - 9), names[0], 17, color)
    pen.text((left + 96, top - 9), names[1], 13, _DIM)
    pen.text((right - _AXIS, top - 9), f"{curve[-1][1]:.1%}", 17, _TEXT, "rs")
    for share, level in ((0, high), (0.5, (low + high) / 2), (1, low)):
        y = top + share * height
        pen.line([(left, y), (right - _AXIS, y)], _GRID, 1)
        pen.text((right, y), f"{level:.1%}", 12, _DIM, "rm")
    width, length = _CHART_WIDTH - _AXIS, max(curve[-1][0] - curve[0][0], 1e-3)
    points = [
        (left + (t - curve[0][0]) / length * width, top + (high - v) / (high - low) * height)
        for t, v in curve
    ]
    if len(points) > 1:
        bottom = top + height
        pen.area([(points[0][0], bottom), *points, (points[-1][0], bottom)], (*color, 44))
        pen.line(points, color, 1.8)


def _facts(pen: _Pen, facts: Facts) -> None:
    pen.text((_FACTS_LEFT, 34), f"frame {facts.seq}", 24, _TEXT)
    pen.text((_FACTS_LEFT, 58), facts.form, 15, _TEXT)
    rows = (
        ("pts", f"{facts.pts_s:.3f} s on CLOCK_MONOTONIC"),
        ("age", f"{facts.age_ms:.2f} ms after it was due"),
        ("rate", f"{facts.fps:.1f} fps, {facts.skipped} skipped, {facts.dropped} dropped"),
        ("memory", facts.memory),
    )
    for index, (name, value) in enumerate(rows):
        y = 88 + 22 * index
        pen.text((_FACTS_LEFT, y), name, 15, _DIM)
        pen.text((_FACTS_LEFT + 72, y), value, 15, _TEXT)
    for index, text in enumerate(facts.where):
        pen.text((_FACTS_LEFT, 184 + 20 * index), text, 14, _AMBER if index == 0 else _DIM)


def _where(frame: cf.Frame, publisher: int) -> tuple[str, ...]:
    """Return what shows that the array lies in the publisher's memory."""
    if frame.device != "cpu":
        address = int(frame.y.data.ptr)
        return (
            f"frame.y starts at {address:#x} on {frame.device},",
            f"memory of process {publisher}, mapped read-only here,",
            f"in process {os.getpid()}: the pixels were never copied",
        )
    address = int(frame.y.__array_interface__["data"][0])
    here = region_at(address)
    if here is None:
        return (f"frame.y starts at {address:#x}",)
    there = next((r for r in regions(publisher) if r.file == here.file), None)
    other = f"{there.start:#x} {there.access}" if there else "not ours to see"
    return (
        f"frame.y starts at {address:#x}, in inode {here.file[1]}",
        f"mapped here, in process {os.getpid()}, at {here.start:#x} {here.access}",
        f"and in the publisher, {publisher}, at {other}",
    )


def _span(values: Sequence[float]) -> tuple[float, float]:
    """Return the ends of a scale for `values`, of whole per cents."""
    low = max(0, math.floor(min(values) * 100 - 0.5))
    high = max(low + 2, math.ceil(max(values) * 100 + 0.5))
    return low / 100, high / 100
