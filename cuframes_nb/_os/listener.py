"""A stream's listening socket: the claim on its name, for as long as the process lives."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from pathlib import Path

from cuframes_nb._os.credentials import group_name, user_name
from cuframes_nb._os.forks import close_in_child
from cuframes_nb._os.packets import PacketSocket
from cuframes_nb._os.runtime_dir import (
    directory_lock,
    publisher_dir,
    socket_path,
    somebody_listens,
)
from cuframes_nb.errors import AccessDeniedError, StreamExistsError

__all__ = ["Listener"]

_BACKLOG = 256


class Listener:
    """The socket by which subscribers find a stream.

    A socket left by a dead publisher is taken over; one that somebody still listens to is not.

    Parameters
    ----------
    key
        Name of the stream.
    gid
        A group whose members may connect besides the owner, or None.

    Raises
    ------
    StreamExistsError
        If a live publisher has the name.
    AccessDeniedError
        If the directory or a socket in it belongs to somebody else.
    """

    def __init__(self, key: str, gid: int | None = None) -> None:
        directory = publisher_dir(gid)
        self.path = socket_path(directory, key)
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            self._sock.settimeout(0)
            with directory_lock(directory):
                _make_room(self.path, key)
                self._bind(key, gid)
        except BaseException:
            self._sock.close()
            raise
        close_in_child(self)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._sock.fileno()

    def accept(self) -> PacketSocket | None:
        """Return the next connection, or None if there is none (any more).

        Raises
        ------
        OSError
            If no descriptor is left.
        """
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        return PacketSocket(sock)

    def close(self) -> None:
        """Stop listening and remove the socket file if it is still this one's, once."""
        if self._sock.fileno() < 0:
            return
        with contextlib.suppress(OSError), directory_lock(self.path.parent):
            info = self.path.lstat()
            if (info.st_dev, info.st_ino) == self._identity:
                self.path.unlink()
        self._sock.close()

    def _abandon(self) -> None:
        self._sock.close()

    def _bind(self, key: str, gid: int | None) -> None:
        # The file gets the socket's mode, less the umask. So nobody but the owner can get in
        # between bind and chmod: connecting needs write permission.
        os.fchmod(self._sock.fileno(), 0o600)
        try:
            self._sock.bind(os.fspath(self.path))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            raise _taken(self.path, key) from error
        if gid is not None:
            self._widen(gid)
        info = self.path.lstat()
        self._identity = (info.st_dev, info.st_ino)
        self._sock.listen(_BACKLOG)

    def _widen(self, gid: int) -> None:
        try:
            os.chown(self.path, -1, gid)
            self.path.chmod(0o660)
        except OSError as error:
            self.path.unlink()
            raise AccessDeniedError(
                f"the socket {self.path} cannot be opened to group {group_name(gid)} "
                f"({error.strerror}): only a member of that group, or root, can do that"
            ) from error


def _make_room(path: Path, key: str) -> None:
    """Remove a dead publisher's socket; raise if a live one has it."""
    try:
        info = path.lstat()
    except FileNotFoundError:
        return
    if not path.is_socket() or path.is_symlink():
        raise StreamExistsError(
            f"{path} is in the way of stream {key!r} and is no socket: remove it by hand"
        )
    if info.st_uid != os.geteuid():
        raise AccessDeniedError(
            f"the socket {path} belongs to user {user_name(info.st_uid)}, not to "
            f"{user_name(os.geteuid())}: publish under another key, or as that user"
        )
    if somebody_listens(path):
        raise _taken(path, key)
    path.unlink(missing_ok=True)


def _taken(path: Path, key: str) -> StreamExistsError:
    return StreamExistsError(
        f"stream {key!r} is being published already (at {path}): close that publisher or choose "
        f"another key"
    )
