"""What `subscribe` and `view` accept as the name of a stream."""

from __future__ import annotations

import contextlib
import importlib
import os
from pathlib import Path
from typing import Any, Final

from cuframes_nb._os.credentials import user_name
from cuframes_nb._os.runtime_dir import (
    MAX_SOCKET_PATH,
    candidate_dirs,
    check_key,
    closed_dirs,
    find_socket,
    list_sockets,
    somebody_listens,
)
from cuframes_nb.errors import (
    AccessDeniedError,
    InvalidArgumentError,
    StreamNotFoundError,
    UnsupportedError,
)

__all__ = ["OWN_SCHEME", "Address", "checked_path", "connect_denied", "place_text"]

OWN_SCHEME: Final = "cuframes"
_OTHER_SCHEMES: Final = {"gst": "GStreamer"}
"""Of other systems' streams, whose addresses are paths."""

_BRIDGES: Final = {"gst": "cuframes_nb.bridges.gst"}
"""What reads them; loaded when it is needed, since bridges are built on what is here."""


class Address:
    """Where a stream is looked for, each time anew: it may come, go and come back.

    Parameters
    ----------
    source
        A key (``cam1``), ``cuframes://cam1``, the path of a socket, or ``gst://`` and the path of a
        socket of GStreamer's.

    Attributes
    ----------
    key : str
        The stream's name; empty for the path of a socket.
    scheme : str
        ``"cuframes"``, or ``"gst"`` for a stream that is not ours.

    Raises
    ------
    InvalidArgumentError
        If it is none of these.
    """

    def __init__(self, source: str | os.PathLike[str]) -> None:
        self._path: Path | None = None
        self.key = ""
        self.scheme = OWN_SCHEME
        if not isinstance(source, str | os.PathLike):
            raise InvalidArgumentError(
                f"a stream is named by a key such as 'cam1' or the path of its socket, not by "
                f"{source!r}"
            )
        if not isinstance(source, str) or ("/" in source and "://" not in source):
            self._path = checked_path(Path(source))
        elif (scheme := source.partition("://")[0]) in _OTHER_SCHEMES and scheme != source:
            self._path = _other_path(source)
            self.scheme, self.key = scheme, self._path.name
        else:
            self.key = check_key(source.removeprefix("cuframes://"))

    @property
    def other_path(self) -> Path | None:
        """The socket of a stream that is not ours, None for ours."""
        return None if self.scheme == OWN_SCHEME else self._path

    @property
    def bridge(self) -> Any:
        """The module that reads a stream that is not ours: its `subscribe` and `stream_info`."""
        return importlib.import_module(_BRIDGES[self.scheme])

    def find(self) -> Path | None:
        """Return the socket's path, or None if there is no such socket now.

        Raises
        ------
        UnsupportedError
            For a stream that is not ours.
        """
        if self.scheme != OWN_SCHEME:
            raise UnsupportedError(f"{self} is a stream of {_OTHER_SCHEMES[self.scheme]}, not ours")
        if self._path is None:
            return find_socket(self.key)
        with contextlib.suppress(OSError):
            if self._path.is_socket():
                return self._path
        return None

    def not_found(self) -> StreamNotFoundError | AccessDeniedError:
        """Return the error that says where it was looked for and what there is."""
        if self._path is not None:
            if self._path.parent.is_dir() and not os.access(self._path.parent, os.X_OK):
                return _denied(str(self._path), [self._path.parent])
            return StreamNotFoundError(f"there is no publisher's socket at {self._path}")
        if closed := closed_dirs():
            return _denied(f"a stream {self.key!r}", closed)
        keys = [key for key, path in list_sockets() if _is_live(path)]
        there = f"the streams there are: {', '.join(keys)}" if keys else "no other is there either"
        places = ", ".join(map(place_text, candidate_dirs()))
        ended = " any more: its publisher has ended" if find_socket(self.key) else ""
        return StreamNotFoundError(
            f"there is no stream {self.key!r} in {places}{ended}; {there}. Start its publisher, or "
            f"set $CUFRAMES_RUNTIME_DIR to the publisher's directory"
        )

    def __str__(self) -> str:
        if self.scheme != OWN_SCHEME:
            return f"{self.scheme}://{self._path}"
        return self.key or str(self._path)


def _other_path(source: str) -> Path:
    rest = source.partition("://")[2]
    if not rest or rest.endswith("/"):
        raise InvalidArgumentError(
            f"{source!r} names no socket; write it as in 'gst:///tmp/gst.cuda.ipc'"
        )
    return checked_path(Path(rest))


def checked_path(path: Path) -> Path:
    """Return the path if the kernel takes it for a socket.

    Raises
    ------
    InvalidArgumentError
        If it is too long.
    """
    length = len(os.fsencode(path))
    if length > MAX_SOCKET_PATH:
        raise InvalidArgumentError(
            f"the socket's path {str(path)!r} has {length} bytes, and the kernel allows "
            f"{MAX_SOCKET_PATH}: give a relative one, or one through a shorter link"
        )
    return path


def _denied(what: str, closed: list[Path]) -> AccessDeniedError:
    places = ", ".join(str(path) for path in closed)
    return AccessDeniedError(
        f"no publisher of {what} was found, and user {user_name(os.geteuid())} may not look into "
        f"{places}: its publisher can let others in with group=…, or set $CUFRAMES_RUNTIME_DIR"
    )


def place_text(directory: Path) -> str:
    """Return a directory's path, and why nothing is found in it where that is so."""
    with contextlib.suppress(PermissionError):
        if not directory.is_dir():
            what = "no directory" if directory.exists() else "not there"
            return f"{directory} (which is {what})"
        if os.access(directory, os.R_OK | os.X_OK):
            return str(directory)
    return f"{directory} (which user {user_name(os.geteuid())} may not look into)"


def connect_denied(path: Path, error: OSError) -> AccessDeniedError:
    """Return the error for a socket that the kernel does not let this user connect to."""
    return AccessDeniedError(
        f"this user may not connect to {path} ({error.strerror}): its publisher can let "
        f"others in with group=…"
    )


def _is_live(path: Path) -> bool:
    """Whether a publisher listens at `path`, as far as this user can find out."""
    try:
        return somebody_listens(path)
    except OSError:
        return True
