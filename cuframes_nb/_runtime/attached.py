"""One epoch as a subscriber sees it: mapped memory, the control block, its leases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from cuframes_nb._core.reading import lease_limit
from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._os.memfd import check_sealed
from cuframes_nb._runtime.backend import Backend, Revocable
from cuframes_nb._runtime.leases import Lease, LeaseTable
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._views.tiled import CopyingPlanes
from cuframes_nb._wire.control import CONTROL_NBYTES, ControlReader, Record
from cuframes_nb._wire.messages import ArenaDescription, Epoch, MemoryKind
from cuframes_nb.errors import RemoteProtocolError

__all__ = ["AttachedEpoch", "Taken"]

BackendFor = Callable[[ArenaDescription], Backend]
"""Chooses what can map an arena; raises a `DeviceError` or `UnsupportedError` with the reason."""


Taken: TypeAlias = tuple[Lease | None, PlaneSource, Record]
"""A frame that is leased; one that was copied needs no lease."""


class AttachedEpoch:
    """An epoch of a publisher, mapped into this process.

    It lives as long as the subscriber follows it or any lease on it is out.

    Parameters
    ----------
    message
        The publisher's description.
    fds
        Its descriptors, which belong to this object from now on, whatever happens.
    index
        The lock byte given to this subscriber.
    backend_for
        Chooses the backend for an arena.
    writable
        Whether to map the pixels for writing.

    Raises
    ------
    RemoteProtocolError
        If the descriptors are not what the description says.
    DeviceError, UnsupportedError
        If this machine or process cannot map the memory.
    """

    def __init__(
        self,
        message: Epoch,
        fds: Sequence[OwnedFd],
        index: int,
        backend_for: BackendFor,
        *,
        writable: bool = False,
    ) -> None:
        self.message = message
        ring = message.ring
        control_fd, *arena_fds = fds
        with contextlib.ExitStack() as undo:
            undo.callback(close_all, fds)
            check_sealed(control_fd, CONTROL_NBYTES, "the control block")
            if message.control_nbytes != CONTROL_NBYTES:
                raise RemoteProtocolError(
                    f"the control block has {message.control_nbytes} bytes and not {CONTROL_NBYTES}"
                )
            self._mapping = Mapping(control_fd, CONTROL_NBYTES, writable=False)
            undo.callback(self._mapping.close)
            self._view = self._mapping.view()
            self.control = ControlReader(self._view, len(ring.slots))
            if not self.control.is_for(message.epoch):
                raise RemoteProtocolError(f"the control block is not that of epoch {message.epoch}")
            self._backends = _backends(ring.arenas, backend_for)
            arenas = self._attach_arenas(arena_fds, writable=writable)
            undo.pop_all()
        self._fd = control_fd
        # Held until the last lease is back: arrays on the memory hold a lease, and it holds us.
        self._arenas = arenas
        self._planes = [
            self._backend_of(slot.arena).planes(
                arenas[slot.arena], ring.arenas[slot.arena].data_offset + slot.offset, ring.layout
            )
            for slot in ring.slots
        ]
        self._has_copying = any(isinstance(planes, CopyingPlanes) for planes in self._planes)
        self._fleeting = [planes for planes in self._planes if isinstance(planes, Revocable)]
        self.revoked = False  #: whether the memory went with its publisher
        self._lease_makers = [self._backend_of(slot.arena).lease_maker for slot in ring.slots]
        limit = lease_limit(len(ring.slots))
        self._table = LeaseTable(control_fd, index, len(ring.slots), limit, self._release)
        self.may_take = self._table.may_take

    @property
    def backend(self) -> Backend:
        """What maps the first arena."""
        return self._backend_of(0)

    @property
    def held(self) -> int:
        """How many slots are leased."""
        return self._table.held

    @property
    def limit(self) -> int:
        """How many slots may be leased at a time."""
        return self._table.limit

    @property
    def pending_releases(self) -> int:
        """How many leases only wait for the GPU to finish reading."""
        return sum(backend.pending_releases(self._table) for backend in self._backends.values())

    def take(self, slot: int, seq: int) -> Taken | None:
        """Lease `slot` if it has frame `seq`, complete; else return None.

        Reads the metadata under the lease, when it cannot change any more.
        """
        table, control = self._table, self.control
        hold = table.take(slot)
        if hold is None:
            return None
        if not control.holds(slot, seq):
            # No lease yet, which on a GPU would wait for work that has nothing to do with this.
            hold = None
            table.settle(slot)
            return None
        lease = self._lease_makers[slot](table, slot, hold)
        record = control.record(slot)
        if record[0] != seq:
            raise RemoteProtocolError(
                f"slot {slot} is announced as frame {seq} and recorded as {record.seq}"
            )
        planes = self._planes[slot]
        if self._has_copying and isinstance(planes, CopyingPlanes):
            # On a GPU the lease, which ends here, waits for the copy.
            return None, planes.copied(), record
        return lease, planes, record

    def revoke(self, publisher: str) -> None:
        """Note that the publisher's process has ended, and with it memory that does not outlive it.

        Arrays that were taken are out of reach.
        """
        for planes in self._fleeting:
            planes.revoke(
                f"{publisher} ended, and with it the memory of its frames, which were buffers of "
                f"its user shared by a legacy handle: keep frame.copy(), or publish from memory "
                f"that is shared by descriptors"
            )
        self.revoked = bool(self._fleeting)

    def retire(self) -> None:
        """Take no more frames from this epoch; it ends with its last lease."""
        self._table.retire()

    def _backend_of(self, arena: int) -> Backend:
        return self._backends[_place_of(self.message.ring.arenas[arena])]

    def _attach_arenas(self, fds: list[OwnedFd], *, writable: bool) -> dict[int, Arena]:
        """Map each arena, with those that continue it as one."""
        ring = self.message.ring
        waiting = iter(fds)
        parts = [Part(arena, next(waiting) if arena.has_fd else None) for arena in ring.arenas]
        return {
            first: self._backend_of(first).attach_arena(
                [parts[number] for number in ring.run(first)], writable=writable
            )
            for first, arena in enumerate(ring.arenas)
            if not arena.continues
        }

    def _release(self) -> None:
        """Let everything go; called once, when retired and no lease is out."""
        del self._planes
        for arena in self._arenas.values():
            arena.close()
        self._arenas.clear()
        self._fd.close()
        # The control block stays mapped while another thread still looks at its counters.


_Place: TypeAlias = tuple[MemoryKind, bytes]
"""What a backend depends on: a kind of memory, and the GPU that holds it."""


def _place_of(arena: ArenaDescription) -> _Place:
    return arena.kind, arena.device_uuid


def _backends(arenas: Sequence[ArenaDescription], backend_for: BackendFor) -> dict[_Place, Backend]:
    found: dict[_Place, Backend] = {}
    for arena in arenas:
        if _place_of(arena) not in found:
            found[_place_of(arena)] = backend_for(arena)
    return found
