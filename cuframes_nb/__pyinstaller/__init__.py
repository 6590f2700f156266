"""What PyInstaller has to know to freeze a program that uses this package.

It is found by the entry point ``hook-dirs`` of the group ``pyinstaller40``; nothing has to be said.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["hook_dirs"]


def hook_dirs() -> list[str]:
    """Return the directory of the hooks."""
    return [str(Path(__file__).parent)]
