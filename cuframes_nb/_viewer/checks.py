"""Single values out of JSON that somebody unknown sent: each is as it should be, or refused.

A browser has no whole numbers, only floats: a finite float is rounded wherever a whole number is
wanted, and the bounds hold for the rounded value.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Final

from cuframes_nb.formats import MAX_DIMENSION

__all__ = [
    "Check",
    "Rect",
    "WrongError",
    "flag",
    "key_name",
    "mods",
    "optional",
    "rect",
    "view",
    "whole",
]

Check = Callable[[object], object]
"""Returns a value in its proper type, or raises :exc:`WrongError`."""

Rect = tuple[int, int, int, int]
"""x, y, width and height, in pixels of the source frame."""

_VIEW: Final = re.compile(r"[A-Za-z0-9_-]{16,64}")
_MODS: Final = ("Alt", "Control", "Meta", "Shift")
_MAX_KEY: Final = 32


class WrongError(ValueError):
    """A value is not what it should be."""


def whole(least: int, most: int) -> Callable[[object], int]:
    """Return the check for a whole number from `least` to `most`."""

    def check(value: object) -> int:
        if isinstance(value, float) and math.isfinite(value):
            value = round(value)
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise WrongError

    return check


def optional(check: Check) -> Check:
    """Return the check for null, or for what another check is for."""
    return lambda value: None if value is None else check(value)


def flag(value: object) -> bool:
    """Check for true or false; 1 is neither."""
    if isinstance(value, bool):
        return value
    raise WrongError


def view(value: object) -> str:
    """Check for the characters by which a page names a view."""
    if isinstance(value, str) and _VIEW.fullmatch(value):
        return value
    raise WrongError


def rect(value: object) -> Rect | None:
    """Check for a list of x, y, width and height, or null."""
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 4:
        raise WrongError
    x, y, width, height = value
    return _coordinate(x), _coordinate(y), _extent(width), _extent(height)


def key_name(value: object) -> str:
    """Check for the name of a key, such as `a` or `ArrowLeft`."""
    if isinstance(value, str) and 0 < len(value) <= _MAX_KEY:
        return value
    raise WrongError


def mods(value: object) -> tuple[str, ...]:
    """Check for a list out of Alt, Control, Meta and Shift, and return them in this order."""
    if not isinstance(value, list) or len(value) > len(_MODS):
        raise WrongError
    if not all(isinstance(name, str) and name in _MODS for name in value):
        raise WrongError
    return tuple(name for name in _MODS if name in value)


_coordinate: Final = whole(0, MAX_DIMENSION)
_extent: Final = whole(1, MAX_DIMENSION)
