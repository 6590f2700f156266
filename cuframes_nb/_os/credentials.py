"""Who is at the other end of a Unix socket, by the kernel's word (unix(7), SO_PEERCRED)."""

from __future__ import annotations

import array
import contextlib
import grp
import os
import pwd
import socket
import struct
from typing import Final, NamedTuple

__all__ = [
    "Credentials",
    "group_id",
    "group_name",
    "own_ids",
    "peer_credentials",
    "user_name",
]

_UCRED: Final = struct.Struct("iII")
_SO_PEERGROUPS: Final = 59  # include/uapi/asm-generic/socket.h, since Linux 4.13
_MAX_GROUPS: Final = 1024


class Credentials(NamedTuple):
    """A process as it was when it connected or began to listen."""

    pid: int  #: 0 where the process is in another PID namespace
    uid: int
    gids: frozenset[int]  #: its group and, where the kernel tells, its supplementary groups


def peer_credentials(sock: socket.socket) -> Credentials:
    """Return who is at the other end of `sock`."""
    pid, uid, gid = _UCRED.unpack(
        sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
    )
    groups = array.array("I", [gid])
    with contextlib.suppress(OSError):  # an old kernel: the main group alone
        groups.frombytes(sock.getsockopt(socket.SOL_SOCKET, _SO_PEERGROUPS, 4 * _MAX_GROUPS))
    return Credentials(pid, uid, frozenset(groups))


def user_name(uid: int) -> str:
    """Return ``name (uid)`` for messages."""
    try:
        return f"{pwd.getpwuid(uid).pw_name} ({uid})"
    except KeyError:
        return str(uid)


def group_name(gid: int) -> str:
    """Return ``name (gid)`` for messages."""
    try:
        return f"{grp.getgrgid(gid).gr_name} ({gid})"
    except KeyError:
        return str(gid)


def group_id(group: str | int) -> int:
    """Return the number of a group given by name or number.

    Raises
    ------
    LookupError
        If there is no group of that name.
    """
    return group if isinstance(group, int) else grp.getgrnam(group).gr_gid


def own_ids() -> tuple[int, frozenset[int]]:
    """Return this process's uid and all of its gids."""
    return os.geteuid(), frozenset({os.getegid(), *os.getgroups()})
