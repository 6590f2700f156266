"""Record locks that belong to an open file description: leases that die with their holder.

fcntl(2), "Open file description locks". The kernel drops them when the last descriptor of the
description closes, however the process ends, and they work across namespaces.
"""

from __future__ import annotations

import fcntl
import os
import struct
from typing import Final

__all__ = ["ReadLock", "WriteLock", "conflicting_lock"]

# struct flock on 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid (must be 0 for OFD locks).
_FLOCK: Final = struct.Struct("hhqqi4x")
# include/uapi/asm-generic/fcntl.h; Python 3.11 names them only where its libc does.
_F_OFD_GETLK: Final = 36
_F_OFD_SETLK: Final = 37


def _request(kind: int, start: int, length: int) -> bytes:
    return _FLOCK.pack(kind, os.SEEK_SET, start, length, 0)


class _RangeLock:
    """A lock on ``[start, start + length)`` of one file; the request is packed once."""

    __slots__ = ("_lock", "_unlock")

    _kind: int

    def __init__(self, start: int, length: int) -> None:
        self._lock = _request(self._kind, start, length)
        self._unlock = _request(fcntl.F_UNLCK, start, length)

    def try_acquire(self, fd: int) -> bool:
        """Take the lock through descriptor `fd` if nobody is in the way; never wait."""
        try:
            fcntl.fcntl(fd, _F_OFD_SETLK, self._lock)
        except (BlockingIOError, PermissionError):  # EAGAIN; EACCES is allowed by POSIX
            return False
        return True

    def release(self, fd: int) -> None:
        """Give the lock back."""
        fcntl.fcntl(fd, _F_OFD_SETLK, self._unlock)


class WriteLock(_RangeLock):
    """An exclusive lock: the publisher's, while it writes a slot."""

    __slots__ = ()
    _kind = fcntl.F_WRLCK


class ReadLock(_RangeLock):
    """A shared lock: a subscriber's, while it reads a slot."""

    __slots__ = ()
    _kind = fcntl.F_RDLCK


def conflicting_lock(fd: int, start: int, length: int) -> int | None:
    """Return the first byte in the range that somebody else has locked, or None.

    Asks as a writer would, through `fd`, whose own locks do not count.
    """
    answer = fcntl.fcntl(fd, _F_OFD_GETLK, _request(fcntl.F_WRLCK, start, length))
    kind, _, found, _, _ = _FLOCK.unpack(answer)
    return None if kind == fcntl.F_UNLCK else found
