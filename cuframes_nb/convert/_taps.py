"""Which samples of a plane make each position along one axis, and what each of them counts."""

from __future__ import annotations

import dataclasses

import numpy as np
import numpy.typing as npt

__all__ = ["Taps", "axis_taps"]


@dataclasses.dataclass(frozen=True, slots=True)
class Taps:
    """Samples along one axis that make each output position.

    Attributes
    ----------
    indices
        (taps, positions): samples, ascending along each tap.
    weights
        The same, of what each counts; None where there is one tap, which is all.
    """

    indices: npt.NDArray[np.intp]
    weights: npt.NDArray[np.float32] | None = None

    def part(self, begin: int, end: int) -> Taps:
        """Return the taps of positions `begin` to `end`."""
        weights = None if self.weights is None else self.weights[:, begin:end]
        return Taps(self.indices[:, begin:end], weights)

    @property
    def bounds(self) -> tuple[int, int]:
        """The first sample, and the one behind the last."""
        return int(self.indices[0, 0]), int(self.indices[-1, -1]) + 1


def axis_taps(
    start: int, extent: int, count: int, interpolation: str, shift: float
) -> tuple[Taps, Taps]:
    """Return the taps in luma and in chroma of `count` positions over `extent` pixels.

    Chroma's centres are `shift` chroma samples behind those of their first luma samples.
    """
    last = start + extent - 1
    if interpolation == "nearest":
        index = start + (2 * np.arange(count, dtype=np.intp) + 1) * extent // (2 * count)
        return Taps(index[None]), Taps(index[None] >> 1)
    if interpolation == "area":
        edges = start + np.arange(count + 1) * extent / count
        luma = _covered(edges, start, last)
        return luma, _covered(edges / 2 + 0.25 - shift, start >> 1, last >> 1)
    inside = (np.arange(count) + 0.5) * (extent / count) - 0.5
    positions = start + inside.clip(0, extent - 1)
    chroma = (positions / 2 - shift).clip(start >> 1, last >> 1)
    return _between(positions, last), _between(chroma, last >> 1)


def _between(positions: npt.NDArray[np.float64], last: int) -> Taps:
    """Return the two neighbours of each position."""
    first = positions.astype(np.intp)
    second = (positions - first).astype(np.float32)
    indices = np.stack([first, np.minimum(first + 1, last)])
    return Taps(indices, np.stack([1 - second, second]))


def _covered(edges: npt.NDArray[np.float64], low: int, last: int) -> Taps:
    """Return the samples between neighbouring edges, by how much of them lies there."""
    begins, ends = edges[:-1], edges[1:]
    first = np.floor(begins)
    taps = int((np.ceil(ends) - first).max())
    cells = first + np.arange(taps)[:, None]
    overlaps = np.minimum(ends, cells + 1) - np.maximum(begins, cells)
    weights = (overlaps.clip(0, None) / (ends - begins)).astype(np.float32)
    return Taps(cells.astype(np.intp).clip(low, last), weights)
