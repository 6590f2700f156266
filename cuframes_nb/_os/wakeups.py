"""Telling one other process that there is something new, without ever waiting for it.

A pipe and not an eventfd: ``O_NONBLOCK`` belongs to the open file description, and both ends of an
eventfd are the same one. A hostile reader could make it blocking and fill its counter, and the next
frame would stop the publisher for ever. The ends of a pipe are separate.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import Final

from cuframes_nb._os.fds import OwnedFd

__all__ = ["WakeReceiver", "WakeSender", "wake_pipe"]

_CAPACITY: Final = 4096
"""Bytes: the smallest that F_SETPIPE_SZ gives (pipe(7)). A full pipe wakes as well as one byte."""


class WakeSender:
    """The publisher's end."""

    __slots__ = ("_fd",)

    def __init__(self, fd: OwnedFd) -> None:
        self._fd = fd

    def wake(self) -> None:
        """Wake the other side; does nothing if it is gone, or has not looked for a long time."""
        try:  # noqa: SIM105  once a frame and subscriber: cheaper than contextlib.suppress
            os.write(self._fd.fileno(), b"\0")
        except (BlockingIOError, BrokenPipeError):
            pass

    def close(self) -> None:
        """Close this end, once."""
        self._fd.close()


class WakeReceiver:
    """The subscriber's end: readable when there is something new."""

    __slots__ = ("_fd",)

    def __init__(self, fd: OwnedFd) -> None:
        self._fd = fd

    def fileno(self) -> int:
        """Return the descriptor to poll; it stays this object's."""
        return self._fd.fileno()

    def drain(self) -> None:
        """Forget the wake-ups so far."""
        with contextlib.suppress(BlockingIOError):
            os.read(self._fd.fileno(), _CAPACITY)

    def close(self) -> None:
        """Close this end, once."""
        self._fd.close()


def wake_pipe() -> tuple[WakeSender, OwnedFd]:
    """Return the sender, and the descriptor to give to the other process.

    Both are the caller's, and both are non-blocking.
    """
    read, write = (OwnedFd(fd) for fd in os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK))
    # Only a saving: some kernels and limits refuse, and the default size works as well.
    with contextlib.suppress(OSError):
        fcntl.fcntl(write.fileno(), fcntl.F_SETPIPE_SZ, _CAPACITY)
    return WakeSender(write), read
