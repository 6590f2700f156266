"""The reading end of a stream."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from cuframes_nb._api.address import Address
from cuframes_nb._api.frame import Frame
from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._core.reading import (
    completion_waits,
    newest_complete,
    oldest_after,
    unfinished_after,
)
from cuframes_nb._core.stats import SubscriberStats
from cuframes_nb._os.forks import check_process
from cuframes_nb._runtime.attached import Taken
from cuframes_nb._runtime.select import subscriber_backend
from cuframes_nb._runtime.session import Session, SessionOptions, was_farewell
from cuframes_nb._wire.messages import ReadMode, Status
from cuframes_nb.errors import (
    AccessDeniedError,
    ClosedError,
    CuframesError,
    FrameTimeout,
    InUseError,
    InvalidArgumentError,
    LeaseLimitError,
    PublisherGoneError,
    RemoteProtocolError,
)

__all__ = ["Subscriber", "subscribe"]

_MODES: Final = {"newest": ReadMode.NEWEST, "strict": ReadMode.STRICT}

_ATTEMPTS: Final = 16
"""Looks at the ring before waiting: each fails only if a slot was rewritten in that microsecond."""

_FIRST_RETRY_SECONDS: Final = 0.005
_LAST_RETRY_SECONDS: Final = 0.25
"""Between attempts to reach a publisher that is away; doubling from the first to the last."""

_HANDSHAKE_SECONDS: Final = 5.0
_NO_WAIT_HANDSHAKE_SECONDS: Final = 0.1
_PENDING_SECONDS: Final = 0.0005

_ENDED_BY_ERROR: Final = "the connection ended with an error before: subscribe anew"


def subscribe(
    source: str | os.PathLike[str],
    mode: str = "newest",
    *,
    timeout: float | None = 5.0,
    reconnect: bool = True,
    device: str | int | None = None,
    name: str | None = None,
    writable: bool = False,
    trusted_uids: Collection[int] = (),
) -> Subscriber:
    """Attach to a stream.

    Parameters
    ----------
    source
        The stream's key (``"cam1"`` or ``"cuframes://cam1"``) or the path of its socket.
    mode
        ``"newest"``: each `next` gives the newest frame, skipping older ones. ``"strict"``: each
        frame in order; with the publisher's policy ``"strict-wait"`` none is missed.
    timeout
        Seconds to wait for the stream to appear, None for ever.
    reconnect
        Whether to wait for the publisher to come back when it goes.
    device
        GPU to use the frames on (UUID, beginning of a UUID, PCI bus id, ordinal); by default the
        one that holds them.
    name
        What the publisher's ``info`` calls this subscriber; by default the program's name.
    writable
        Map the pixels for writing. GPU memory only; other subscribers see what is written.
    trusted_uids
        Users besides this one and root whose publishers may be attached to;
        ``$CUFRAMES_TRUSTED_UIDS`` adds to them.

    Returns
    -------
    Subscriber
        Connected; close it or use it as a context manager.

    Raises
    ------
    StreamNotFoundError
        If there is no such stream; the message lists those there are.
    FrameTimeout
        If its publisher does not answer.
    AccessDeniedError
        If the publisher does not let this user in, or is one this user does not trust.
    DeviceError
        If the GPU that holds the frames is not on this machine, is hidden from this process, or is
        not the one asked for.
    """
    if mode not in _MODES:
        raise InvalidArgumentError(f"mode {mode!r} is not known; use 'newest' or 'strict'")
    options = SessionOptions(
        _MODES[mode],
        _short_name(name),
        functools.partial(subscriber_backend, device=device),
        writable,
        frozenset(trusted_uids),
    )
    return Subscriber(Address(source), options, reconnect=reconnect, timeout=timeout)


class Subscriber:
    """Reads a stream; made by :func:`subscribe`.

    Frames are handed out where the publisher wrote them, without a copy, and may be used and
    released on any thread. `next`, `latest` and iteration are for one thread (or task) at a time.
    """

    def __init__(
        self,
        address: Address,
        options: SessionOptions,
        *,
        reconnect: bool,
        timeout: float | None,
    ) -> None:
        self._address = address
        self._options = options
        self._reconnect = reconnect
        self._strict = options.mode is ReadMode.STRICT
        self._pid = os.getpid()
        # Who uses the subscriber is not noted but seen, so that an interrupt cannot leave it taken.
        self._guard = threading.Lock()
        self._use: Callable[[], _Use | None] = _nothing
        self._attempt: Callable[[], _Use | None] = _nothing
        self._closed = False
        self._gone: PublisherGoneError | None = None
        self._last = 0
        self._received = self._skipped = self._retries = self._connects = 0
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._retry_at = 0.0
        self._session: Session | None = None
        self._finalizer: Callable[[], object] = _nothing
        self._status: Status
        self._path: Path
        self._reason = ""
        self._first_connect(None if timeout is None else time.monotonic() + timeout)

    # --- Frames -----------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Frame:
        """Return the next frame: the newest not yet seen, or with ``mode="strict"`` the next one.

        Parameters
        ----------
        timeout
            Seconds to wait for it, None for ever.

        Returns
        -------
        Frame
            Release it, or let it go out of scope, when done.

        Raises
        ------
        FrameTimeout
            If none came in time; also while the publisher is away.
        PublisherGoneError
            If it went and `reconnect` is off.
        LeaseLimitError
            If this subscriber holds as many frames as it may.
        InUseError
            If another thread is waiting on this subscriber.
        ClosedError
            After `close`, or in a forked child.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        waits = completion_waits()
        only_woken = drained = False
        use = self._begin()
        try:
            while True:
                taken = self._try_next(only_woken=only_woken)
                if taken is not None:
                    return self._hand_out(taken)
                only_woken = False
                if self._session is None and self._retry(deadline):
                    continue
                self._check_deadline(deadline, timeout)
                if self._session is None:
                    continue
                pause = self._short_pause(waits)
                if pause is None and not drained:
                    self._session.drain()
                    drained = True  # and look again: it may have been about a new frame
                elif pause is None:
                    remaining = None if deadline is None else deadline - time.monotonic()
                    only_woken = self._session.wait(remaining)
                    drained = False
                elif pause:
                    time.sleep(pause)
        finally:
            self._end(use)

    def latest(self) -> Frame | None:
        """Return the newest frame, seen before or not; None before the first.

        Does not wait for one. While the publisher is away it tries to reach it, which may take
        0.1 s. With ``mode="strict"`` the frames before are passed over for good.

        Raises
        ------
        PublisherGoneError, LeaseLimitError, InUseError, ClosedError
            As `next`.
        """
        use = self._begin()
        try:
            if self._session is None and self._reconnect and time.monotonic() >= self._retry_at:
                self._connect_again(time.monotonic() + _NO_WAIT_HANDSHAKE_SECONDS)
            taken = self._look_following(newest=True, after=0)
            return None if taken is None else self._hand_out(taken)
        finally:
            self._end(use)

    def __iter__(self) -> Iterator[Frame]:
        """Yield frames as they come; each is released when the next is asked for.

        Ends when the publisher closes the stream and `reconnect` is off.
        """
        while True:
            try:
                frame = self.next()
            except PublisherGoneError as error:
                if was_farewell(error):
                    return
                raise
            yield frame
            frame.release()

    async def __aiter__(self) -> AsyncIterator[Frame]:
        """Yield frames as they come, never blocking the event loop; otherwise as iteration."""
        while True:
            try:
                frame = await self._next_async()
            except PublisherGoneError as error:
                if was_farewell(error):
                    return
                raise
            yield frame
            frame.release()

    # --- The subscription -------------------------------------------------------------------------

    @property
    def stats(self) -> SubscriberStats:
        """A snapshot of the counters."""
        self._check_process()
        session = self._session
        return SubscriberStats(
            received=self._received,
            skipped=self._skipped,
            retries=self._retries,
            connects=self._connects,
            epoch=session.epoch.message.epoch if session else 0,
            leases=session.epoch.held if session else 0,
            lease_limit=session.epoch.limit if session else 0,
        )

    @property
    def info(self) -> StreamInfo:
        """What is known about the stream; the last that was known while the publisher is away."""
        self._check_process()
        session = self._session
        if session is not None:
            self._status = _status_of(session)
            self._reason = session.epoch.backend.reason
        state = "closed" if self._closed else "live" if session is not None else "waiting"
        return describe(
            self._status, self._path, state=state, memory_reason=self._reason, complete=False
        )

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Leave the stream. Idempotent; frames and arrays that are held stay valid.

        A thread or task that waits on this subscriber wakes with a `ClosedError`.
        """
        self._closed = True
        session = self._session
        if session is None or os.getpid() != self._pid:
            return
        self._leave()
        if self._session is not None:
            session.interrupt()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._closed else "connected" if self._session else "waiting"
        return f"<Subscriber {str(self._address)!r} {self._options.mode.name.lower()}, {state}>"

    # --- Looking ----------------------------------------------------------------------------------

    def _try_next(self, *, only_woken: bool = False) -> Taken | None:
        """Look for the next frame.

        Parameters
        ----------
        only_woken
            Whether it is known that the publisher said nothing but "look".
        """
        if self._closed:
            self._check_open()
        session = self._session
        if only_woken and session is not None:
            taken = self._look(session, newest=not self._strict, after=self._last)
            if taken is not None:
                return taken
        return self._look_following(newest=not self._strict, after=self._last)

    def _look_following(self, *, newest: bool, after: int) -> Taken | None:
        """Take in what the publisher said, then look for a frame.

        What is in the ring can still be read when the publisher is gone; only then is that told.
        """
        session = self._session
        if session is None:
            if not self._reconnect:
                raise _again(self._gone or PublisherGoneError(_ENDED_BY_ERROR))
            return None
        gone = self._follow(session)
        # A strict reader first takes what is left of an epoch, a newest-only reader does not care.
        while newest and session.advance():
            gone = self._follow(session)
        if newest and gone is not None and session.outdated:
            self._lose(gone)  # dropped for not listening: what is new is to be had by connecting
            return None
        taken = self._look(session, newest=newest, after=after)
        while taken is None and session.advance():
            gone = self._follow(session)
            taken = self._look(session, newest=newest, after=after)
        if taken is None and gone is not None:
            self._lose(gone)
        return taken

    def _follow(self, session: Session) -> PublisherGoneError | None:
        """Take in what the publisher said; return its end, if that is what it was."""
        try:
            session.follow()
        except PublisherGoneError as error:
            return _kept(error)
        except BaseException:
            self._disconnect()
            raise
        return None

    def _look(self, session: Session, *, newest: bool, after: int) -> Taken | None:
        epoch = session.epoch
        control = epoch.control
        choose = newest_complete if newest else oldest_after
        for _ in range(_ATTEMPTS):
            choice = choose(control.seqs(), control.completions(), after)
            if choice is not None and not newest and choice[1] != after + 1:
                # The numbers are not read all at once, so frames before this one may have come
                # while they were; now they show.
                choice = choose(control.seqs(), control.completions(), after)
            if choice is None:
                return None
            slot, seq = choice
            if not epoch.may_take(slot):
                if epoch.pending_releases:
                    return None
                raise self._limit_reached(session)
            try:
                taken = epoch.take(slot, seq)
            except RemoteProtocolError:
                self._disconnect()
                raise
            if taken is not None:
                return taken
            self._retries += 1
        return None

    def _hand_out(self, taken: Taken) -> Frame:
        session = self._session
        assert session is not None  # noqa: S101  something was taken from it
        seq = taken.record.seq
        if seq > self._last:
            if self._last:
                self._skipped += seq - self._last - 1
            self._last = seq
            if self._strict:
                session.report_passed(seq)
        self._received += 1
        ring = session.epoch.message.ring
        return Frame(session.welcome.key, ring, taken.record, taken.planes, taken.lease)

    def _limit_reached(self, session: Session) -> LeaseLimitError:
        epoch = session.epoch
        return LeaseLimitError(
            f"this subscriber holds {epoch.held} frames of stream {str(self._address)!r}, the most "
            f"it may of a ring of {len(epoch.message.ring.slots)}: release frames and drop arrays "
            f"on them, keep frame.copy() instead, or publish with a larger ring_size"
        )

    # --- Waiting ----------------------------------------------------------------------------------

    def _short_pause(self, waits: Iterator[float]) -> float | None:
        """Return for how long to sleep before looking again; None to wait for a wake-up."""
        session = self._session
        assert session is not None  # noqa: S101  checked by the caller
        control = session.epoch.control
        if unfinished_after(control.seqs(), control.completions(), self._last):
            return next(waits)
        if session.epoch.held >= session.epoch.limit and session.epoch.pending_releases:
            return _PENDING_SECONDS
        return None

    def _check_deadline(self, deadline: float | None, timeout: float | None) -> None:
        if deadline is None or time.monotonic() < deadline:
            return
        why = "" if self._session is not None or self._gone is None else f": {self._gone}"
        raise FrameTimeout(
            f"no new frame of stream {str(self._address)!r} came within {timeout:g} s{why}"
        )

    async def _next_async(self) -> Frame:
        import asyncio

        waits = completion_waits()
        use = self._begin()
        try:
            while True:
                taken = self._try_next()
                if taken is not None:
                    return self._hand_out(taken)
                if self._session is None:
                    await asyncio.sleep(max(0.0, self._retry_at - time.monotonic()))
                    # The handshake waits for the publisher, so it has a thread of its own.
                    patience = time.monotonic() + _HANDSHAKE_SECONDS
                    await asyncio.to_thread(self._connect_again, patience)
                    continue
                pause = self._short_pause(waits)
                if pause is None:
                    await _readable(self._session)
                else:
                    await asyncio.sleep(pause)
        finally:
            self._end(use)

    def _begin(self) -> _Use:
        """Start to use the subscriber alone, until `_end` or what is returned is gone."""
        self._check_process()
        self._check_open()
        use = self._try_use()
        if use is None:
            raise InUseError(
                f"another thread or task is waiting on this subscriber of stream "
                f"{str(self._address)!r}: subscribe once more for this one"
            )
        return use

    def _try_use(self) -> _Use | None:
        use = _Use()
        with self._guard:
            if self._use() is not None:
                return None
            self._use = weakref.ref(use)
        return use

    def _end(self, use: _Use) -> None:
        """Let others use the subscriber; if it was closed meanwhile, leave the stream."""
        if self._use() is use:
            self._use = _nothing
        if self._closed:
            self._leave()

    def _leave(self) -> None:
        # Whoever uses the session while this is called leaves at the end of that: see `_end`.
        while self._session is not None and (use := self._try_use()) is not None:
            try:
                self._disconnect()
            finally:
                if self._use() is use:
                    self._use = _nothing

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            check_process(self._pid, f"the subscriber of stream {str(self._address)!r}")

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the subscriber of stream {str(self._address)!r} was closed")

    # --- Connecting -------------------------------------------------------------------------------

    def _first_connect(self, deadline: float | None) -> None:
        while True:
            path = self._address.find()
            self._connect(
                time.monotonic() + _HANDSHAKE_SECONDS
                if deadline is None
                else max(deadline, time.monotonic() + _NO_WAIT_HANDSHAKE_SECONDS),
                path,
            )
            if self._session is not None:
                return
            if deadline is not None and time.monotonic() >= deadline:
                if path is None or self._gone is None:
                    raise self._address.not_found()
                raise _again(self._gone)
            self._pause_retry(deadline)

    def _connect(self, deadline: float, path: Path | None = None) -> None:
        """Try once to reach the publisher; raises only for what does not pass by itself."""
        path = path or self._address.find()
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
            self._gone = _kept(error)
            return
        except PermissionError as error:
            if isinstance(error, CuframesError):
                raise
            raise AccessDeniedError(
                f"this user may not connect to {path} ({error.strerror}): its publisher can let "
                f"others in with group=…"
            ) from error
        finalizer = weakref.finalize(self, _close_session, session, self._pid)
        finalizer.atexit = False  # the kernel closes it all
        self._finalizer = finalizer
        self._path = path
        self._gone = None
        self._connects += 1
        self._retry_seconds = _FIRST_RETRY_SECONDS
        self._last = session.welcome.start_seq if self._strict else 0
        self._status = _status_of(session)
        self._reason = session.epoch.backend.reason
        # Last, because the attempt of a task that was cancelled may run on another thread.
        self._session = session

    def _retry(self, deadline: float | None) -> bool:
        """Wait a little and try once to reach the publisher again; return whether it is there."""
        self._pause_retry(deadline)
        now = time.monotonic()
        if now < self._retry_at:
            return False
        patience = now + _HANDSHAKE_SECONDS
        if deadline is not None:
            patience = min(patience, max(deadline, now + _NO_WAIT_HANDSHAKE_SECONDS))
        self._connect_again(patience)
        return self._session is not None

    def _connect_again(self, deadline: float) -> None:
        """Try once to reach a publisher that was there before."""
        # An attempt that a cancelled task began may still be under way in its thread.
        attempt = _Use()
        with self._guard:
            if alone := self._attempt() is None:
                self._attempt = weakref.ref(attempt)
        if not alone:
            time.sleep(_FIRST_RETRY_SECONDS)
            return
        try:
            if self._session is None:
                self._connect(deadline)
        except FrameTimeout:
            pass  # it does not answer, which is as good as not being there
        finally:
            self._attempt = _nothing
        if self._closed:
            self._leave()

    def _pause_retry(self, deadline: float | None) -> None:
        until = self._retry_at if deadline is None else min(deadline, self._retry_at)
        time.sleep(max(0.0, until - time.monotonic()))

    def _lose(self, error: PublisherGoneError) -> None:
        self._gone = error
        self._disconnect()
        self._check_open()
        if not self._reconnect:
            raise _again(error)

    def _disconnect(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            self._status = _status_of(session)
            self._finalizer()
        self._retry_at = 0.0


async def _readable(session: Session) -> None:
    """Return when the session has something to look at."""
    import asyncio

    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    filenos = session.filenos
    for fd in filenos:
        loop.add_reader(fd, ready.set)
    try:
        await ready.wait()
    finally:
        for fd in filenos:
            loop.remove_reader(fd)
        session.drain()


def _kept(error: PublisherGoneError) -> PublisherGoneError:
    """Return the error without the frames it came through, whose variables hold leases."""
    return error.with_traceback(None)


def _again(error: PublisherGoneError) -> PublisherGoneError:
    """Return an error that was kept as a new one, to be raised."""
    return type(error)(*error.args)


def _close_session(session: Session, pid: int) -> None:
    """Leave, unless this is a forked child, which has nothing to leave."""
    if os.getpid() == pid:
        session.close()


class _Use:
    """Lives as long as somebody waits on a subscriber."""

    __slots__ = ("__weakref__",)


def _nothing() -> None:
    """Do nothing, return None: where there is no session, or nobody."""


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


def _short_name(name: str | None) -> str:
    """Return a name of at most 64 bytes of UTF-8."""
    text = name if name is not None else Path(sys.argv[0] if sys.argv else "").name or "python"
    return text.encode(errors="replace")[:64].decode(errors="ignore")
