"""A frame as text, for terminals: two pixels a character, in 24-bit colour."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.frame import Frame
from cuframes_nb._views.downloads import as_numpy
from cuframes_nb.errors import InvalidArgumentError

__all__ = ["facts", "still"]

_UPPER_HALF: Final = "▀"
_RESET: Final = "\x1b[0m"


def still(frame: Frame, columns: int = 80) -> str:
    """Return a frame's picture as lines of text with ANSI colours.

    Parameters
    ----------
    frame
        Not released.
    columns
        How many characters wide. Each is half as wide as high, and shows two pixels.

    Raises
    ------
    InvalidArgumentError
        If `columns` is not positive.
    ClosedError
        If the frame was released.
    """
    if columns < 1:
        raise InvalidArgumentError(f"a picture of {columns} columns was asked for; it needs one")
    width = min(columns, frame.width)
    lines = max(1, round(frame.height * width / frame.width / 2))
    rgb = as_numpy(frame.rgb(size=(width, 2 * lines)))
    return "\n".join(_line(rgb[2 * i], rgb[2 * i + 1]) for i in range(lines))


def facts(frame: Frame) -> str:
    """Return a line about a frame, for where a picture cannot be shown."""
    return (
        f"{frame.key} #{frame.seq}: {frame.width}x{frame.height} {frame.format} on {frame.device}, "
        f"{frame.age_ns / 1e6:.1f} ms old"
    )


def _line(upper: NDArray[np.uint8], lower: NDArray[np.uint8]) -> str:
    """Return two rows of pixels as a line; colours are said only where they change."""
    parts = []
    before: list[int] = []
    for colours in np.hstack([upper, lower]).tolist():
        if colours != before:
            r, g, b, r2, g2, b2 = colours
            parts.append(f"\x1b[38;2;{r};{g};{b};48;2;{r2};{g2};{b2}m")
            before = colours
        parts.append(_UPPER_HALF)
    return "".join(parts) + _RESET
