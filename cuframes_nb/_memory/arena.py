"""What every kind of shareable memory must do."""

from __future__ import annotations

import abc
from collections.abc import Hashable
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError
from cuframes_nb.formats import FrameLayout

__all__ = ["Arena", "Part", "Share", "Shareable"]


class Arena(abc.ABC):
    """One memory allocation that another process can map.

    The publisher makes one with the kind's ``create``, or around memory that its user made; a
    subscriber gets one from the kind's ``attach``. The memory lives until every process that mapped
    it has let go, unless its kind says otherwise.

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

        An open descriptor pins the memory, so export at the moment of sending. Not for an arena
        whose description says that it has none.

        Raises
        ------
        LocalProtocolError
            For memory that was itself attached.
        """
        if not self.exportable:
            raise LocalProtocolError("memory of another process is not handed on to a third one")
        return self._arena_export()

    @property
    def identity(self) -> Hashable:
        """What two arenas have in common that show the same memory; by default the arena itself."""
        return id(self)

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


class Part(NamedTuple):
    """What a subscriber was sent of an arena."""

    description: ArenaDescription
    fd: OwnedFd | None  #: None for a kind that travels without

    def descriptor(self) -> OwnedFd:
        """Return the descriptor of a kind that travels with one.

        Raises
        ------
        RemoteProtocolError
            If there is none.
        """
        if self.fd is None:
            raise RemoteProtocolError(
                f"memory of kind {self.description.kind.label} came without a descriptor"
            )
        return self.fd


class Share(NamedTuple):
    """Where a buffer that somebody else made lies, and what shares it.

    The arena is the ring's from then on, which closes it. Of several with one `identity` the ring
    keeps the first.
    """

    arena: Arena  #: a new one for each call; it keeps the memory, or what makes the memory last
    offset: int  #: of the frame's first byte, from the arena's data offset
    layout: FrameLayout  #: how the frame lies there, which is the same for all buffers of a ring


@runtime_checkable
class Shareable(Protocol):
    """A buffer that knows by itself how it is shared: for ``Publisher(..., buffers=[...])``."""

    def __cuframes_share__(self, layout: FrameLayout) -> Share:
        """Share the buffer.

        Parameters
        ----------
        layout
            Format, size and, where the user named one, pitch of the frames. The buffer answers with
            its own layout, of the same format and size.

        Raises
        ------
        InvalidArgumentError
            If it does not hold such frames.
        UnsupportedError
            If it cannot be shared.
        """
