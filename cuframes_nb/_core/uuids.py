"""How a GPU's UUID is written."""

from __future__ import annotations

__all__ = ["uuid_text"]


def uuid_text(uuid: bytes) -> str:
    """Return a UUID as the driver's tools print it: ``GPU-xxxxxxxx-…``."""
    h = uuid.hex()
    return f"GPU-{h[:8]}-{h[8:12]}-{h[12:16]}-{h[16:20]}-{h[20:]}"
