"""The reading end of a stream."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Final, Self

from cuframes_nb._api.connection import NO_WAIT_SECONDS, Connection, kept
from cuframes_nb._api.frame import Frame
from cuframes_nb._api.info import StreamInfo
from cuframes_nb._core.cadence import Cadence
from cuframes_nb._core.clock import now_ns
from cuframes_nb._core.reading import (
    completion_waits,
    newest_complete,
    oldest_after,
    unfinished_after,
)
from cuframes_nb._core.stats import SubscriberStats
from cuframes_nb._os.forks import check_process
from cuframes_nb._runtime.attached import AttachedEpoch, Taken
from cuframes_nb._runtime.session import Session, was_farewell
from cuframes_nb._wire.control import ControlReader
from cuframes_nb._wire.messages import ReadMode
from cuframes_nb.errors import (
    ClosedError,
    FrameTimeout,
    InUseError,
    LeaseLimitError,
    PublisherGoneError,
    RemoteProtocolError,
)

__all__ = ["Subscriber"]

_ATTEMPTS: Final = 16
"""Looks at the ring before waiting: each fails only if a slot was rewritten in that microsecond."""

_SPINS: Final = 100
"""Looks for completion without sleeping: about 100 us, which a sleep takes to return."""

_PENDING_SECONDS: Final = 0.0005
"""Between looks while a lease only waits for the GPU."""


class Subscriber:
    """Reads a stream; made by :func:`cuframes_nb.subscribe`.

    Frames are handed out where the publisher wrote them, without a copy, and may be used and
    released on any thread. `next`, `latest` and iteration are for one thread (or task) at a time.
    """

    def __init__(
        self,
        connection: Connection,
        mode: ReadMode,
        *,
        spin_ns: int,
        timeout: float | None,
    ) -> None:
        self._connection = connection
        self._mode = mode
        self._strict = mode is ReadMode.STRICT
        self._cadence = Cadence(spin_ns) if spin_ns else None
        self._pid = os.getpid()
        # Who uses the subscriber is not noted but seen, so that an interrupt cannot leave it taken.
        self._guard = threading.Lock()
        self._use: Callable[[], _Use | None] = _nobody
        self._closed = False
        self._received = self._skipped = self._retries = 0
        connection.open(None if timeout is None else time.monotonic() + timeout)

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
        connection = self._connection
        try:
            while True:
                taken = self._try_next(only_woken=only_woken)
                if taken is not None:
                    return self._hand_out(taken)
                only_woken = False
                if connection.session is None and self._retry(deadline):
                    continue
                self._check_deadline(deadline, timeout)
                session = connection.session
                if session is None:
                    continue
                pause = self._short_pause(session, waits)
                if pause is None and not drained:
                    session.drain()
                    drained = True  # and look again: it may have been about a new frame
                elif pause is None:
                    remaining = None if deadline is None else deadline - time.monotonic()
                    only_woken = self._wait(session, remaining)
                    drained = False
                elif pause:
                    time.sleep(pause)
                else:
                    self._spin(session.epoch.control)
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
            connection = self._connection
            if connection.session is None and connection.may_retry:
                connection.reach(time.monotonic() + NO_WAIT_SECONDS)
            taken = self._look_following(newest=True, after=0)
            return None if taken is None else self._hand_out(taken)
        finally:
            self._end(use)

    def recent(self, limit: int | None = None) -> list[Frame]:
        """Return the frames that are in the ring now, the oldest first.

        Parameters
        ----------
        limit
            How many of the newest, at most; by default as many as this subscriber may hold.

        Returns
        -------
        list of Frame
            Seen before or not; empty before the first frame and while the publisher is away. Each
            counts as held until it is released.

        Raises
        ------
        PublisherGoneError, InUseError, ClosedError
            As `next`.
        """
        use = self._begin()
        try:
            newest = self._look_following(newest=True, after=0)
            if newest is None:
                return []
            frames = [self._hand_out(newest)]
            session = self._connection.session
            assert session is not None  # noqa: S101  something was taken from it
            while limit is None or len(frames) < limit:
                taken = self._look_before(session.epoch, frames[-1].seq)
                if taken is None:
                    break
                frames.append(self._hand_out(taken))
            return frames[::-1]
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
        session = self._connection.session
        return SubscriberStats(
            received=self._received,
            skipped=self._skipped,
            retries=self._retries,
            connects=self._connection.connects,
            epoch=session.epoch.message.epoch if session else 0,
            leases=session.epoch.held if session else 0,
            lease_limit=session.epoch.limit if session else 0,
        )

    @property
    def info(self) -> StreamInfo:
        """What is known about the stream; the last that was known while the publisher is away."""
        self._check_process()
        return self._connection.describe(closed=self._closed)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._closed

    def close(self) -> None:
        """Leave the stream. Idempotent; frames and arrays that are held stay valid.

        A thread or task that waits on this subscriber wakes with a `ClosedError`.
        """
        self._closed = True
        session = self._connection.session
        if session is None or os.getpid() != self._pid:
            return
        self._leave()
        if self._connection.session is not None:
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
        connected = self._connection.session is not None
        state = "closed" if self._closed else "connected" if connected else "waiting"
        return f"<Subscriber {self._name!r} {self._mode.name.lower()}, {state}>"

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
        connection = self._connection
        session = connection.session
        if only_woken and session is not None:
            taken = self._look(session, newest=not self._strict, after=connection.last)
            if taken is not None:
                return taken
        return self._look_following(newest=not self._strict, after=connection.last)

    def _look_following(self, *, newest: bool, after: int) -> Taken | None:
        """Take in what the publisher said, then look for a frame.

        What is in the ring can still be read when the publisher is gone; only then is that told.
        """
        session = self._connection.session
        if session is None:
            self._connection.check_hope()
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
            return kept(error)
        except BaseException:
            self._connection.close()
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
                self._connection.close()
                raise
            if taken is not None:
                return taken
            self._retries += 1
        return None

    def _look_before(self, epoch: AttachedEpoch, before: int) -> Taken | None:
        """Take the newest frame older than `before`, if this subscriber may hold one more."""
        seqs = epoch.control.seqs()
        for seq in sorted((seq for seq in seqs if 0 < seq < before), reverse=True):
            if not epoch.may_take(seqs.index(seq)):
                return None
            if (taken := epoch.take(seqs.index(seq), seq)) is not None:
                return taken
        return None

    def _hand_out(self, taken: Taken) -> Frame:
        connection = self._connection
        session = connection.session
        assert session is not None  # noqa: S101  something was taken from it
        record = taken.record
        seq, last = record.seq, connection.last
        if seq > last:
            if last:
                self._skipped += seq - last - 1
            connection.last = seq
            if self._strict:
                session.report_passed(seq)
            if self._cadence is not None:
                self._cadence.note(seq, record.published_ns)
        self._received += 1
        ring = session.epoch.message.ring
        return Frame(session.welcome.key, ring, record, taken.planes, taken.lease)

    def _limit_reached(self, session: Session) -> LeaseLimitError:
        epoch = session.epoch
        return LeaseLimitError(
            f"this subscriber holds {epoch.held} frames of stream {self._name!r}, the most "
            f"it may of a ring of {len(epoch.message.ring.slots)}: release frames and drop arrays "
            f"on them, keep frame.copy() instead, or publish with a larger ring_size"
        )

    # --- Waiting ----------------------------------------------------------------------------------

    def _wait(self, session: Session, seconds: float | None) -> bool:
        """Wait for a wake-up, looking out for the next frame when it is likely to come.

        Returns
        -------
        bool
            As ``Session.wait``.
        """
        if self._cadence is not None:
            sleep, spin = self._cadence.plan(now_ns())
            if spin and (seconds is None or sleep + spin < seconds):
                return session.watch(self._connection.last, sleep, spin)
        return session.wait(seconds)

    def _spin(self, control: ControlReader) -> None:
        """Look for a frame to be complete, without sleeping."""
        choose = oldest_after if self._strict else newest_complete
        last = self._connection.last
        for _ in range(_SPINS):
            if choose(control.seqs(), control.completions(), last) is not None:
                return

    def _short_pause(self, session: Session, waits: Iterator[float]) -> float | None:
        """Return for how long to sleep before looking again; None to wait for a wake-up."""
        control = session.epoch.control
        if unfinished_after(control.seqs(), control.completions(), self._connection.last):
            return next(waits)
        if session.epoch.held >= session.epoch.limit and session.epoch.pending_releases:
            return _PENDING_SECONDS
        return None

    def _check_deadline(self, deadline: float | None, timeout: float | None) -> None:
        if deadline is None or time.monotonic() < deadline:
            return
        raise FrameTimeout(
            f"no new frame of stream {self._name!r} came within {timeout:g} s{self._connection.why}"
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
                session = self._connection.session
                if session is None:
                    await asyncio.sleep(self._connection.until_retry)
                    # The handshake waits for the publisher, so it has a thread of its own.
                    await asyncio.to_thread(self._reach)
                    continue
                pause = self._short_pause(session, waits)
                if pause is None:
                    await _readable(session)
                else:
                    await asyncio.sleep(pause)
        finally:
            self._end(use)

    def _retry(self, deadline: float | None) -> bool:
        """Try once to reach the publisher again; return whether it is there."""
        found = self._connection.retry(deadline)
        if self._closed:
            self._leave()
        return found

    def _reach(self) -> None:
        self._connection.reach()
        if self._closed:
            self._leave()

    def _lose(self, error: PublisherGoneError) -> None:
        self._connection.lose(error)
        self._check_open()
        self._connection.check_hope()

    def _begin(self) -> _Use:
        """Start to use the subscriber alone, until `_end` or what is returned is gone."""
        self._check_process()
        self._check_open()
        use = self._try_use()
        if use is None:
            raise InUseError(
                f"another thread or task is waiting on this subscriber of stream "
                f"{self._name!r}: subscribe once more for this one"
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
            self._use = _nobody
        if self._closed:
            self._leave()

    def _leave(self) -> None:
        # Whoever uses the session while this is called leaves at the end of that: see `_end`.
        while self._connection.session is not None and (use := self._try_use()) is not None:
            try:
                self._connection.close()
            finally:
                if self._use() is use:
                    self._use = _nobody

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            check_process(self._pid, f"the subscriber of stream {self._name!r}")

    @property
    def _name(self) -> str:
        return str(self._connection.address)

    def _check_open(self) -> None:
        if self._closed:
            raise ClosedError(f"the subscriber of stream {self._name!r} was closed")


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


class _Use:
    """Lives as long as somebody waits on a subscriber."""

    __slots__ = ("__weakref__",)


def _nobody() -> None:
    """Where nobody uses a subscriber."""
