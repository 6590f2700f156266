"""The socket at which pipelines find a stream of ours."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.credentials import user_name
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.forks import close_in_child
from cuframes_nb._os.runtime_dir import somebody_listens
from cuframes_nb.errors import AccessDeniedError, FrameTimeout, StreamExistsError

__all__ = ["Listener"]

_BACKLOG: Final = 16

_LOCK_SECONDS: Final = 5.0
_LOCK_PAUSE_SECONDS: Final = 0.005
"""For the directory, which others hold for an instant."""


class Listener:
    """Listens at a path, for this user's processes and root's.

    Unlike GStreamer's own, it takes the place of a socket that nobody listens to any more.

    Parameters
    ----------
    path
        Where.

    Raises
    ------
    StreamExistsError
        If somebody listens there, or something else is there.
    AccessDeniedError
        If what is there belongs to somebody else, or this user may not make a socket there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._sock.settimeout(0)
            with _alone_in(path.parent):
                _make_room(path)
                self._bind()
        except BaseException:
            self._sock.close()
            raise
        close_in_child(self)

    def fileno(self) -> int:
        """Return the descriptor to poll."""
        return self._sock.fileno()

    def accept(self) -> ByteStream | None:
        """Return the next connection that is allowed, None if there is none.

        Raises
        ------
        OSError
            If no descriptor is left.
        """
        try:
            sock, _ = self._sock.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return None
        stream = ByteStream(sock)
        if stream.peer().uid in {0, os.geteuid()}:  # root may, whatever the mode of a file
            return stream
        stream.close()
        return None

    def close(self) -> None:
        """Stop listening and remove the socket's file if it is still this one's, once."""
        if self._sock.fileno() < 0:
            return
        with contextlib.suppress(OSError):
            info = self.path.lstat()
            if (info.st_dev, info.st_ino) == self._identity:
                self.path.unlink()
        self._sock.close()

    def _abandon(self) -> None:
        self._sock.close()

    def _bind(self) -> None:
        # The file gets the socket's mode, less the umask; connecting needs write permission.
        os.fchmod(self._sock.fileno(), 0o600)
        try:
            self._sock.bind(os.fspath(self.path))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                raise _taken(self.path) from error
            raise _unmakable(self.path, error) from error
        info = self.path.lstat()
        self._identity = (info.st_dev, info.st_ino)
        self._sock.listen(_BACKLOG)


@contextlib.contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Hold a directory for a block, so that two servers do not take over one socket at once.

    The directory itself is locked, which leaves no file; the kernel lets go when the holder dies.
    """
    try:
        fd = OwnedFd(os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
    except OSError as error:
        raise _unmakable(directory, error) from error
    deadline = time.monotonic() + _LOCK_SECONDS
    with fd:
        while True:
            try:
                fcntl.flock(fd.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise FrameTimeout(
                        f"another process has held the directory {directory} for "
                        f"{_LOCK_SECONDS:g} s: see which with 'fuser {directory}'"
                    ) from None
                time.sleep(_LOCK_PAUSE_SECONDS)
        yield


def _unmakable(path: Path, error: OSError) -> AccessDeniedError:
    return AccessDeniedError(
        f"no socket can be made at {path} ({error.strerror}): name one in a directory that exists "
        f"and is yours"
    )


def _make_room(path: Path) -> None:
    """Remove the socket of somebody who has ended; raise if it is anything else."""
    try:
        info = path.lstat()
    except OSError:
        return  # nothing is there, or binding tells what is wrong
    if not path.is_socket() or path.is_symlink():
        raise StreamExistsError(
            f"{path} is in the way and is no socket: name another, or remove it"
        )
    if info.st_uid != os.geteuid():
        raise AccessDeniedError(
            f"the socket {path} belongs to user {user_name(info.st_uid)}, not to "
            f"{user_name(os.geteuid())}: name another"
        )
    if somebody_listens(path):
        raise _taken(path)
    path.unlink(missing_ok=True)


def _taken(path: Path) -> StreamExistsError:
    return StreamExistsError(
        f"somebody listens at {path} already, perhaps a cudaipcsink: name another address"
    )
