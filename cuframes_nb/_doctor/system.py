"""The system: Python, the kernel, limits, and the directory for streams."""

from __future__ import annotations

import os
import platform
import resource
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import cuframes_nb
from cuframes_nb._doctor.checks import Check, Status
from cuframes_nb._os.credentials import user_name
from cuframes_nb._os.runtime_dir import (
    ENVIRONMENT,
    MAX_SOCKET_PATH,
    candidate_dirs,
    check_dir,
    expected_dir,
)
from cuframes_nb.errors import CuframesError

__all__ = ["look_at_directory", "look_at_limits", "look_at_python"]

_TESTED: Final = ("x86_64",)
_LONGEST_KEY: Final = 64
_PER_SUBSCRIBER: Final = 2
_OTHERS: Final = 64
"""Descriptors that a program with a publisher has open besides, generously."""

_MOST_SUBSCRIBERS: Final = 256


def look_at_python() -> Iterator[Check]:
    """Yield what runs this."""
    version = platform.python_version()
    yield Check("system", "Python", Status.OK, f"{version} ({sys.executable})", needed=True)
    yield Check("system", "cuframes-nb", Status.OK, str(cuframes_nb.__version__), needed=True)
    machine = platform.machine()
    known = machine in _TESTED
    yield Check(
        "system",
        "machine",
        Status.OK if known else Status.WARN,
        f"{platform.system()} {platform.release()} on {machine}",
        "" if known else f"this is tested on {', '.join(_TESTED)} only",
    )


def look_at_limits() -> Iterator[Check]:
    """Yield whether there are descriptors for as many subscribers as a stream may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        yield Check("system", "open files", Status.OK, "without a limit")
        return
    room = (soft - _OTHERS) // _PER_SUBSCRIBER
    if room >= _MOST_SUBSCRIBERS:
        yield Check("system", "open files", Status.OK, f"{soft:,} a process")
        return
    most = "any number" if hard == resource.RLIM_INFINITY else f"up to {hard:,}"
    yield Check(
        "system",
        "open files",
        Status.WARN,
        f"{soft:,} a process: room for about {max(0, room)} subscribers of one publisher",
        f"raise it before you start a publisher: 'ulimit -n 4096' ({most} without root)",
    )


def look_at_directory() -> Iterator[Check]:
    """Yield which directory a publisher would take, and whether a socket can be made there.

    Nothing is left behind, so a directory that is not there yet is not made.
    """
    path = expected_dir()
    found = f"{path}, {_origin(path)}"
    if not os.path.lexists(path):
        yield _made_when_needed(path, found)
        return
    try:
        check_dir(path)
        mode = path.stat().st_mode
        found += f", mode {stat.S_IMODE(mode):04o}, of user {user_name(path.stat().st_uid)}"
        _make_a_socket(path)
    except CuframesError as error:
        yield _directory(Status.FAILED, found, str(error))
    except OSError as error:
        found += f": no socket can be made there ({error.strerror or error})"
        yield _directory(Status.FAILED, found, f"set ${ENVIRONMENT} to a directory of yours")
    else:
        yield _for_keys(path, found)


def _directory(status: Status, found: str, advice: str = "") -> Check:
    return Check("system", "runtime directory", status, found, advice, needed=True)


def _made_when_needed(path: Path, found: str) -> Check:
    parent = next(parent for parent in path.parents if parent.exists())
    if os.access(parent, os.W_OK | os.X_OK):
        return _directory(Status.OK, f"{found}: made by the first publisher")
    return _directory(
        Status.FAILED,
        f"{found}: not there, and user {user_name(os.geteuid())} may not make it in {parent}",
        f"set ${ENVIRONMENT} to a directory of yours",
    )


def _for_keys(path: Path, found: str) -> Check:
    """Return whether there is room for a key in the path of a socket."""
    room = MAX_SOCKET_PATH - len(os.fsencode(path / ".sock"))
    if room >= _LONGEST_KEY:
        return _directory(Status.OK, found)
    return _directory(
        Status.WARN,
        f"{found}: room for keys of {room} letters, as a socket's path has {MAX_SOCKET_PATH} bytes",
        f"set ${ENVIRONMENT} to a shorter path, or use short keys",
    )


def _make_a_socket(directory: Path) -> None:
    """Make a socket that is no stream's, and take it away again."""
    path = directory / f".doctor-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial:
        trial.bind(os.fspath(path))
        try:
            trial.listen()
        finally:
            path.unlink()


def _origin(path: Path) -> str:
    """Return why it is this one."""
    if os.environ.get(ENVIRONMENT):
        return f"from ${ENVIRONMENT}"
    first, *_, last = candidate_dirs()
    if path == first:
        return "the system's"
    return "the last resort" if path == last else "from $XDG_RUNTIME_DIR"
