"""The one owner of a file descriptor."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from types import TracebackType
from typing import Self

from cuframes_nb._os.forks import close_in_child
from cuframes_nb.errors import ClosedError

__all__ = ["OwnedFd", "close_all"]


class OwnedFd:
    """A file descriptor and the duty to close it.

    Closing is idempotent. One that is dropped unclosed is closed with a `ResourceWarning`. A forked
    child starts with its copies closed.

    Parameters
    ----------
    fd
        An open descriptor; it belongs to this object from now on.
    """

    __slots__ = ("__weakref__", "_fd", "_loud")

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._loud = True
        close_in_child(self)

    @property
    def closed(self) -> bool:
        """Whether the descriptor is closed or was handed on."""
        return self._fd < 0

    def fileno(self) -> int:
        """Return the number, which stays this object's.

        Raises
        ------
        ClosedError
            If it is closed.
        """
        if self._fd < 0:
            raise ClosedError("this descriptor was closed already")
        return self._fd

    def let_drop(self) -> None:
        """Allow that it is dropped unclosed: from now on that is how its owner ends."""
        self._loud = False

    def take(self) -> int:
        """Hand the number, and the duty to close it, to the caller."""
        fd, self._fd = self.fileno(), -1
        return fd

    def close(self) -> None:
        """Close the descriptor, once."""
        # The number is forgotten first: a second close would hit whoever got it since.
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    _abandon = close

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_fd", -1) >= 0:
            if self._loud:
                warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)
            self.close()

    def __repr__(self) -> str:
        return f"<OwnedFd {self._fd if self._fd >= 0 else 'closed'}>"


def close_all(fds: Iterable[OwnedFd]) -> None:
    """Close each of `fds`."""
    for fd in fds:
        fd.close()
