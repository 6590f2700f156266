"""One epoch as a subscriber sees it: mapped memory, the control block, its leases."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from typing import TypeAlias

from cuframes_nb._core.reading import lease_limit
from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._os.memfd import check_sealed
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._runtime.leases import Lease, LeaseTable
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._wire.control import CONTROL_NBYTES, ControlReader, Record
from cuframes_nb._wire.messages import ArenaDescription, Epoch
from cuframes_nb.errors import RemoteProtocolError, UnsupportedError

__all__ = ["AttachedEpoch", "Taken"]

BackendFor = Callable[[ArenaDescription], Backend]
"""Chooses what can map an arena; raises a `DeviceError` or `UnsupportedError` with the reason."""


Taken: TypeAlias = tuple[Lease, PlaneSource, Record]
"""A frame that is leased."""


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
            self._backends = [backend_for(arena) for arena in ring.arenas]
            arenas = self._attach_arenas(arena_fds, writable=writable)
            undo.pop_all()
        self._fd = control_fd
        # Held until the last lease is back: arrays on the memory hold a lease, and it holds us.
        self._arenas: list[Arena] = arenas
        self._planes = [
            self._backends[slot.arena].planes(
                arenas[slot.arena], ring.arenas[slot.arena].data_offset + slot.offset, ring.layout
            )
            for slot in ring.slots
        ]
        self._lease_makers = [self._backends[slot.arena].lease_maker for slot in ring.slots]
        limit = lease_limit(len(ring.slots))
        self._table = LeaseTable(control_fd, index, len(ring.slots), limit, self._release)
        self.may_take = self._table.may_take

    @property
    def backend(self) -> Backend:
        """What maps the first arena; today's publishers use one kind a ring."""
        return self._backends[0]

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
        return sum(backend.pending_releases(self._table) for backend in self._backends)

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
        return lease, self._planes[slot], record

    def retire(self) -> None:
        """Take no more frames from this epoch; it ends with its last lease."""
        self._table.retire()

    def _attach_arenas(self, fds: list[OwnedFd], *, writable: bool) -> list[Arena]:
        arenas = []
        waiting = iter(fds)
        for description, backend in zip(self.message.ring.arenas, self._backends, strict=True):
            if not description.has_fd:
                raise UnsupportedError(
                    f"memory of kind {description.kind.label} comes without a descriptor, which "
                    f"this version cannot map"
                )
            arenas.append(backend.attach_arena(description, next(waiting), writable=writable))
        return arenas

    def _release(self) -> None:
        """Let everything go; called once, when retired and no lease is out."""
        del self._planes
        for arena in self._arenas:
            arena.close()
        self._arenas.clear()
        self._fd.close()
        # The control block stays mapped while another thread still looks at its counters.
