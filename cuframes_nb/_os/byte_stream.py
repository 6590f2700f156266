"""A Unix ``SOCK_STREAM`` connection that never blocks, for other programs' protocols.

On a stream a descriptor belongs to the bytes that were sent with it. A read ends behind those, and
must not begin before them, if it shall be known which they were.
"""

from __future__ import annotations

import array
import os
import socket
from collections import deque
from typing import Final, NamedTuple

from cuframes_nb._os.credentials import Credentials, peer_credentials
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.forks import close_in_child
from cuframes_nb.errors import RemoteProtocolError

__all__ = ["ByteStream", "Chunk"]

_MAX_FDS: Final = 4
_ANCILLARY: Final = socket.CMSG_SPACE(_MAX_FDS * 4)
_CUT: Final = int(socket.MSG_CTRUNC)


class Chunk(NamedTuple):
    """What one read gave; the descriptors belong to whoever read. No bytes mean the end."""

    data: bytes
    fds: tuple[OwnedFd, ...]


class ByteStream:
    """One end of a connection; what cannot be sent at once waits here.

    Parameters
    ----------
    sock
        A connected stream socket; it belongs to this object from now on.
    """

    __slots__ = ("__weakref__", "_out", "_sock")

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._out: deque[_Piece] = deque()
        close_in_child(self)

    @classmethod
    def connect(cls, path: os.PathLike[str] | str) -> ByteStream:
        """Connect to the socket at `path`.

        Raises
        ------
        OSError
            ``FileNotFoundError``, ``ConnectionRefusedError`` (nobody listens), ``PermissionError``,
            ``BlockingIOError`` (its queue is full), or with EPROTOTYPE if it is of another type.
        """
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.settimeout(0)
            sock.connect(os.fspath(path))
            return cls(sock)
        except BaseException:
            sock.close()
            raise

    def fileno(self) -> int:
        """Return the descriptor to poll, -1 when closed."""
        return self._sock.fileno()

    @property
    def unsent(self) -> bool:
        """Whether something waits for the other side to read."""
        return bool(self._out)

    def read(self, most: int) -> Chunk:
        """Return at most so many bytes, as far as they are there.

        Raises
        ------
        BlockingIOError
            If nothing is there.
        RemoteProtocolError
            If more descriptors came with them than are allowed; all are closed.
        """
        try:
            data, ancillary, flags, _ = self._sock.recvmsg(
                most, _ANCILLARY, socket.MSG_CMSG_CLOEXEC
            )
        except ConnectionResetError:
            return Chunk(b"", ())
        fds = _owned(ancillary) if ancillary else ()
        if flags & _CUT:
            close_all(fds)
            raise RemoteProtocolError(
                f"more than {_MAX_FDS} descriptors came at once (or none is left here)"
            )
        return Chunk(data, fds)

    def write(self, data: bytes, fd: OwnedFd | None = None) -> None:
        """Have `data` sent by the next `flush`.

        Parameters
        ----------
        data
            Bytes, at least one.
        fd
            Is sent with the first of them, and closed then; it is this object's from now on.
        """
        if fd is None and self._out and self._out[-1].fd is None:
            self._out[-1].data += data
        else:
            self._out.append(_Piece(bytearray(data), fd))

    def flush(self) -> None:
        """Send what waits, as far as it fits; what comes after the end is dropped."""
        try:
            while self._out:
                self._send(self._out[0])
        except BlockingIOError:
            pass
        except (BrokenPipeError, ConnectionResetError):
            self._drop()  # reading tells of the end

    def _send(self, piece: _Piece) -> None:
        if piece.fd is None:
            sent = self._sock.send(piece.data, socket.MSG_NOSIGNAL)
        else:
            rights = array.array("i", [piece.fd.fileno()])
            ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)]
            sent = self._sock.sendmsg([piece.data], ancillary, socket.MSG_NOSIGNAL)
            piece.fd.close()
            piece.fd = None
        del piece.data[:sent]
        if not piece.data:
            self._out.popleft()

    def _drop(self) -> None:
        while self._out:
            piece = self._out.popleft()
            if piece.fd is not None:
                piece.fd.close()

    def peer(self) -> Credentials:
        """Return who is at the other end."""
        return peer_credentials(self._sock)

    def close(self) -> None:
        """Close, once; what still waits is dropped."""
        self._drop()
        self._sock.close()

    def _abandon(self) -> None:
        self._sock.close()


class _Piece:
    """Bytes that wait to be sent, and the descriptor that goes with the first of them."""

    __slots__ = ("data", "fd")

    def __init__(self, data: bytearray, fd: OwnedFd | None) -> None:
        self.data = data
        self.fd = fd


def _owned(ancillary: list[tuple[int, int, bytes]]) -> tuple[OwnedFd, ...]:
    numbers = array.array("i")
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            numbers.frombytes(data[: len(data) - len(data) % numbers.itemsize])
    return tuple(OwnedFd(number) for number in numbers)
