"""Host memory: a sealed memfd."""

from __future__ import annotations

from typing import Self

from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._os.memfd import check_sealed, create_sealed, reopen_read_only
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import UnsupportedError

__all__ = ["HostArena"]


class HostArena(Arena):
    """Host memory in a sealed memfd: the maker writes it, everybody else only reads."""

    kind = MemoryKind.HOST

    def __init__(self, mapping: Mapping, fd: OwnedFd | None) -> None:
        self._mapping = mapping
        self._fd = fd
        self.address = mapping.address
        self.nbytes = mapping.nbytes
        self.writable = mapping.writable

    @classmethod
    def create(cls, nbytes: int) -> Self:
        """Make `nbytes` of zeroed memory.

        Raises
        ------
        OSError
            If there is not enough memory or no descriptor is left.
        """
        # Nothing locks this file, so a forked child may keep the pixels that it inherits arrays on.
        fd, mapping = create_sealed("pixels", nbytes, inherit=True)
        return cls(mapping, fd)

    @classmethod
    def attach(cls, description: ArenaDescription, fd: OwnedFd, *, writable: bool = False) -> Self:
        """Map another process's memory read-only; `fd` is closed.

        Raises
        ------
        RemoteProtocolError
            If the descriptor is not memory of at least that size that is sealed against shrinking.
        UnsupportedError
            If `writable` is asked for: the seals forbid it.
        """
        with fd:
            if writable:
                raise UnsupportedError(
                    "host memory is sealed against every writer but its publisher; subscribe "
                    "without writable=True and work on frame.copy()"
                )
            check_sealed(fd, description.nbytes, "pixels")
            # A forked child may go on reading arrays that it inherited.
            mapping = Mapping(fd, description.nbytes, writable=False, inherit=True)
            return cls(mapping, None)

    @property
    def exportable(self) -> bool:
        return self._fd is not None

    def describe(self) -> ArenaDescription:
        return ArenaDescription(self.kind, self.nbytes)

    def close(self) -> None:
        if self._fd is not None:
            self._fd.close()

    def _arena_export(self) -> OwnedFd:
        assert self._fd is not None  # noqa: S101  exportable says so
        return reopen_read_only(self._fd)
