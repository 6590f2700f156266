"""Which streams there are."""

from __future__ import annotations

import dataclasses
import os
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from cuframes_nb._api.address import Address, connect_denied
from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._os.runtime_dir import candidate_dirs, list_sockets
from cuframes_nb._runtime.session import ask_status
from cuframes_nb.errors import CuframesError, FrameTimeout, ProtocolError

__all__ = ["Survey", "Unanswered", "list_streams", "stream_info", "survey"]

_PATIENCE_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 64


@dataclasses.dataclass(frozen=True, slots=True)
class Unanswered:
    """A socket that is there and tells of no stream.

    Attributes
    ----------
    key, path
        The name that the stream would have, and where the socket is.
    state
        ``"dead"`` (its publisher has ended), ``"silent"`` (stopped or overloaded), ``"denied"``
        (not for this user) or ``"foreign"`` (no publisher, or one that cannot be understood).
    reason
        The same in a sentence.
    """

    key: str
    path: Path
    state: str
    reason: str


class Survey(NamedTuple):
    """What was found when all streams were asked."""

    streams: list[StreamInfo]  #: those that answered, by key
    unanswered: list[Unanswered]  #: the other sockets, by key
    places: list[Path]  #: the directories that were looked into


def list_streams(*, trusted_uids: Collection[int] = ()) -> list[StreamInfo]:
    """Return what is known about each live stream that this user may read, sorted by key.

    Sockets of dead publishers, and publishers that do not answer within a second, are left out.

    Parameters
    ----------
    trusted_uids
        As for :func:`subscribe`.
    """
    return survey(trusted_uids=trusted_uids).streams


def survey(*, trusted_uids: Collection[int] = ()) -> Survey:
    """Ask every socket there is about its stream, all at once, for a second at most.

    Parameters
    ----------
    trusted_uids
        As for :func:`subscribe`.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS

    def ask(key: str, path: Path) -> StreamInfo | Unanswered | None:
        try:
            return describe(ask_status(path, trusted_uids, deadline), path)
        except FileNotFoundError:  # it went just now, in order
            return None
        except (OSError, CuframesError) as error:
            return Unanswered(key, path, _state(error), _reason(error, path))

    sockets = list_sockets()
    found = []
    if sockets:
        # All at once: one that is stopped must not make the others wait.
        with ThreadPoolExecutor(min(len(sockets), _MOST_AT_ONCE)) as pool:
            found = list(pool.map(ask, *zip(*sockets, strict=True)))
    return Survey(
        [one for one in found if isinstance(one, StreamInfo)],
        [one for one in found if isinstance(one, Unanswered)],
        candidate_dirs(),
    )


def stream_info(
    source: str | os.PathLike[str], *, trusted_uids: Collection[int] = ()
) -> StreamInfo:
    """Return what the publisher of one stream says about it, without subscribing.

    Parameters
    ----------
    source, trusted_uids
        As for :func:`subscribe`.

    Raises
    ------
    StreamNotFoundError
        If there is no such stream; the message lists those there are.
    FrameTimeout
        If its publisher does not answer within a second.
    AccessDeniedError
        If the publisher does not let this user in, or is one this user does not trust.
    """
    address = Address(source)
    path = address.find()
    if path is None:
        raise address.not_found()
    try:
        status = ask_status(path, trusted_uids, time.monotonic() + _PATIENCE_SECONDS)
    except CuframesError:
        raise
    except BlockingIOError as error:
        raise FrameTimeout(_reason(error, path)) from error
    except PermissionError as error:
        raise connect_denied(path, error) from error
    except OSError:  # a socket that a dead publisher left, or one that went just now
        raise address.not_found() from None
    return describe(status, path)


def _state(error: Exception) -> str:
    """Return what a socket is that did not tell of a stream."""
    match error:
        case FrameTimeout() | BlockingIOError():
            return "silent"
        case PermissionError():
            return "denied"
        case ProtocolError():
            return "foreign"
        case ConnectionError():
            return "dead"
        case _:
            return "foreign"


def _reason(error: Exception, path: Path) -> str:
    """Return why a socket did not tell of a stream."""
    match error:
        case CuframesError():
            return str(error)
        case BlockingIOError():
            return f"the publisher at {path} takes no connection: it may be stopped or overloaded"
        case PermissionError():
            return str(connect_denied(path, error))
        case ConnectionError():
            return f"the publisher at {path} has ended; the next of that name takes the socket over"
        case _:
            return f"{path} cannot be asked: {error}"
