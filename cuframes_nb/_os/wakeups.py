"""Telling one other process that there is something new, without ever waiting for it.

A pair of sockets, because nothing that its reader does can make the writer wait: ``MSG_DONTWAIT``
holds for the call. With an eventfd the reader could: both ends are one open file description,
whose ``O_NONBLOCK`` anybody may clear. With a pipe it could, too: a reader whose buffer faults into
memory that it serves itself (userfaultfd, FUSE) keeps the pipe locked meanwhile. See
``docs/design/decisions/wake-up-channel.md``.
"""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Iterable
from typing import Final

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.forks import close_in_child

__all__ = ["WakeReceiver", "WakeSender", "wake_each", "wake_pair"]

_SEND: Final = socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
_QUEUE_BYTES: Final = 4096
"""For SO_SNDBUF: room for a few unread wake-ups. A full queue wakes as well as one byte."""
_DRAIN_BYTES: Final = 4096


class WakeSender:
    """The publisher's end.

    Parameters
    ----------
    sock
        One end of a pair; it belongs to this object from now on.
    """

    __slots__ = ("__weakref__", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        close_in_child(self)

    def fileno(self) -> int:
        """Return the descriptor, which stays this object's; -1 when closed."""
        return self._sock.fileno()

    def wake(self) -> None:
        """Wake the other side; does nothing if that cannot be done.

        So it is if the other side is gone, if it has not looked for a long time, or if the kernel
        has no memory: it looks again at the next wake-up.
        """
        wake_each((self,))

    def close(self) -> None:
        """Close this end, once."""
        self._sock.close()

    _abandon = close


class WakeReceiver:
    """The subscriber's end: readable when there is something new.

    Parameters
    ----------
    sock
        The other end; it belongs to this object from now on.
    """

    __slots__ = ("__weakref__", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        close_in_child(self)

    @classmethod
    def adopt(cls, fd: OwnedFd) -> WakeReceiver:
        """Take over a descriptor that another process sent.

        Raises
        ------
        OSError
            If it is no Unix stream socket; it is closed then.
        """
        with fd:
            if not stat.S_ISSOCK(os.fstat(fd.fileno()).st_mode):
                raise OSError("not a Unix stream socket")
            # Taken first, and so looked at before: with two owners, an interrupt could have the
            # number closed twice, and the second time it may be somebody else's.
            sock = socket.socket(fileno=fd.take())
        if (sock.family, sock.type) != (socket.AF_UNIX, socket.SOCK_STREAM):
            sock.close()
            raise OSError("not a Unix stream socket")
        return cls(sock)

    def fileno(self) -> int:
        """Return the descriptor to poll; it stays this object's; -1 when closed."""
        return self._sock.fileno()

    def drain(self) -> bool:
        """Forget the wake-ups so far; return False if there will be no more.

        Then the sender is gone, and this end stays readable for good: poll it no more.
        """
        try:
            return bool(self._sock.recv(_DRAIN_BYTES, socket.MSG_DONTWAIT))
        except BlockingIOError:
            return True
        except ConnectionError:
            return False

    def close(self) -> None:
        """Close this end, once."""
        self._sock.close()

    _abandon = close


def wake_each(senders: Iterable[WakeSender]) -> None:
    """Wake every other side, as :meth:`WakeSender.wake` does; one loop, as it is run a frame."""
    for sender in senders:
        try:  # noqa: SIM105  cheaper than contextlib.suppress
            sender._sock.send(b"\0", _SEND)  # noqa: SLF001
        except OSError:
            pass


def wake_pair() -> tuple[WakeSender, OwnedFd]:
    """Return the sender, and the descriptor to give to the other process; both are the caller's."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _QUEUE_BYTES)
    # Non-blocking for whoever polls it by other means than ours; our own calls never wait.
    ours.settimeout(0)
    theirs.settimeout(0)
    return WakeSender(ours), OwnedFd(theirs.detach())
