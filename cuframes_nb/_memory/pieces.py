"""Memory of other processes that this process has mapped on a GPU, and what it was mapped from.

The driver does not export again what it has imported, so whoever gives such memory on to another
interface of this process, Vulkan, needs the descriptor that it came with.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from cuframes_nb._os.fds import OwnedFd, close_all

__all__ = ["Piece", "Pieces", "piece_at"]


class Piece(NamedTuple):
    """One allocation."""

    address: int  #: where it is mapped
    nbytes: int
    fd: OwnedFd  #: belongs to the arena
    memory_type: int | None  #: of Vulkan's, where that is known


class Pieces:
    """What an arena was mapped from, as long as the arena lives; closed with it.

    Parameters
    ----------
    pieces
        Their descriptors belong to this object from now on.
    """

    __slots__ = ("__weakref__", "_pieces")

    def __init__(self, pieces: Sequence[Piece]) -> None:
        self._pieces = tuple(pieces)
        for piece in self._pieces:
            piece.fd.let_drop()
            _mapped[piece.address] = self

    def at(self, address: int) -> Piece | None:
        """Return the one that an address lies in."""
        for piece in self._pieces:
            if piece.address <= address < piece.address + piece.nbytes and not piece.fd.closed:
                return piece
        return None

    def close(self) -> None:
        """Close the descriptors, once."""
        close_all(piece.fd for piece in self._pieces)


_mapped: weakref.WeakValueDictionary[int, Pieces] = weakref.WeakValueDictionary()


def piece_at(address: int) -> Piece | None:
    """Return the allocation of another process that is mapped at an address, if one is."""
    for reference in _mapped.valuerefs():
        pieces = reference()
        if pieces is not None and (piece := pieces.at(address)) is not None:
            return piece
    return None
