"""Colours for numbers."""

from __future__ import annotations

import functools
from typing import Final

import numpy as np
from numpy.typing import NDArray

__all__ = ["COLORMAPS", "colormap"]

# Colours of each map at equal distances, between which is interpolated in sRGB. viridis and magma:
# S. van der Walt and N. Smith, 2015 (CC0). turbo: A. Mikhailov, 2019.
_ANCHORS: Final = {
    "viridis": "440154 482878 3e4a89 31688e 26828e 1f9e89 35b779 6ece58 b5de2b fde725",
    "magma": "000004 1c1044 4f127b 812581 b5367a e55964 fb8761 fec287 fcfdbf",
    "turbo": "30123b 4662d7 36aaf9 1ae4b6 72fe5e c8ef34 faba39 f66b19 cb2a04 7a0403",
    "gray": "000000 ffffff",
}

COLORMAPS: Final = tuple(_ANCHORS)


@functools.cache
def colormap(name: str) -> NDArray[np.uint8]:
    """Return the 256 colours of a map, shape ``(256, 3)``."""
    anchors = np.array([list(bytes.fromhex(color)) for color in _ANCHORS[name].split()], float)
    at = np.linspace(0, len(anchors) - 1, 256)
    channels = [np.interp(at, np.arange(len(anchors)), anchors[:, i]) for i in range(3)]
    return np.stack(channels, axis=1).round().astype(np.uint8)
