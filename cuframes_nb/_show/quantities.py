"""Times and sizes, as people write them and as they read them."""

from __future__ import annotations

import re
from typing import Final

__all__ = [
    "amount",
    "bytes_text",
    "counted",
    "ns_text",
    "parse_seconds",
    "parse_size",
    "rate_text",
    "seconds_text",
]

_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "": 1.0}

_LARGEST_SIDE: Final = 65536


def parse_seconds(text: str) -> float:
    """Return the seconds that ``"10s"``, ``"500ms"``, ``"2m"``, ``"1h"`` or ``"10"`` are.

    Raises
    ------
    ValueError
        If it is none of these, or not positive.
    """
    match = re.fullmatch(r"(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)", text.strip().lower())
    seconds = float(match[1]) * _SECONDS.get(match[2], 0.0) if match else 0.0
    if not seconds > 0:
        raise ValueError(f"{text!r} is no time; write 10s, 500ms, 2m or 1h")
    return seconds


def parse_size(text: str) -> tuple[int, int]:
    """Return width and height of ``"1280x720"``.

    Raises
    ------
    ValueError
        If it is no such size.
    """
    match = re.fullmatch(r"([1-9]\d{0,4})[xX×]([1-9]\d{0,4})", text.strip())
    if not match or max(map(int, match.groups())) > _LARGEST_SIDE:
        raise ValueError(f"{text!r} is no size; write width and height in pixels, as 1280x720")
    return int(match[1]), int(match[2])


def seconds_text(seconds: float) -> str:
    """Return a duration with the unit that suits it."""
    if seconds < 1:
        return f"{max(0.0, seconds) * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


def ns_text(ns: int | None) -> str:
    """Return a duration in nanoseconds with the unit that suits it, a dash for None."""
    return "–" if ns is None else seconds_text(ns / 1e9)


def bytes_text(count: int) -> str:
    """Return a number of bytes with the unit that suits it."""
    size = float(count)
    for unit in ("B", "KiB", "MiB"):
        if size < 1024:
            return f"{size:.3g} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"


def rate_text(per_second: float) -> str:
    """Return a rate, or a dash where none is known."""
    return f"{per_second:.3g}" if per_second > 0 else "–"


def amount(count: int, word: str) -> str:
    """Return ``"1 frame"``, ``"1,200 frames"``."""
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


def counted(count: int, word: str, none: str) -> str:
    """Return a caption that says how many there are, or `none` where there are none."""
    return amount(count, word) if count else none
