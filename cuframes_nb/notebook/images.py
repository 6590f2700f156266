"""Pictures of frames for people to look at."""

from __future__ import annotations

import base64

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.frame import Frame
from cuframes_nb._views.downloads import as_numpy

__all__ = ["data_uri", "picture"]


def picture(frame: Frame, width: int | None = None) -> NDArray[np.uint8]:
    """Return a frame as RGB in host memory, at most `width` pixels wide."""
    size = None
    if width is not None and width < frame.width:
        size = (width, max(1, round(frame.height * width / frame.width)))
    return as_numpy(frame.rgb(size=size))


def data_uri(file: bytes, mime: str = "image/png") -> str:
    """Return a file as the address of an ``<img>``."""
    return f"data:{mime};base64,{base64.b64encode(file).decode()}"
