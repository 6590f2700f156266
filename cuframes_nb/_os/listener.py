"""A stream's listening socket: the claim on its name, for as long as the process lives."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager
from typing import Final

from cuframes_nb._os.credentials import group_name
from cuframes_nb._os.listening import ListeningSocket, Words
from cuframes_nb._os.packets import PacketSocket
from cuframes_nb._os.runtime_dir import directory_lock, publisher_dir, socket_path
from cuframes_nb.errors import AccessDeniedError

__all__ = ["Listener"]

_BACKLOG: Final = 256


class Listener(ListeningSocket):
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
        self._gid = gid
        path = socket_path(publisher_dir(gid), key)
        words = Words(
            taken=f"stream {key!r} is being published already (at {path}): close that publisher or "
            f"choose another key",
            in_the_way=f"{path} is in the way of stream {key!r} and is no socket: remove it by "
            f"hand",
            advice="publish under another key, or as that user",
        )
        super().__init__(path, socket.SOCK_SEQPACKET, _BACKLOG, words)

    def accept(self) -> PacketSocket | None:
        """Return the next connection, or None if there is none (any more).

        Raises
        ------
        OSError
            If no descriptor is left.
        """
        sock = self._accept()
        return None if sock is None else PacketSocket(sock)

    def _alone(self) -> AbstractContextManager[object]:
        return directory_lock(self.path.parent)

    def _widen(self) -> None:
        if self._gid is None:
            return
        try:
            os.chown(self.path, -1, self._gid)
            self.path.chmod(0o660)
        except OSError as error:
            self.path.unlink()
            raise AccessDeniedError(
                f"the socket {self.path} cannot be opened to group {group_name(self._gid)} "
                f"({error.strerror}): only a member of that group, or root, can do that"
            ) from error
