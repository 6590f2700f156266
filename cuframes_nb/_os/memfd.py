"""Sealed memory files: shared memory without a name, which no peer can shrink or write.

Seals: fcntl(2), "File Sealing"; F_SEAL_FUTURE_WRITE since Linux 5.1.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path
from typing import Final

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.mapping import Mapping
from cuframes_nb.errors import RemoteProtocolError, UnsupportedError

__all__ = ["check_sealed", "create_sealed", "reopen_read_only"]

# Numbers from include/uapi/linux/fcntl.h: Python 3.11's fcntl has no F_SEAL_FUTURE_WRITE.
_F_SEAL_SEAL: Final = 0x0001
_F_SEAL_SHRINK: Final = 0x0002
_F_SEAL_GROW: Final = 0x0004
_F_SEAL_FUTURE_WRITE: Final = 0x0010
_F_ADD_SEALS: Final = 1033
_F_GET_SEALS: Final = 1034

_OURS: Final = _F_SEAL_SEAL | _F_SEAL_SHRINK | _F_SEAL_GROW | _F_SEAL_FUTURE_WRITE
_REQUIRED: Final = _F_SEAL_SHRINK


def create_sealed(name: str, nbytes: int, *, inherit: bool = False) -> tuple[OwnedFd, Mapping]:
    """Create `nbytes` of zeroed shared memory that only this mapping can write.

    Parameters
    ----------
    name
        Shown in ``/proc/PID/maps``, for people.
    nbytes
        Size; memory is reserved for all of it at once.
    inherit
        Whether a forked child keeps the mapping; see `Mapping`.

    Returns
    -------
    tuple
        The descriptor and the writable mapping, both the caller's.

    Raises
    ------
    OSError
        If there is not enough memory (``ENOMEM``, ``ENOSPC``) or no descriptor is left
        (``EMFILE``); nothing remains.
    UnsupportedError
        If the kernel cannot seal (Linux before 5.1).
    """
    _check_available(nbytes)
    fd = OwnedFd(os.memfd_create(f"cuframes:{name}", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    try:
        # Without this another uid that was handed a read-only descriptor could reopen it for
        # writing through /proc and take write locks. It also keeps the file from being executed.
        os.fchmod(fd.fileno(), 0o400)
        # Reserved now, so that a full machine is an error here and not a SIGBUS later.
        os.posix_fallocate(fd.fileno(), 0, nbytes)
        mapping = Mapping(fd, nbytes, writable=True, inherit=inherit)
        try:
            fcntl.fcntl(fd.fileno(), _F_ADD_SEALS, _OURS)
        except OSError as error:
            mapping.close()
            if error.errno == errno.EINVAL:
                raise UnsupportedError(
                    "this kernel cannot seal memory against writers (F_SEAL_FUTURE_WRITE needs "
                    "Linux 5.1 or newer)"
                ) from error
            raise
    except BaseException:
        fd.close()
        raise
    return fd, mapping


def _check_available(nbytes: int) -> None:
    """Raise ``ENOMEM`` if the machine has not that much memory to spare.

    Reserving more would not fail: the kernel would end processes, this one first of all.
    """
    with contextlib.suppress(FileNotFoundError, PermissionError):
        for line in Path("/proc/meminfo").read_text(encoding="ascii").splitlines():
            if line.startswith("MemAvailable:"):
                available = int(line.split()[1]) * 1024
                if nbytes > available:
                    raise OSError(
                        errno.ENOMEM,
                        f"{nbytes >> 20} MiB of shared memory are asked for and {available >> 20} "
                        f"MiB are available: use fewer slots or smaller frames",
                    )


def reopen_read_only(fd: OwnedFd) -> OwnedFd:
    """Return a new read-only open file description of the same memory, with locks of its own.

    Raises
    ------
    OSError
        If ``/proc`` is not mounted or no descriptor is left.
    """
    return OwnedFd(os.open(f"/proc/self/fd/{fd.fileno()}", os.O_RDONLY | os.O_CLOEXEC))


def check_sealed(fd: OwnedFd, nbytes: int, what: str) -> None:
    """Check that a descriptor from a peer is memory that cannot shrink under a reader.

    Raises
    ------
    RemoteProtocolError
        If it is not a sealable memory file, is not sealed against shrinking, or holds fewer than
        `nbytes`.
    """
    try:
        seals = fcntl.fcntl(fd.fileno(), _F_GET_SEALS)
    except OSError as error:
        raise RemoteProtocolError(
            f"the publisher sent a descriptor for {what} that is no memory file: {error.strerror}"
        ) from error
    if seals & _REQUIRED != _REQUIRED:
        raise RemoteProtocolError(
            f"the publisher sent memory for {what} that is not sealed against shrinking "
            f"(seals {seals:#x}); reading it could end this process, so it is refused"
        )
    size = os.fstat(fd.fileno()).st_size
    if size < nbytes:
        raise RemoteProtocolError(
            f"the publisher says that {what} has {nbytes} bytes, but its memory has {size}"
        )
