"""The thread that keeps a subscriber connected with a pipeline."""

from __future__ import annotations

import errno
import os
import select
import threading
from pathlib import Path
from typing import Final, NamedTuple

from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.credentials import user_name
from cuframes_nb._os.wakeups import WakeReceiver, wake_pair
from cuframes_nb._runtime.session import ENVIRONMENT_TRUST
from cuframes_nb.bridges.gst.inbox import Inbox
from cuframes_nb.bridges.gst.ledger import Ledger
from cuframes_nb.bridges.gst.memory import FrameHold, Importer
from cuframes_nb.bridges.gst.session import Session
from cuframes_nb.errors import AccessDeniedError, CuframesError, StreamNotFoundError

__all__ = ["Place", "Pump", "connect", "nobody_listens"]

_FIRST_RETRY_SECONDS: Final = 0.005
_LAST_RETRY_SECONDS: Final = 0.25
"""Between attempts to reach a pipeline, doubling from the first to the last."""


class Place(NamedTuple):
    """Where a pipeline is looked for, and who may run it."""

    name: str  #: as the user wrote it
    key: str
    path: Path
    trusted_uids: frozenset[int] = frozenset()


class Pump:
    """Reaches the pipeline, follows the connection, and reaches the next one.

    A thread of its own, because the sink's shutdown waits for whoever holds a frame, and tells
    that only to who listens. It ends once nobody wants any frames and none is held.

    Parameters
    ----------
    place
        Where the pipeline is.
    importer
        What maps its memory.
    inbox
        Where its frames go.
    reconnect
        Whether to look for the next one when it is gone.

    Attributes
    ----------
    attempts : int
        How often it was looked for.
    found : bool
        Whether somebody listened at the last look.
    """

    def __init__(self, place: Place, importer: Importer, inbox: Inbox, *, reconnect: bool) -> None:
        self._place = place
        self._importer = importer
        self._inbox = inbox
        self._reconnect = reconnect
        self._pause = _FIRST_RETRY_SECONDS
        self.attempts = 0
        self.found = False
        self._sender, fd = wake_pair()
        self._receiver = WakeReceiver.adopt(fd)
        self._thread = threading.Thread(target=self._run, name="cuframes-gst", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def wake(self) -> None:
        """Have the thread look; from any thread or finalizer, never waits."""
        self._sender.wake()

    def stop(self) -> None:
        """Want no more frames. The thread ends when those that are held are given back."""
        self._inbox.closing = True
        self.wake()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, at most so long."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while not self._inbox.closing and self._once():
                self._wait(self._pause)
                self._pause = min(self._pause * 2, _LAST_RETRY_SECONDS)
        finally:
            self._inbox.end()
            self._sender.close()
            self._receiver.close()

    def _once(self) -> bool:
        """Follow one connection, if there is one; return whether to go on."""
        stream = None
        try:
            stream = connect(self._place)
        except CuframesError as error:
            self._inbox.fail(error.with_traceback(None))
            return self._reconnect
        finally:
            self.attempts += 1
            self.found = stream is not None
            self._inbox.poke()
        # Whoever does not want to reconnect still wants to connect once.
        if stream is None:
            return self._reconnect or not self._inbox.connects
        session = self._session(stream)
        try:
            session.run()
            if session.lasted:
                self._pause = _FIRST_RETRY_SECONDS
        except CuframesError as error:
            self._pause = _LAST_RETRY_SECONDS
            self._inbox.fail(error.with_traceback(None))
            return self._reconnect
        finally:
            session.close()
        return self._reconnect or not self._inbox.connects

    def _session(self, stream: ByteStream) -> Session:
        ledger: Ledger[FrameHold] = Ledger(self.wake)
        return Session(
            stream,
            self._receiver,
            ledger,
            importer=self._importer,
            inbox=self._inbox,
            name=self._place.name,
        )

    def _wait(self, seconds: float) -> None:
        poller = select.poll()
        poller.register(self._receiver.fileno(), select.POLLIN)
        poller.poll(seconds * 1000)
        self._receiver.drain()


def connect(place: Place) -> ByteStream | None:
    """Return a connection with a pipeline that is trusted, None if nobody listens.

    Raises
    ------
    AccessDeniedError, StreamNotFoundError
        If that cannot be had, or is none.
    """
    path = place.path
    try:
        stream = ByteStream.connect(path)
    except (FileNotFoundError, ConnectionRefusedError, NotADirectoryError, BlockingIOError):
        return None  # or a socket that a killed pipeline left
    except PermissionError as error:
        raise AccessDeniedError(
            f"this user may not connect to {path} ({error.strerror}): GStreamer makes its "
            f"socket by the umask of the pipeline, so run both as one user, or set that umask"
        ) from error
    except OSError as error:
        if error.errno != errno.EPROTOTYPE:
            raise StreamNotFoundError(f"{path} cannot be connected to: {error}") from error
        raise StreamNotFoundError(
            f"what listens at {path} is no cudaipcsink (its socket is of another type); a "
            f"stream of cuframes_nb is named by its key or its path, without gst://"
        ) from error
    _check_trust(stream, place)
    return stream


def nobody_listens(path: Path) -> StreamNotFoundError:
    """Return the error for a pipeline that is not there."""
    left = " any more: its pipeline has ended" if path.is_socket() else ""
    return StreamNotFoundError(
        f"no GStreamer pipeline listens at {path}{left}; start one that ends in "
        f"'cudaipcsink address={path}'"
    )


def _check_trust(stream: ByteStream, place: Place) -> None:
    uid = stream.peer().uid
    words = os.environ.get(ENVIRONMENT_TRUST, "").replace(",", " ").split()
    trusted = {int(word) for word in words if word.isdecimal()} | place.trusted_uids
    if uid not in {0, os.geteuid(), *trusted}:
        stream.close()
        raise AccessDeniedError(
            f"the pipeline at {place.path} runs as user {user_name(uid)}, whom "
            f"{user_name(os.geteuid())} has no reason to trust: pass trusted_uids=({uid},) or set "
            f"${ENVIRONMENT_TRUST}={uid} if you do"
        )
