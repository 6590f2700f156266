"""PyAV, which brings FFmpeg; not always installed."""

from __future__ import annotations

from typing import Any

from cuframes_nb.errors import UnsupportedError

__all__ = ["encoder_named", "import_av"]


def import_av() -> Any:
    """Return PyAV's module.

    Raises
    ------
    UnsupportedError
        If it cannot be imported.
    """
    try:
        import av
        import av.error
    except ImportError as error:
        raise UnsupportedError(
            f"recording needs PyAV ({error}): pip install 'cuframes-nb[video]'"
        ) from error
    return av


def encoder_named(name: str) -> Any:
    """Return PyAV's ``Codec`` of that name for encoding, None if this FFmpeg has none."""
    av = import_av()
    try:
        return av.Codec(name, "w")
    except ValueError:  # UnknownCodecError, which moved between versions of PyAV
        return None
