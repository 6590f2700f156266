"""Words of a command line as values, for :mod:`argparse`; a wrong one says what would be right."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeVar

from cuframes_nb._show.quantities import parse_seconds, parse_size

__all__ = ["count", "rate", "seconds", "size"]

_T = TypeVar("_T")


def _as_argument(convert: Callable[[str], _T]) -> Callable[[str], _T]:
    """Have argparse show the message of a conversion that fails."""

    def wrapped(text: str) -> _T:
        try:
            return convert(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return wrapped


@_as_argument
def count(text: str) -> int:
    """Return a whole number from 1 up."""
    if not text.isdecimal() or int(text) < 1:
        raise ValueError(f"{text!r} is no whole number from 1 up")
    return int(text)


@_as_argument
def rate(text: str) -> float:
    """Return frames a second."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1000:
        raise ValueError(f"{text!r} is no number of frames a second from 0 to 1000")
    return value


seconds = _as_argument(parse_seconds)
size = _as_argument(parse_size)
