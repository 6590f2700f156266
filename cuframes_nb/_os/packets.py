"""Packets with descriptors over a Unix ``SOCK_SEQPACKET`` socket.

One packet is one message and carries its own descriptors, or the kernel says that it was cut
(unix(7), recvmsg(2)). On a byte stream a descriptor can end up beside another message.
"""

from __future__ import annotations

import array
import contextlib
import errno
import fcntl
import os
import select
import socket
import termios
import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from cuframes_nb._os.credentials import Credentials, peer_credentials
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.forks import close_in_child
from cuframes_nb.errors import RemoteProtocolError, StreamNotFoundError

__all__ = ["MAX_FDS", "MAX_PACKET", "Packet", "PacketSocket"]

MAX_PACKET: Final = 65536
"""Bytes of the largest packet that is read; the largest real message has less than a third."""

MAX_FDS: Final = 72
"""Descriptors of one packet; below the kernel's own limit of 253 (SCM_MAX_FD)."""

_ANCILLARY: Final = socket.CMSG_SPACE(MAX_FDS * 4)


class Packet(NamedTuple):
    """One received packet; the descriptors belong to whoever received it."""

    data: bytes
    fds: tuple[OwnedFd, ...]


class PacketSocket:
    """One end of a control connection; never blocks unless told how long.

    Parameters
    ----------
    sock
        A connected SEQPACKET socket; it belongs to this object from now on.
    """

    __slots__ = ("__weakref__", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        close_in_child(self)

    @classmethod
    def connect(cls, path: os.PathLike[str] | str, deadline: float) -> PacketSocket:
        """Connect to the socket at `path`.

        Parameters
        ----------
        path
            The socket's path.
        deadline
            ``time.monotonic()`` until which a listener with a full queue is tried again.

        Raises
        ------
        OSError
            ``FileNotFoundError``, ``ConnectionRefusedError`` (nobody listens), ``PermissionError``,
            or ``BlockingIOError`` when the queue stayed full.
        StreamNotFoundError
            If a socket of another type listens there.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            sock.settimeout(0)
            while True:
                try:
                    sock.connect(os.fspath(path))
                except BlockingIOError:
                    if time.monotonic() >= deadline:
                        raise
                    time.sleep(0.002)
                except OSError as error:
                    if error.errno != errno.EPROTOTYPE:
                        raise
                    raise StreamNotFoundError(
                        f"what listens at {os.fspath(path)} is another program's socket (of "
                        f"another type), and no stream: give a publisher's path, or a key"
                    ) from error
                else:
                    return cls(sock)
        except BaseException:
            sock.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to poll, -1 when closed."""
        return self._sock.fileno()

    def send(self, data: bytes, fds: Sequence[OwnedFd] = ()) -> None:
        """Send one packet without waiting; `fds` stay the caller's.

        Raises
        ------
        BlockingIOError
            If the other side does not read.
        BrokenPipeError, ConnectionResetError
            If it is gone.
        """
        ancillary = []
        if fds:
            numbers = array.array("i", [fd.fileno() for fd in fds])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, numbers)]
        self._sock.sendmsg([data], ancillary, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)

    def receive(self) -> Packet | None:
        """Return the next packet, or None at the end; never wait.

        Raises
        ------
        BlockingIOError
            If nothing is there.
        RemoteProtocolError
            If the packet was larger, or had more descriptors, than allowed; all are closed.
        """
        try:
            data, ancillary, flags = self._receive()
        except ConnectionResetError:
            # Told once, and first, if the other side closed with packets unread. What it sent
            # before is still there.
            try:
                data, ancillary, flags = self._receive()
            except ConnectionResetError:
                return None
        fds = _owned(ancillary)  # owned before anything below can raise
        if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
            close_all(fds)
            what = "bytes" if flags & socket.MSG_TRUNC else "descriptors (or none is left here)"
            raise RemoteProtocolError(
                f"a control packet had too many {what}: at most {MAX_PACKET} bytes and {MAX_FDS} "
                f"descriptors are allowed"
            )
        if not data:
            close_all(fds)  # an empty packet says nothing; the protocol never sends one
            return None
        return Packet(data, fds)

    def receive_within(self, deadline: float) -> Packet | None:
        """Return the next packet, or None at the end, waiting until `deadline`.

        Raises
        ------
        TimeoutError
            If nothing came until ``time.monotonic()`` reached `deadline`.
        RemoteProtocolError
            As `receive`.
        """
        while True:
            try:
                return self.receive()
            except BlockingIOError:
                self._wait(deadline)

    def peer(self) -> Credentials:
        """Return who is at the other end."""
        return peer_credentials(self._sock)

    @property
    def unread(self) -> bool:
        """Whether the other side has not read all that was sent (unix(7), SIOCOUTQ)."""
        answer = fcntl.ioctl(self._sock.fileno(), termios.TIOCOUTQ, bytes(4))
        return answer != bytes(4)

    def shut_down(self) -> None:
        """End the connection, so that both ends wake, and keep the descriptor; from any thread."""
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close, once. What the other side has not read yet stays readable for it."""
        self._sock.close()

    def _abandon(self) -> None:
        self._sock.close()

    def _receive(self) -> tuple[bytes, list[tuple[int, int, bytes]], int]:
        data, ancillary, flags, _ = self._sock.recvmsg(
            MAX_PACKET, _ANCILLARY, socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT
        )
        return data, ancillary, flags

    def _wait(self, deadline: float) -> None:
        poller = select.poll()
        poller.register(self._sock.fileno(), select.POLLIN)
        remaining = deadline - time.monotonic()
        if remaining <= 0 or not poller.poll(remaining * 1000):
            raise TimeoutError(errno.ETIMEDOUT, "the other side sent nothing in time")


def _owned(ancillary: list[tuple[int, int, bytes]]) -> tuple[OwnedFd, ...]:
    fds: list[OwnedFd] = []
    for level, kind, data in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            numbers = array.array("i")
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
            fds.extend(OwnedFd(number) for number in numbers)
    return tuple(fds)
