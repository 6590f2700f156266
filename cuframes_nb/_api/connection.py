"""Keeping a subscriber connected: finding the publisher, trying again, coming back."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cuframes_nb._api.address import Address, connect_denied
from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._runtime.session import Session, SessionOptions
from cuframes_nb._wire.messages import ReadMode, Status
from cuframes_nb.errors import ClosedError, CuframesError, FrameTimeout, PublisherGoneError

__all__ = ["Connection", "kept"]

_FIRST_RETRY_SECONDS: Final = 0.005
_LAST_RETRY_SECONDS: Final = 0.25
"""Between attempts to reach a publisher that is away; doubling from the first to the last."""

_HANDSHAKE_SECONDS: Final = 5.0
_NO_WAIT_SECONDS: Final = 0.1
"""For a handshake of somebody who does not want to wait."""

_ENDED_BY_ERROR: Final = "the connection ended with an error before: subscribe anew"


class Connection:
    """The session with a stream's publisher, or the search for one.

    Its subscriber serialises the calls, but for `reach`, which another thread may call, too.

    Parameters
    ----------
    address
        Where the publisher is looked for.
    options
        What the subscriber wants.
    reconnect
        Whether to look for it again when it is gone.

    Attributes
    ----------
    session : Session or None
        None while there is no publisher.
    last : int
        Sequence number of the newest frame that was taken from this publisher.
    connects : int
        How often a publisher was reached.
    ended : bool
        Whether its subscriber was closed.
    """

    def __init__(self, address: Address, options: SessionOptions, *, reconnect: bool) -> None:
        self.address = address
        self.session: Session | None = None
        self.last = 0
        self.connects = 0
        self.ended = False
        self._options = options
        self._reconnect = reconnect
        self._pid = os.getpid()
        self._gone: PublisherGoneError | None = None
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._retry_at = 0.0
        # Who tries is not noted but seen, so that an interrupt cannot leave it taken.
        self._guard = threading.Lock()
        self._attempt: Callable[[], _Attempt | None] = _nobody
        self._finalizer: Callable[[], object] = _nobody
        self._status: Status
        self._path: Path
        self._reason = self._sharing = ""

    def open(self, deadline: float | None) -> None:
        """Reach the publisher for the first time, waiting for it until `deadline`.

        Raises
        ------
        StreamNotFoundError, AccessDeniedError
            If there is none by then, or none that lets us in.
        CuframesError
            What does not pass by waiting.
        """
        while True:
            path = self.address.find()
            self._connect(
                time.monotonic() + _HANDSHAKE_SECONDS
                if deadline is None
                else max(deadline, time.monotonic() + _NO_WAIT_SECONDS),
                path,
            )
            if self.session is not None:
                return
            if deadline is not None and time.monotonic() >= deadline:
                if path is None or self._gone is None:
                    raise self.address.not_found()
                raise _again(self._gone)
            self._pause(deadline)

    def retry(self, deadline: float | None) -> bool:
        """Wait a little and try once to reach the publisher again; return whether it is there."""
        self._pause(deadline)
        now = time.monotonic()
        if now < self._retry_at:
            return False
        patience = now + _HANDSHAKE_SECONDS
        if deadline is not None:
            patience = min(patience, max(deadline, now + _NO_WAIT_SECONDS))
        self.reach(patience)
        return self.session is not None

    def try_at_once(self) -> None:
        """Try to reach the publisher for somebody who does not want to wait, if it is time to."""
        if self.session is None and self._reconnect and time.monotonic() >= self._retry_at:
            self.reach(time.monotonic() + _NO_WAIT_SECONDS)

    @property
    def name(self) -> str:
        """What people call the stream."""
        return str(self.address)

    @property
    def until_retry(self) -> float:
        """Seconds until it makes sense to try again."""
        return max(0.0, self._retry_at - time.monotonic())

    def reach(self, deadline: float | None = None) -> None:
        """Try once to reach a publisher that was there before."""
        # An attempt that a cancelled task began may still be under way in its thread.
        attempt = _Attempt()
        with self._guard:
            if alone := self._attempt() is None:
                self._attempt = weakref.ref(attempt)
        if not alone:
            time.sleep(_FIRST_RETRY_SECONDS)
            return
        try:
            if self.session is None:
                self._connect(
                    time.monotonic() + _HANDSHAKE_SECONDS if deadline is None else deadline
                )
        except FrameTimeout:
            pass  # it does not answer, which is as good as not being there
        finally:
            self._attempt = _nobody

    def check_open(self) -> None:
        """Raise if the subscriber was closed.

        Raises
        ------
        ClosedError
            Then.
        """
        if self.ended:
            raise ClosedError(f"the subscriber of stream {self.name!r} was closed")

    def check_hope(self) -> None:
        """Raise if there is no publisher and none is waited for.

        Raises
        ------
        PublisherGoneError
            Then.
        ClosedError
            If the subscriber was closed.
        """
        self.check_open()
        if self.session is None and not self._reconnect:
            raise _again(self._gone or PublisherGoneError(_ENDED_BY_ERROR))

    def lose(self, error: PublisherGoneError) -> None:
        """Note that the publisher is gone."""
        self._gone = error
        self.close()

    def close(self) -> None:
        """Leave the publisher, if there is one; it may be reached again."""
        session, self.session = self.session, None
        if session is not None:
            self._note(session)
            self._finalizer()
        self._retry_at = 0.0

    @property
    def why(self) -> str:
        """Why there is no publisher, for the end of a sentence; empty if there is one."""
        return "" if self.session is not None or self._gone is None else f": {self._gone}"

    def describe(self) -> StreamInfo:
        """Return what is known about the stream, or was last."""
        session = self.session
        if session is not None:
            self._note(session)
        state = "closed" if self.ended else "live" if session is not None else "waiting"
        return describe(
            self._status, self._path, state=state, memory_reason=self._reason,
            sharing=self._sharing, complete=False,
        )  # fmt: skip

    def _connect(self, deadline: float, path: Path | None = None) -> None:
        """Try once to reach the publisher; raises only for what does not pass by itself."""
        path = path or self.address.find()
        self._retry_seconds = min(self._retry_seconds * 2, _LAST_RETRY_SECONDS)
        self._retry_at = time.monotonic() + self._retry_seconds
        if path is None:
            return
        try:
            session = Session.open(path, self._options, deadline)
        except (FileNotFoundError, ConnectionRefusedError, BlockingIOError):
            return  # a socket that a dead publisher left, or one that is just starting
        except (BrokenPipeError, ConnectionResetError):
            return  # it went between our connecting and our greeting
        except PublisherGoneError as error:
            self._gone = kept(error)
            return
        except PermissionError as error:
            if isinstance(error, CuframesError):
                raise
            raise connect_denied(path, error) from error
        self._begin(session, path)

    def _begin(self, session: Session, path: Path) -> None:
        finalizer = weakref.finalize(self, _close_session, session, self._pid)
        finalizer.atexit = False  # the kernel closes it all
        self._finalizer = finalizer
        self._path = path
        self._gone = None
        self.connects += 1
        self._retry_seconds = _FIRST_RETRY_SECONDS
        strict = self._options.mode is ReadMode.STRICT
        self.last = session.welcome.start_seq if strict else 0
        self._note(session)
        # Last, because the attempt of a task that was cancelled may run on another thread.
        self.session = session

    def _note(self, session: Session) -> None:
        self._status = _status_of(session)
        backend = session.epoch.backend
        self._reason, self._sharing = backend.reason, backend.sharing

    def _pause(self, deadline: float | None) -> None:
        until = self._retry_at if deadline is None else min(deadline, self._retry_at)
        time.sleep(max(0.0, until - time.monotonic()))


class _Attempt:
    """Lives as long as somebody tries to connect."""

    __slots__ = ("__weakref__",)


def _nobody() -> None:
    """Where nobody tries, and nothing is to be closed."""


def kept(error: PublisherGoneError) -> PublisherGoneError:
    """Return the error without the frames it came through, whose variables hold leases."""
    return error.with_traceback(None)


def _again(error: PublisherGoneError) -> PublisherGoneError:
    """Return an error that was kept as a new one, to be raised."""
    return type(error)(*error.args)


def _close_session(session: Session, pid: int) -> None:
    """Leave, unless this is a forked child, which has nothing to leave."""
    if os.getpid() == pid:
        session.close()


def _status_of(session: Session) -> Status:
    epoch = session.epoch
    control = epoch.control
    return Status(
        key=session.welcome.key,
        pid=session.welcome.pid,
        epoch=epoch.message.epoch,
        started_ns=0,
        published=control.published,
        dropped=control.dropped,
        last_publish_ns=control.last_publish_ns,
        ring=epoch.message.ring,
        subscribers=(),
    )
