"""Asking a format for the chroma plane that not every one has."""

from __future__ import annotations

__all__ = ["check_chroma"]


def check_chroma(present: bool, format_: str) -> None:  # noqa: FBT001
    """Raise what asking for an attribute that is not there raises."""
    if not present:
        raise AttributeError(f"{format_} has no chroma plane: use .planes")
