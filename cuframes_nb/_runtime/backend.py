"""What the runtime needs from each kind of memory."""

from __future__ import annotations

import abc
import contextlib
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._runtime.leases import LeaseMaker, LeaseTable
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._wire.control import ControlWriter
from cuframes_nb._wire.messages import Completion, MemoryKind
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["Backend", "CompletionWriter", "Revocable", "unmappable"]


def unmappable(kind: MemoryKind) -> UnsupportedError:
    """Return the error for memory that this version cannot map."""
    return UnsupportedError(
        f"memory of kind {kind.label} cannot be mapped by this version of cuframes_nb; publish "
        f"with memory='cuda' or memory='host'"
    )


class CompletionWriter(abc.ABC):
    """Says in the control block when the pixels of a slot are complete.

    Attributes
    ----------
    method
        Who writes the word.
    reason
        Why it is done this way, for people.
    """

    method: Completion
    reason: str

    @abc.abstractmethod
    def complete(self, slot: int, value: int, stream: object | None) -> None:
        """Have `value` written to the slot's word once the work queued on `stream` is done.

        Parameters
        ----------
        slot
            Which slot.
        value
            What to write.
        stream
            A stream, or None for the current one; ignored for host memory.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Let go of the control block, once."""


@runtime_checkable
class Revocable(Protocol):
    """Planes on memory that goes with the process that made it."""

    def revoke(self, why: str) -> None:
        """Make no more arrays."""


class Backend(abc.ABC):
    """One kind of memory, for publishers and for subscribers.

    Attributes
    ----------
    kind
        How arenas are shared.
    reason
        Why this kind was chosen, for people.
    device
        ``"cpu"`` or ``"cuda:N"`` by this process's ordinals.
    sharing
        How frames come to this subscriber, if not in the way that the publisher shares them.
    lease_maker
        Makes the lease for a slot that was just taken.
    """

    kind: MemoryKind
    reason: str
    device: str
    sharing: str = ""
    lease_maker: LeaseMaker

    @abc.abstractmethod
    def create_arena(self, nbytes: int) -> Arena:
        """Make memory for a ring; a size that the kind cannot give is rounded up."""

    @abc.abstractmethod
    def attach_arena(self, parts: Sequence[Part], *, writable: bool) -> Arena:
        """Map a publisher's memory; its descriptors are the arena's, or closed if there is none.

        Parameters
        ----------
        parts
            One; or several of kind CUDA_VMM, to be mapped one behind the other.
        writable
            Whether for writing, too.

        Raises
        ------
        RemoteProtocolError
            If the memory is not what the publisher says.
        UnsupportedError
            If this backend cannot map that kind.
        """

    @abc.abstractmethod
    def planes(self, arena: Arena, offset: int, layout: FrameLayout) -> PlaneSource:
        """Return what makes arrays on the slot at `offset` of `arena`."""

    @abc.abstractmethod
    def completion(self, control: ControlWriter, mapping: Mapping) -> CompletionWriter:
        """Return what says that a slot is complete."""

    def pending_releases(self, table: LeaseTable) -> int:
        """Return how many of a table's leases wait for the GPU to finish reading."""
        del table
        return 0

    @abc.abstractmethod
    def as_array(self, source: Any) -> Any:
        """Return `source` as an array of NumPy or CuPy, on the memory it is on.

        Raises
        ------
        InvalidArgumentError
            If it is no array of a kind that this backend can read.
        """

    @abc.abstractmethod
    def to_own(self, array: Any) -> Any:
        """Return `array` on this backend's kind of memory, copied only if it is on another."""

    @abc.abstractmethod
    def copy_in(self, target: Any, source: Any) -> None:
        """Copy `source`, on whatever memory, into `target`, an array of this backend."""

    def on_stream(self, stream: object | None) -> AbstractContextManager[object]:
        """Make a stream current for a block; None leaves it as it is, host memory has none."""
        del stream
        return contextlib.nullcontext()
