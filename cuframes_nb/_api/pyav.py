"""PyAV, which brings FFmpeg; not always installed."""

from __future__ import annotations

from typing import Any

from cuframes_nb.errors import UnsupportedError

__all__ = ["import_av"]


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
            f"films and cameras need PyAV ({error}): pip install 'cuframes-nb[video]'"
        ) from error
    return av
