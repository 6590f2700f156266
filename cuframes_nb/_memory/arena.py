"""What every kind of shareable memory must do."""

from __future__ import annotations

import abc
from typing import ClassVar

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import LocalProtocolError

__all__ = ["Arena"]


class Arena(abc.ABC):
    """One memory allocation that another process can map through one descriptor.

    The publisher makes one with the kind's ``create``; a subscriber gets one from its ``attach``.
    The memory lives until every process that mapped it has let go.

    Attributes
    ----------
    kind
        How it is shared.
    address
        First byte in this process; an address of the GPU's for CUDA memory.
    nbytes
        Size of the allocation.
    writable
        Whether this process may write it.
    device
        CUDA ordinal in this process, or None for host memory.
    """

    kind: ClassVar[MemoryKind]
    address: int
    nbytes: int
    writable: bool
    device: int | None = None

    def export(self) -> OwnedFd:
        """Return a new descriptor for another process; the caller closes it once it is sent.

        An open descriptor pins the memory, so export at the moment of sending.

        Raises
        ------
        LocalProtocolError
            For memory that was itself attached.
        """
        if not self.exportable:
            raise LocalProtocolError("memory of another process is not handed on to a third one")
        return self._arena_export()

    @property
    @abc.abstractmethod
    def exportable(self) -> bool:
        """Whether this process made the memory."""

    @abc.abstractmethod
    def describe(self) -> ArenaDescription:
        """Return what a subscriber has to know."""

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of descriptors and handles, once.

        The memory stays mapped as long as this object lives, and arrays on it hold it: it is
        unmapped when the last of them goes.
        """

    @abc.abstractmethod
    def _arena_export(self) -> OwnedFd: ...
