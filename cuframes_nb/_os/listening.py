"""A listening socket with a place in a directory, for as long as the process lives."""

from __future__ import annotations

import abc
import contextlib
import errno
import os
import socket
from contextlib import AbstractContextManager
from pathlib import Path
from typing import NamedTuple

from cuframes_nb._os.credentials import user_name
from cuframes_nb._os.forks import close_in_child
from cuframes_nb._os.runtime_dir import somebody_listens
from cuframes_nb.errors import AccessDeniedError, StreamExistsError

__all__ = ["ListeningSocket", "Words"]


class Words(NamedTuple):
    """What to say when the place cannot be had."""

    taken: str  #: when somebody listens there
    in_the_way: str  #: when something else is there
    advice: str  #: what to do about somebody else's socket


class ListeningSocket(abc.ABC):
    """Listens at a path; a socket that nobody listens to any more is replaced.

    The file has mode 0600, so that only its owner and root can connect.

    Parameters
    ----------
    path
        Where.
    kind
        ``SOCK_STREAM`` or ``SOCK_SEQPACKET``.
    backlog
        How many may wait to be accepted.
    words
        For the errors.

    Raises
    ------
    StreamExistsError
        If somebody listens there, or something else is there.
    AccessDeniedError
        If what is there belongs to somebody else.
    OSError
        If the socket cannot be made.
    """

    def __init__(self, path: Path, kind: socket.SocketKind, backlog: int, words: Words) -> None:
        self.path = path
        self._sock = socket.socket(socket.AF_UNIX, kind)
        try:
            self._sock.settimeout(0)
            with self._alone():
                _make_room(path, words)
                self._bind(words)
                self._widen()
                self._sock.listen(backlog)
        except BaseException:
            self._sock.close()
            raise
        close_in_child(self)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._sock.fileno()

    def close(self) -> None:
        """Stop listening and remove the file if it is still this one's, once."""
        if self._sock.fileno() < 0:
            return
        with contextlib.suppress(OSError), self._alone():
            info = self.path.lstat()
            if (info.st_dev, info.st_ino) == self._identity:
                self.path.unlink()
        self._sock.close()

    def _accept(self) -> socket.socket | None:
        """Return the next connection, or None if there is none (any more)."""
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        return sock

    @abc.abstractmethod
    def _alone(self) -> AbstractContextManager[object]:
        """Return what keeps others from taking or removing the place meanwhile."""

    def _widen(self) -> None:  # noqa: B027  most let nobody in
        """Let others in, before anybody can connect."""

    def _abandon(self) -> None:
        self._sock.close()

    def _bind(self, words: Words) -> None:
        # The file gets the socket's mode, less the umask; connecting needs write permission.
        os.fchmod(self._sock.fileno(), 0o600)
        try:
            self._sock.bind(os.fspath(self.path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise StreamExistsError(words.taken) from error
        info = self.path.lstat()
        self._identity = (info.st_dev, info.st_ino)


def _make_room(path: Path, words: Words) -> None:
    """Remove the socket of somebody who has ended; raise if it is anything else."""
    try:
        info = path.lstat()
    except OSError:
        return  # nothing is there, or binding tells what is wrong
    if not path.is_socket() or path.is_symlink():
        raise StreamExistsError(words.in_the_way)
    if info.st_uid != os.geteuid():
        raise AccessDeniedError(
            f"the socket {path} belongs to user {user_name(info.st_uid)}, not to "
            f"{user_name(os.geteuid())}: {words.advice}"
        )
    if somebody_listens(path):
        raise StreamExistsError(words.taken)
    path.unlink(missing_ok=True)
