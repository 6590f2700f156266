"""Where a command writes: how wide it is, and whether it can be redrawn."""

from __future__ import annotations

import io
import os
import shutil
import sys

__all__ = ["is_screen", "replace_what_cannot_be_written", "width"]


def is_screen() -> bool:
    """Whether stdout is a terminal on which things can be moved and redrawn."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def width() -> int | None:
    """Return how wide a line may be, None where nobody looks."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def replace_what_cannot_be_written() -> None:
    """Write other characters than stdout's encoding has as escapes instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
