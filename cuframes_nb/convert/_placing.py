"""Where a picture of one size lies in a result of another: pure numbers."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, Final, TypeAlias

__all__ = ["FITS", "Placement", "Rect", "place"]

Rect: TypeAlias = tuple[int, int, int, int]
"""``(x, y, width, height)`` in pixels."""

FITS: Final = ("letterbox", "stretch", "cover")


@dataclasses.dataclass(frozen=True, slots=True)
class Placement:
    """Which part of a frame lies where in a result of another size.

    Attributes
    ----------
    source
        ``(x, y, width, height)`` of what is taken, in pixels of the frame.
    target
        The same of where it lies, in pixels of the result. Around it is the border.
    size
        ``(width, height)`` of the result.
    """

    source: Rect
    target: Rect
    size: tuple[int, int]

    @property
    def resized(self) -> bool:
        """Whether a pixel of the result is another than one of the frame."""
        return self.source[2:] != self.target[2:]

    def to_frame(self, x: Any, y: Any) -> tuple[Any, Any]:
        """Return a point of the result as one of the frame.

        Parameters
        ----------
        x, y
            Numbers, or arrays of any library. They count from the corner of the first pixel, so
            that the result reaches from 0 to its width. Points on the border are mapped to outside
            the source.
        """
        left, top, width, height = self.source
        to_left, to_top, to_width, to_height = self.target
        return (
            (x - to_left) * (width / to_width) + left,
            (y - to_top) * (height / to_height) + top,
        )


@functools.lru_cache(maxsize=1024)
def place(source: Rect, size: tuple[int, int] | None, fit: str) -> Placement:
    """Return how `source` is put into a result of `size`; without one, of its own."""
    _, _, width, height = source
    if size is None or fit == "stretch" or size == (width, height):
        size = size or (width, height)
        return Placement(source, (0, 0, *size), size)
    if fit == "cover":
        return Placement(_cut(source, size), (0, 0, *size), size)
    # The side that is the tighter one is filled; the other is rounded to whole pixels.
    if size[0] * height <= size[1] * width:
        inner = size[0], _rounded(size[0] * height, width)
    else:
        inner = _rounded(size[1] * width, height), size[1]
    left, top = (size[0] - inner[0]) // 2, (size[1] - inner[1]) // 2
    return Placement(source, (left, top, *inner), size)


def _cut(source: Rect, size: tuple[int, int]) -> Rect:
    """Return the middle of `source`, of the shape of `size`."""
    x, y, width, height = source
    if size[0] * height >= size[1] * width:
        rows = _rounded(width * size[1], size[0])
        return x, y + (height - rows) // 2, width, rows
    columns = _rounded(height * size[0], size[1])
    return x + (width - columns) // 2, y, columns, height


def _rounded(numerator: int, denominator: int) -> int:
    """Return the whole number that is nearest, and at least 1."""
    return max(1, (2 * numerator + denominator) // (2 * denominator))
