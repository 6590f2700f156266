"""What every kind of shareable memory must do, as tests to subclass."""

from __future__ import annotations

import abc
import dataclasses
import os
from typing import Any

from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError

__all__ = ["ArenaConformance"]

NBYTES = 100_000
"""Asked for: no multiple of any page or granule."""


class ArenaConformance(abc.ABC):
    """Tests of one kind of arena; pytest collects them from a subclass.

    A subclass says how one is made, attached and looked at; see ``tests/contract``.
    """

    @abc.abstractmethod
    def create(self, nbytes: int) -> Arena:
        """Make an arena of at least `nbytes`."""

    @abc.abstractmethod
    def attach(self, description: ArenaDescription, fd: OwnedFd) -> Arena:
        """Map another's arena; closes `fd`, whatever happens."""

    @abc.abstractmethod
    def view(self, arena: Arena) -> Any:
        """Return the arena's bytes as an array of uint8 that keeps it alive."""

    @abc.abstractmethod
    def available(self) -> int:
        """Return how many bytes of this kind of memory the machine has left."""

    # --- Making -----------------------------------------------------------------------------------

    def test_it_has_at_least_the_size_asked_for(self) -> None:
        """Sizes are rounded up, never down."""
        arena = self.create(NBYTES)
        assert arena.nbytes >= NBYTES
        assert arena.writable
        assert arena.exportable
        arena.close()

    def test_it_describes_itself(self) -> None:
        """The description is what a subscriber has to know."""
        arena = self.create(NBYTES)
        description = arena.describe()
        assert description.kind is arena.kind
        assert description.nbytes == arena.nbytes
        assert any(description.device_uuid) == (arena.device is not None)
        arena.close()

    def test_close_is_idempotent_and_leaves_the_memory_to_its_arrays(self) -> None:
        """Descriptors go at once, the mapping with the last array."""
        arena = self.create(NBYTES)
        view = self.view(arena)
        view[:] = 7
        arena.close()
        arena.close()
        assert int(view.max()) == 7

    # --- Sharing ----------------------------------------------------------------------------------

    def test_what_one_writes_the_other_reads(self) -> None:
        """There is one memory, at two addresses."""
        arena = self.create(NBYTES)
        other = self.attach(arena.describe(), arena.export())
        ours, theirs = self.view(arena), self.view(other)
        for value in (1, 2):
            ours[:] = value
            assert int(theirs.min()) == int(theirs.max()) == value
        assert arena.address != other.address
        other.close()
        arena.close()

    def test_the_other_side_may_not_write_and_hands_nothing_on(self) -> None:
        """Attached memory is read-only, and shared by its maker only."""
        arena = self.create(NBYTES)
        other = self.attach(arena.describe(), arena.export())
        assert not other.writable
        assert not other.exportable
        try:
            other.export()
        except LocalProtocolError:
            pass
        else:
            raise AssertionError("attached memory was exported")
        other.close()
        arena.close()

    def test_the_memory_outlives_its_maker(self) -> None:
        """A subscriber's frames stay when the publisher goes."""
        arena = self.create(NBYTES)
        self.view(arena)[:] = 9
        other = self.attach(arena.describe(), arena.export())
        arena.close()
        del arena
        assert int(self.view(other).min()) == 9
        other.close()

    def test_each_export_is_a_descriptor_of_its_own(self) -> None:
        """Whoever sends one closes it; the next is not touched by that."""
        arena = self.create(NBYTES)
        first, second = arena.export(), arena.export()
        assert first.fileno() != second.fileno()
        first.close()
        self.attach(arena.describe(), second).close()
        assert second.closed
        arena.close()

    # --- Lies -------------------------------------------------------------------------------------

    def test_a_size_that_the_peer_invented_is_refused(self) -> None:
        """The memory itself says how large it is."""
        arena = self.create(NBYTES)
        lie = dataclasses.replace(arena.describe(), nbytes=arena.nbytes * 100)
        self._refused(lie, arena.export())
        arena.close()

    def test_something_else_than_memory_is_refused(self) -> None:
        """A pipe is no memory of any kind."""
        arena = self.create(NBYTES)
        read, write = os.pipe2(os.O_CLOEXEC)
        os.close(write)
        self._refused(arena.describe(), OwnedFd(read))
        arena.close()

    def _refused(self, description: ArenaDescription, fd: OwnedFd) -> None:
        """Attaching raises the other side's error, and closes the descriptor."""
        try:
            self.attach(description, fd)
        except RemoteProtocolError:
            assert fd.closed
        else:
            raise AssertionError("it was attached")

    # --- Leaks ------------------------------------------------------------------------------------

    def test_nothing_is_left_behind(self) -> None:
        """A hundred arenas, one after the other, take no more than one."""
        nbytes = 16 << 20
        before = self.available()
        for _ in range(100):
            arena = self.create(nbytes)
            other = self.attach(arena.describe(), arena.export())
            other.close()
            arena.close()
            del arena, other
        assert self.available() > before - 50 * nbytes
