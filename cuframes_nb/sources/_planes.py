"""From a decoder's planes into a slot: one pass on the host, one upload a plane on a GPU."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.slot import WritableSlot

__all__ = ["Writer", "write_as_they_are", "write_planar"]

Planes: TypeAlias = Sequence[NDArray[Any]]
"""Each plane as rows of samples, padding included, on the decoder's memory."""

Writer: TypeAlias = Callable[[WritableSlot, Planes, int], None]
"""Writes planes into a slot, turned anticlockwise by so many quarters."""


def write_as_they_are(slot: WritableSlot, planes: Planes, turns: int) -> None:
    """Write planes that the decoder lays out as the slot does."""
    for target, plane in zip(slot.planes, planes, strict=True):
        _copy(target, _upright(plane, target.shape, turns))


def write_planar(shift: int) -> Writer:
    """Return what writes Y, U, V planes, each sample moved up by `shift` bits."""

    def write(slot: WritableSlot, planes: Planes, turns: int) -> None:
        luma, chroma = slot.planes
        if shift:
            _interleave(luma[..., None], planes[:1], shift, turns)
        else:
            _copy(luma, _upright(planes[0], luma.shape, turns))
        _interleave(chroma, planes[1:], shift, turns)

    return write


def _upright(plane: NDArray[Any], shape: Sequence[int], turns: int) -> NDArray[Any]:
    """Return the samples of a plane without padding, turned to `shape`: a view."""
    rows, columns, *components = shape
    if turns % 2:
        rows, columns = columns, rows
    samples = plane[:rows, : columns * math.prod(components)].reshape(rows, columns, *components)
    return np.rot90(samples, turns) if turns else samples


def _interleave(target: Any, planes: Planes, shift: int, turns: int) -> None:
    """Write each of `planes` as one component of `target`."""
    host = target if isinstance(target, np.ndarray) else np.empty(target.shape, target.dtype)
    for component, plane in enumerate(planes):
        samples = _upright(plane, target.shape[:2], turns)
        if shift:
            np.left_shift(samples, shift, out=host[..., component])
        else:
            host[..., component] = samples
    if host is not target:
        _copy(target, host)


def _copy(target: Any, source: NDArray[Any]) -> None:
    """Copy into a slot's plane, on the host or up to the GPU."""
    if isinstance(target, np.ndarray):
        target[...] = source
    else:
        from cuframes_nb._views.transfer import to_gpu

        to_gpu(target, source)
