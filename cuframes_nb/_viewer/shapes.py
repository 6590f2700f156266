"""What is drawn over a picture: values that the browser draws as vectors.

Coordinates are pixels of the source frame, x to the right and y down; ``(0, 0)`` is the upper left
corner of the first pixel.
"""

from __future__ import annotations

import base64
import dataclasses
import io
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from cuframes_nb.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Box", "Line", "Mask", "Points", "Polygon", "Shape", "Text", "as_json"]

MAX_SHAPES: Final = 5000
"""Of one frame: more than anybody can see, and less than would stop a browser."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """What all shapes have.

    Attributes
    ----------
    label
        Text beside it.
    color
        A colour of CSS: ``"#ff8800"``, ``"orange"``, ``"rgb(255 136 0)"``.
    width
        Of its lines, in CSS pixels whatever the zoom.
    fill
        Opacity of its inside, 0 to 1.
    """

    label: str = ""
    color: str = "#ffb000"
    width: float = 2.0
    fill: float = 0.0

    kind: ClassVar[str]

    def geometry(self) -> dict[str, Any]:
        """Return what makes this kind of shape, as JSON has it."""
        raise NotImplementedError

    def as_json(self) -> dict[str, Any]:
        """Return it as JSON has it.

        Raises
        ------
        InvalidArgumentError
            If a number is none, or not finite.
        """
        try:
            style = {"width": _number(self.width), "fill": _number(self.fill)}
            return {
                "kind": self.kind, **self.geometry(), "label": _text(self.label),
                "color": _text(self.color), **style,
            }  # fmt: skip
        except (TypeError, ValueError, OverflowError) as error:
            raise InvalidArgumentError(f"{repr(self)[:200]} cannot be drawn: {error}") from error


@dataclasses.dataclass(frozen=True, slots=True)
class Box(Shape):
    """A rectangle."""

    kind: ClassVar[str] = "box"
    x: float
    y: float
    w: float
    h: float

    def geometry(self) -> dict[str, Any]:
        """Return its corner and size."""
        return {"xywh": [_number(v) for v in (self.x, self.y, self.w, self.h)]}


@dataclasses.dataclass(frozen=True, slots=True)
class Points(Shape):
    """Dots of `radius` CSS pixels."""

    kind: ClassVar[str] = "points"
    points: Sequence[Sequence[float]]
    radius: float = 3.0

    def geometry(self) -> dict[str, Any]:
        """Return their places."""
        return {"points": _pairs(self.points), "radius": _number(self.radius)}


@dataclasses.dataclass(frozen=True, slots=True)
class Line(Shape):
    """A line through points."""

    kind: ClassVar[str] = "line"
    points: Sequence[Sequence[float]]
    closed: bool = False

    def geometry(self) -> dict[str, Any]:
        """Return its points."""
        return {"points": _pairs(self.points), "closed": bool(self.closed)}


@dataclasses.dataclass(frozen=True, slots=True)
class Polygon(Shape):
    """A closed area."""

    kind: ClassVar[str] = "polygon"
    points: Sequence[Sequence[float]]

    def geometry(self) -> dict[str, Any]:
        """Return its corners."""
        return {"points": _pairs(self.points)}


@dataclasses.dataclass(frozen=True, slots=True)
class Text(Shape):
    """A text that begins at a point."""

    kind: ClassVar[str] = "text"
    x: float
    y: float
    text: str

    def geometry(self) -> dict[str, Any]:
        """Return place and text."""
        return {"at": [_number(self.x), _number(self.y)], "text": _text(self.text)}


@dataclasses.dataclass(frozen=True, slots=True)
class Mask(Shape):
    """An area given by an array of truth values.

    Attributes
    ----------
    mask
        Two dimensions, NumPy, CuPy or torch; what is not zero is painted.
    roi
        ``(x, y, width, height)`` that it covers; None for the whole frame.
    """

    kind: ClassVar[str] = "mask"
    mask: Any
    roi: tuple[float, float, float, float] | None = None
    fill: float = dataclasses.field(default=0.5, kw_only=True)

    def geometry(self) -> dict[str, Any]:
        """Return it as a PNG of one bit a pixel."""
        from cuframes_nb._viewer.images import host_array

        array = host_array(self.mask)
        if array.ndim != 2 or not array.size:
            raise InvalidArgumentError(
                f"a mask has two dimensions and is not empty; this has {tuple(array.shape)}"
            )
        roi = None if self.roi is None else [_number(v) for v in self.roi]
        if roi is not None and len(roi) != 4:
            raise InvalidArgumentError(f"roi is {self.roi!r}; it must be (x, y, width, height)")
        return {"size": [array.shape[1], array.shape[0]], "bits": _png_bits(array), "roi": roi}


def as_json(value: Any) -> list[dict[str, Any]]:
    """Return what an overlay function returned as JSON has it.

    Parameters
    ----------
    value
        A shape, several, an array of boxes ``(n, 4)`` of x, y, width and height, or None.

    Raises
    ------
    InvalidArgumentError
        If it is none of these, or too much.
    """
    shapes = list(itertools.islice(_shapes(value), MAX_SHAPES + 1))
    if len(shapes) > MAX_SHAPES:
        raise InvalidArgumentError(
            f"the overlay has more than {MAX_SHAPES} shapes: use one cf.Points for many points"
        )
    return [shape.as_json() for shape in shapes]


def _shapes(value: Any) -> Iterable[Shape]:
    if value is None:
        return
    if isinstance(value, Shape):
        yield value
    elif hasattr(value, "shape"):
        yield from _boxes(value)
    elif isinstance(value, Iterable) and not isinstance(value, str | bytes):
        for item in value:
            yield from _shapes(item)
    else:
        raise InvalidArgumentError(
            f"an overlay returns shapes (cf.Box, cf.Points, cf.Line, cf.Polygon, cf.Text, "
            f"cf.Mask), an array (n, 4) of boxes, or None; not {type(value).__name__}"
        )


def _boxes(array: Any) -> Iterable[Shape]:
    from cuframes_nb._viewer.images import host_array

    rows = host_array(array)
    if not rows.size:
        return  # whatever its shape: nothing was found
    if rows.ndim != 2 or rows.shape[1] != 4:
        raise InvalidArgumentError(
            f"an array of boxes has shape (n, 4): x, y, width, height; not {tuple(rows.shape)}"
        )
    for row in rows.tolist():
        yield Box(*row)


def _number(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"{value!r} is not finite")
    return round(number, 2)


def _text(value: Any) -> str:
    """Return a text that can be sent: names of files may have what is no character."""
    return str(value).encode(errors="replace").decode()


def _pairs(points: Any) -> list[list[float]]:
    rows = points.tolist() if hasattr(points, "tolist") else points
    return [[_number(x), _number(y)] for x, y in rows]


def _png_bits(array: Any) -> str:
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            f"a mask is sent as PNG, and Pillow cannot be imported ({error}): install "
            f"'cuframes-nb[lab]'"
        ) from error
    out = io.BytesIO()
    Image.fromarray((array != 0).astype("uint8") * 255).convert("1").save(out, "PNG")
    return base64.b64encode(out.getvalue()).decode("ascii")
