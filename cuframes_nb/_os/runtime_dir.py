"""Where streams are found: one socket a stream, in a directory that only its owner may enter."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import socket
import stat
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from cuframes_nb._os.credentials import group_name, user_name
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb.errors import AccessDeniedError, FrameTimeout, InvalidArgumentError

__all__ = [
    "ENVIRONMENT",
    "MAX_SOCKET_PATH",
    "candidate_dirs",
    "check_dir",
    "check_key",
    "closed_dirs",
    "directory_lock",
    "expected_dir",
    "find_socket",
    "list_sockets",
    "lock_patiently",
    "publisher_dir",
    "socket_path",
    "somebody_listens",
]

ENVIRONMENT: Final = "CUFRAMES_RUNTIME_DIR"
_SYSTEM_DIR: Final = Path("/run/cuframes")
_SUFFIX: Final = ".sock"
_KEY: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MAX_SOCKET_PATH: Final = 107
"""sizeof(sun_path) - 1, unix(7)."""


def check_key(key: Any) -> str:
    """Return `key` if it can name a stream.

    Raises
    ------
    InvalidArgumentError
        If it does not match ``[A-Za-z0-9][A-Za-z0-9._-]{0,63}``.
    """
    if not isinstance(key, str) or not _KEY.fullmatch(key):
        raise InvalidArgumentError(
            f"{key!r} cannot name a stream: use 1 to 64 letters, digits, '.', '_' or '-', the "
            f"first a letter or digit, for example 'cam1'"
        )
    return key


def candidate_dirs() -> list[Path]:
    """Return the directories that may hold streams, the first choice first.

    ``$CUFRAMES_RUNTIME_DIR`` alone if it is set, else ``/run/cuframes``,
    ``$XDG_RUNTIME_DIR/cuframes`` and ``/tmp/cuframes-<uid>``.
    """
    chosen = os.environ.get(ENVIRONMENT)
    if chosen:
        return [Path(chosen)]
    dirs = [_SYSTEM_DIR]
    xdg = os.environ.get("XDG_RUNTIME_DIR")
    if xdg:
        dirs.append(Path(xdg) / "cuframes")
    dirs.append(Path(f"/tmp/cuframes-{os.geteuid()}"))  # noqa: S108  owner and mode are checked
    return dirs


def publisher_dir(gid: int | None = None) -> Path:
    """Return the directory for this user's streams, made if need be with mode 0700.

    Parameters
    ----------
    gid
        A group that may enter as well: the mode becomes 0750 and the group that one.

    Raises
    ------
    AccessDeniedError
        If the only directory left belongs to somebody else or others may write to it.
    """
    candidates = candidate_dirs()
    for path in candidates[:-1]:
        if _usable(path):
            break
    else:
        path = candidates[-1]
        _make(path)
    check_dir(path)
    if gid is not None:
        _widen(path, gid)
    return path


def expected_dir() -> Path:
    """Return the directory that `publisher_dir` would take now, and make none."""
    *choices, last = candidate_dirs()
    for path in choices:
        there = os.path.lexists(path)
        if _usable(path) if there else os.access(path.parent, os.W_OK | os.X_OK):
            return path
    return last


def check_dir(path: Path) -> None:
    """Check that nobody else can put streams of theirs into a directory.

    Raises
    ------
    AccessDeniedError
        If it is none, belongs to somebody else, or others may write to it.
    """
    info = path.lstat()
    if not stat.S_ISDIR(info.st_mode):
        raise AccessDeniedError(
            f"{path} should be a directory for stream sockets and is something else (a link is not "
            f"followed): remove it or set ${ENVIRONMENT}"
        )
    if info.st_uid not in {0, os.geteuid()}:
        raise AccessDeniedError(
            f"{path} belongs to user {user_name(info.st_uid)}, not to {user_name(os.geteuid())} or "
            f"root, so streams in it could be replaced by theirs: set ${ENVIRONMENT} to a "
            f"directory of yours"
        )
    if info.st_mode & (stat.S_IWOTH | stat.S_IWGRP) and not info.st_mode & stat.S_ISVTX:
        raise AccessDeniedError(
            f"others may write to {path} (mode {stat.S_IMODE(info.st_mode):04o}), and so replace "
            f"streams in it: run 'chmod go-w {path}' or set ${ENVIRONMENT} to another directory"
        )


def socket_path(directory: Path, key: str) -> Path:
    """Return where the socket of stream `key` is.

    Raises
    ------
    InvalidArgumentError
        If the path is longer than a socket's may be.
    """
    path = directory / f"{check_key(key)}{_SUFFIX}"
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise InvalidArgumentError(
            f"the socket's path {str(path)!r} has {length} bytes, and the kernel allows "
            f"{MAX_SOCKET_PATH}: set ${ENVIRONMENT} to a shorter directory or shorten the key"
        )
    return path


def find_socket(key: str) -> Path | None:
    """Return the socket of stream `key` in the first directory that has a live one, or None.

    If somebody listens to none of several, it is the first.
    """
    found = []
    for directory in candidate_dirs():
        path = socket_path(directory, key)
        with contextlib.suppress(OSError):
            if stat.S_ISSOCK(path.stat().st_mode):
                found.append(path)
    return _most_alive(found) if found else None


def closed_dirs() -> list[Path]:
    """Return the directories that are there, or may be, and that this user may not enter."""
    closed = []
    for directory in candidate_dirs():
        try:
            directory.stat()
            if not os.access(directory, os.X_OK):
                closed.append(directory)
        except PermissionError:
            closed.append(directory)
        except OSError:
            continue
    return closed


def list_sockets() -> list[tuple[str, Path]]:
    """Return key and path of each socket in the directories that may be read, sorted by key.

    Of several with one key, it is the one that `find_socket` returns.
    """
    found: dict[str, list[Path]] = {}
    for directory in candidate_dirs():
        with contextlib.suppress(OSError):
            for path in directory.iterdir():
                key = path.name.removesuffix(_SUFFIX)
                if key != path.name and _KEY.fullmatch(key) and path.is_socket():
                    found.setdefault(key, []).append(path)
    return sorted((key, _most_alive(paths)) for key, paths in found.items())


def somebody_listens(path: Path) -> bool:
    """Whether a live process listens to the socket at `path`.

    Raises
    ------
    OSError
        If that cannot be found out, e.g. ``PermissionError``.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
        probe.settimeout(0)
        try:
            probe.connect(os.fspath(path))
        except (ConnectionRefusedError, FileNotFoundError):
            return False
        except OSError as error:
            # EAGAIN: its queue is full; EPROTOTYPE: a socket of another type.
            if error.errno not in {errno.EAGAIN, errno.EPROTOTYPE}:
                raise
    return True


def _most_alive(paths: list[Path]) -> Path:
    """Return the first path that somebody listens to, else one where that cannot be found out."""
    if len(paths) == 1:
        return paths[0]
    unknown = []
    for path in paths:
        try:
            if somebody_listens(path):
                return path
        except OSError:
            unknown.append(path)
    return (unknown or paths)[0]


@contextlib.contextmanager
def directory_lock(directory: Path, seconds: float = 5.0) -> Iterator[None]:
    """Hold the directory alone, so that two publishers cannot take over one socket at once.

    The lock is on a file of its own that only the owner may open, so nobody who may merely look
    into the directory can keep it. The kernel drops the lock if its holder dies.

    Raises
    ------
    FrameTimeout
        If somebody else held it for all of `seconds`.
    """
    path = directory / f".lock-{os.geteuid()}"
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = OwnedFd(os.open(path, flags, 0o600))
    except PermissionError as error:
        raise AccessDeniedError(
            f"user {user_name(os.geteuid())} may not write to {directory}, where the sockets of "
            f"streams are: set ${ENVIRONMENT} to a directory of yours"
        ) from error
    with fd:
        lock_patiently(fd, path, seconds)
        yield


def lock_patiently(fd: OwnedFd, path: Path, seconds: float) -> None:
    """Lock a file or directory alone, for as long as `fd` is open.

    Raises
    ------
    FrameTimeout
        If somebody else held it for all of `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(fd.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                raise FrameTimeout(
                    f"another process has held the lock {path} for {seconds:g} s: see which with "
                    f"'fuser {path}'"
                ) from None
            time.sleep(0.005)
        else:
            return


def _usable(path: Path) -> bool:
    try:
        path.mkdir(mode=0o700)
    except FileExistsError:
        pass
    except OSError:
        return False
    return path.is_dir() and os.access(path, os.W_OK | os.X_OK) and _owner_is_trusted(path)


def _make(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise AccessDeniedError(
            f"the directory {path} for stream sockets cannot be made ({error.strerror}): set "
            f"${ENVIRONMENT} to a directory of yours"
        ) from error


def _owner_is_trusted(path: Path) -> bool:
    info = path.lstat()
    return stat.S_ISDIR(info.st_mode) and info.st_uid in {0, os.geteuid()}


def _widen(path: Path, gid: int) -> None:
    info = path.stat()
    if info.st_mode & (stat.S_IXGRP if info.st_gid == gid else stat.S_IXOTH):
        return
    if info.st_gid != gid and info.st_mode & stat.S_IRWXG:
        raise AccessDeniedError(
            f"{path} is open to group {group_name(info.st_gid)}, whose members would be shut out "
            f"if it were opened to {group_name(gid)}: publish with the same group, set "
            f"${ENVIRONMENT} to another directory, or run 'chmod g= {path}' if nobody needs it"
        )
    try:
        os.chown(path, -1, gid)
        path.chmod(stat.S_IMODE(info.st_mode) | stat.S_IRGRP | stat.S_IXGRP)
    except OSError as error:
        raise AccessDeniedError(
            f"{path} cannot be opened to group {group_name(gid)} ({error.strerror}): only its "
            f"owner, as a member of that group, or root can do that"
        ) from error
