"""The socket at which pipelines find a stream of ours."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.listening import ListeningSocket, Words
from cuframes_nb._os.runtime_dir import lock_patiently
from cuframes_nb.errors import AccessDeniedError, CuframesError

__all__ = ["Listener"]

_BACKLOG: Final = 16
_LOCK_SECONDS: Final = 5.0


class Listener(ListeningSocket):
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
        words = Words(
            taken=f"somebody listens at {path} already, perhaps a cudaipcsink: name another "
            f"address",
            in_the_way=f"{path} is in the way and is no socket: name another, or remove it",
            advice="name another",
        )
        try:
            super().__init__(path, socket.SOCK_STREAM, _BACKLOG, words)
        except CuframesError:
            raise
        except OSError as error:
            raise AccessDeniedError(
                f"no socket can be made at {path} ({error.strerror}): name one in a directory that "
                f"exists and is yours"
            ) from error

    def accept(self) -> ByteStream | None:
        """Return the next connection that is allowed, None if there is none.

        Raises
        ------
        OSError
            If no descriptor is left.
        """
        sock = self._accept()
        if sock is None:
            return None
        stream = ByteStream(sock)
        if stream.peer().uid in {0, os.geteuid()}:  # root may, whatever the mode of a file
            return stream
        stream.close()
        return None

    @contextlib.contextmanager
    def _alone(self) -> Iterator[None]:
        # The directory itself is locked, which leaves no file; the kernel lets go when its holder
        # dies.
        directory = self.path.parent
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
        with OwnedFd(os.open(directory, flags)) as fd:
            lock_patiently(fd, directory, _LOCK_SECONDS)
            yield
