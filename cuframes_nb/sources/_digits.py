"""Digits as pixels, for what is burnt into a picture: five by seven cells each."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["PITCH", "ROWS", "bitmaps", "draw"]

PITCH: Final = 6
"""Columns from one character to the next."""
ROWS: Final = 9
"""With a margin above and below."""

_GLYPHS: Final = {
    "0": "0e 11 13 15 19 11 0e", "1": "04 0c 04 04 04 04 0e", "2": "0e 11 01 02 04 08 1f",
    "3": "1f 02 04 02 01 11 0e", "4": "02 06 0a 12 1f 02 02", "5": "1f 10 1e 01 01 11 0e",
    "6": "06 08 10 1e 11 11 0e", "7": "1f 01 02 04 08 08 08", "8": "0e 11 11 0e 11 11 0e",
    "9": "0e 11 11 0f 01 02 0c", ":": "00 0c 0c 00 0c 0c 00", ".": "00 00 00 00 00 0c 0c",
    " ": "00 00 00 00 00 00 00",
}  # fmt: skip
"""Rows from the top, the lowest bit at the right."""


def _glyph(rows: str) -> NDArray[np.bool_]:
    cells = np.zeros((ROWS, PITCH), bool)
    for i, row in enumerate(bytes.fromhex(rows), 1):
        cells[i, 1:] = [row >> bit & 1 for bit in (4, 3, 2, 1, 0)]
    return cells


_CELLS: Final = {character: _glyph(rows) for character, rows in _GLYPHS.items()}
_BITMAPS: Final = {
    character: sum(1 << at for at, lit in enumerate(cells.flat) if lit)
    for character, cells in _CELLS.items()
}


def draw(text: str, scale: int) -> NDArray[np.bool_]:
    """Return digits, colons, points and blanks, each cell `scale` pixels wide and high."""
    cells = np.concatenate([_CELLS[character] for character in text], axis=1)
    return cells.repeat(scale, axis=0).repeat(scale, axis=1)


def bitmaps(text: str) -> list[int]:
    """Return each character as a number: a bit a cell, row by row, the upper left one lowest."""
    return [_BITMAPS[character] for character in text]
