"""The encoders of the FFmpeg that PyAV brings."""

from __future__ import annotations

from typing import Any

from cuframes_nb._api.pyav import import_av

__all__ = ["encoder_named"]


def encoder_named(name: str) -> Any:
    """Return PyAV's ``Codec`` of that name for encoding, None if this FFmpeg has none."""
    av = import_av()
    try:
        return av.Codec(name, "w")
    except ValueError:  # UnknownCodecError, which moved between versions of PyAV
        return None
