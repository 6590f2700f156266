"""One name for whatever there is to publish: a pattern, a film, a camera."""

from __future__ import annotations

import contextlib
import os
import re
from typing import Any

from cuframes_nb._api.pyav import import_av
from cuframes_nb.sources._addresses import LIVE_SCHEMES, scheme_of
from cuframes_nb.sources.live import LiveVideo
from cuframes_nb.sources.pattern import Pattern
from cuframes_nb.sources.playing import Source
from cuframes_nb.sources.video import VideoFile

__all__ = ["from_camera", "is_live_address", "open_source"]


def from_camera(where: str | int = 0, **options: Any) -> LiveVideo:
    """Return a camera as a source: the first at this machine, or one in the network.

    Parameters
    ----------
    where
        Number of a V4L2 camera, its device (``/dev/video0``), or a URL.
    options
        As :class:`LiveVideo`.
    """
    return LiveVideo(where, **options)


def open_source(what: str | os.PathLike[str], **options: Any) -> Source:
    """Return the source that an address names.

    Parameters
    ----------
    what
        ``"pattern"``; a file name or the URL of a film; ``/dev/video0``; the URL of a camera.
    options
        Those of :class:`Pattern`, :class:`VideoFile` or :class:`LiveVideo`.

    Raises
    ------
    OSError, CuframesError, TypeError
        As these.
    """
    name = os.fspath(what)
    if name == "pattern":
        return Pattern(**options)
    return LiveVideo(name, **options) if is_live_address(name) else VideoFile(name, **options)


def is_live_address(name: str) -> bool:
    """Whether it is of something that happens now, rather than of a film.

    What is at an HTTP address is looked at: a film says how long it is.
    """
    if re.fullmatch(r"/dev/video\d+", name):
        return True
    scheme = scheme_of(name)
    return scheme in LIVE_SCHEMES or (scheme in {"http", "https"} and not _is_film(name))


def _is_film(url: str) -> bool:
    av = import_av()
    # What cannot be opened now is taken for a camera, which is tried again.
    with contextlib.suppress(av.error.FFmpegError), av.open(url, timeout=10.0) as container:
        return container.duration is not None
    return False
