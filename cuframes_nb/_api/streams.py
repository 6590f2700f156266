"""Which streams there are."""

from __future__ import annotations

import dataclasses
import os
import stat
import time
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final, NamedTuple

from cuframes_nb._api.address import OWN_SCHEME, Address, connect_denied
from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._os.runtime_dir import candidate_dirs, list_sockets, somebody_listens
from cuframes_nb._runtime.session import ask_status
from cuframes_nb.errors import (
    CuframesError,
    FrameTimeout,
    InvalidArgumentError,
    ProtocolError,
    StreamNotFoundError,
)

__all__ = ["Survey", "Unanswered", "list_streams", "name_of", "stream_info", "survey"]

_PATIENCE_SECONDS: Final = 1.0
_MOST_AT_ONCE: Final = 64

ENVIRONMENT: Final = "CUFRAMES_STREAMS"
"""Addresses of more streams to list, with blanks between them."""

_GST_DEFAULT: Final = Path("/tmp/gst.cuda.ipc")  # noqa: S108  where GStreamer's cudaipcsink puts it


@dataclasses.dataclass(frozen=True, slots=True)
class Unanswered:
    """A socket that is there and tells of no stream.

    Attributes
    ----------
    key, path
        The name that the stream would have, and where the socket is, or was looked for.
    state
        ``"dead"`` (its publisher has ended), ``"silent"`` (stopped or overloaded, or a pipeline
        without a frame), ``"denied"`` (not for this user), ``"foreign"`` (no publisher, or one that
        cannot be understood) or ``"absent"`` (asked for by name, and not there).
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


def name_of(info: StreamInfo) -> str:
    """Return what `subscribe` takes to read a stream that was listed."""
    return f"gst://{info.path}" if info.memory.startswith("gst") else info.key


def list_streams(*, trusted_uids: Collection[int] = ()) -> list[StreamInfo]:
    """Return what is known about each live stream that this user may read, sorted by key.

    Those are the streams of cuframes_nb; the GStreamer pipeline of this user at
    ``/tmp/gst.cuda.ipc``, where ``cudaipcsink`` is found by default; and those whose addresses are
    in ``$CUFRAMES_STREAMS``, with blanks between them. Sockets of dead publishers, and publishers
    that do not answer within a second, are left out.

    Parameters
    ----------
    trusted_uids
        As for :func:`subscribe`.
    """
    return survey(trusted_uids=trusted_uids).streams


def survey(sources: Collection[str] = (), *, trusted_uids: Collection[int] = ()) -> Survey:
    """Ask every stream there is what it is, all at once, for a second at most.

    Parameters
    ----------
    sources
        Keys or addresses of the only ones to ask; by default those of `list_streams`.
    trusted_uids
        As for :func:`subscribe`.
    """
    deadline = time.monotonic() + _PATIENCE_SECONDS

    def ask(place: _Place) -> StreamInfo | Unanswered | None:
        try:
            return _ask(place.address, place.path, trusted_uids, deadline)
        except FileNotFoundError:  # it went just now, in order
            return None
        except (OSError, CuframesError) as error:
            if place.is_guess and isinstance(error, StreamNotFoundError):
                return None
            path = place.path or candidate_dirs()[0] / f"{place.address.key}.sock"
            return Unanswered(place.name, path, _state(error, path), _reason(error, path))

    places = [_named(source) for source in sources] or _all_places()
    found = []
    if places:
        # All at once: one that is stopped must not make the others wait.
        with ThreadPoolExecutor(min(len(places), _MOST_AT_ONCE)) as pool:
            found = list(pool.map(ask, places))
    return Survey(
        sorted((one for one in found if isinstance(one, StreamInfo)), key=lambda one: one.key),
        [one for one in found if isinstance(one, Unanswered)],
        candidate_dirs(),
    )


class _Place(NamedTuple):
    """Where to ask."""

    name: str
    address: Address
    path: Path | None
    is_guess: bool = False  #: nobody said that there is a stream


def _named(source: str) -> _Place:
    address = Address(source)
    path = address.other_path if address.scheme != OWN_SCHEME else address.find()
    return _Place(str(address), address, path)


def _all_places() -> list[_Place]:
    places = [_Place(key, Address(path), path) for key, path in list_sockets()]
    named = _of_environment()
    if _is_ours(_GST_DEFAULT) and all(place.path != _GST_DEFAULT for place in named):
        address = Address(f"gst://{_GST_DEFAULT}")
        places.append(_Place(str(address), address, _GST_DEFAULT, is_guess=True))
    return places + named


def _of_environment() -> list[_Place]:
    try:
        return [_named(word) for word in os.environ.get(ENVIRONMENT, "").split()]
    except InvalidArgumentError as error:
        raise InvalidArgumentError(f"${ENVIRONMENT} has what is no address: {error}") from None


def _is_ours(path: Path) -> bool:
    """Whether a socket of this user's is there: who else's it is, is none of our business."""
    try:
        info = path.lstat()
    except OSError:
        return False
    return stat.S_ISSOCK(info.st_mode) and info.st_uid == os.geteuid()


def stream_info(
    source: str | os.PathLike[str], *, trusted_uids: Collection[int] = ()
) -> StreamInfo:
    """Return what the publisher of one stream says about it, without subscribing.

    A GStreamer pipeline tells less of itself: neither who reads it, nor how many frames it had, nor
    which GPU has them.

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
    path = address.other_path if address.scheme != OWN_SCHEME else address.find()
    try:
        return _ask(address, path, trusted_uids, time.monotonic() + _PATIENCE_SECONDS)
    except CuframesError:
        raise
    except BlockingIOError as error:
        raise FrameTimeout(_reason(error, Path(str(path)))) from error
    except PermissionError as error:
        raise connect_denied(Path(str(path)), error) from error
    except OSError:  # a socket that a dead publisher left, or one that went just now
        raise address.not_found() from None


def _ask(
    address: Address, path: Path | None, trusted_uids: Collection[int], deadline: float
) -> StreamInfo:
    """Ask whoever is at `path`; its own errors come as they are."""
    if path is None:
        raise address.not_found()
    if address.scheme == OWN_SCHEME:
        return describe(ask_status(path, trusted_uids, deadline), path)
    ask: Callable[..., StreamInfo] = address.bridge.stream_info
    return ask(path, address.key, trusted_uids, deadline)


def _state(error: Exception, path: Path) -> str:
    """Return what a socket is that did not tell of a stream."""
    match error:
        case FrameTimeout() | BlockingIOError():
            return "silent"
        case StreamNotFoundError():
            return _what_is_there(path)
        case PermissionError():
            return "denied"
        case ProtocolError():
            return "foreign"
        case ConnectionError():
            return "dead"
        case _:
            return "foreign"


def _what_is_there(path: Path) -> str:
    if not path.is_socket():
        return "absent"
    return "foreign" if somebody_listens(path) else "dead"


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
