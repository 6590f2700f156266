"""Who is at the other end of a Unix socket, by the kernel's word (unix(7), SO_PEERCRED)."""

from __future__ import annotations

import ctypes
import grp
import pwd
import socket
import struct
from typing import Final, NamedTuple

__all__ = [
    "Credentials",
    "group_id",
    "group_name",
    "peer_credentials",
    "user_name",
]

_UCRED: Final = struct.Struct("iII")
_SO_PEERGROUPS: Final = 59  # include/uapi/asm-generic/socket.h, since Linux 4.13
_MAX_GROUPS: Final = 65536  # NGROUPS_MAX, include/uapi/linux/limits.h

_libc = ctypes.CDLL(None)


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
    return Credentials(pid, uid, frozenset({gid, *_peer_groups(sock)}))


def _peer_groups(sock: socket.socket) -> list[int]:
    """Return the supplementary groups at the other end; none where the kernel does not tell."""
    # Not `socket.getsockopt`: it takes at most 1024 bytes, which are 256 groups.
    groups = (ctypes.c_uint32 * _MAX_GROUPS)()
    size = ctypes.c_uint32(ctypes.sizeof(groups))
    failed = _libc.getsockopt(
        sock.fileno(), socket.SOL_SOCKET, _SO_PEERGROUPS, groups, ctypes.byref(size)
    )
    return [] if failed else groups[: size.value // 4]


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
