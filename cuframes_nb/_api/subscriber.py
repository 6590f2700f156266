"""The reading end of a stream."""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Self

from cuframes_nb._api.connection import Connection
from cuframes_nb._api.frame import Frame
from cuframes_nb._api.info import StreamInfo
from cuframes_nb._api.reader import Reader
from cuframes_nb._core.reading import completion_waits
from cuframes_nb._core.stats import SubscriberStats
from cuframes_nb._os.forks import check_process, close_in_child
from cuframes_nb._runtime.session import Session, was_farewell
from cuframes_nb._wire.messages import ReadMode
from cuframes_nb.errors import FrameTimeout, InUseError, PublisherGoneError

__all__ = ["Subscriber"]


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
        self._reader = Reader(connection, mode, spin_ns)
        self._pid = os.getpid()
        # Who uses the subscriber is not noted but seen, so that an interrupt cannot leave it taken.
        self._guard = threading.Lock()
        self._use: Callable[[], _Use | None] = _nobody
        self._usable = True  #: neither closed nor inherited by a forked child
        close_in_child(self)
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
        use = self._begin()
        try:
            frame = self._reader.take_fresh()
            return self._await(deadline, timeout) if frame is None else frame
        finally:
            del use
            if not self._usable:
                self._leave()

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
            frame = self._reader.take_fresh(newest=True)
            if frame is None:
                self._connection.try_at_once()
                frame = self._reader.take_newest()
            return frame
        finally:
            del use
            if not self._usable:
                self._leave()

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
        frames: list[Frame] = []
        try:
            frame = self._reader.take_newest()
            while frame is not None:
                frames.append(frame)
                if len(frames) == limit:
                    break
                frame = self._reader.take_before(frame.seq)
            return frames[::-1]
        finally:
            del use
            if not self._usable:
                self._leave()

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
            received=self._reader.received,
            skipped=self._reader.skipped,
            retries=self._reader.retries,
            connects=self._connection.connects,
            epoch=session.epoch.message.epoch if session else 0,
            leases=session.epoch.held if session else 0,
            lease_limit=session.epoch.limit if session else 0,
            copied=self._reader.copied,
        )

    @property
    def info(self) -> StreamInfo:
        """What is known about the stream; the last that was known while the publisher is away."""
        self._check_process()
        return self._connection.describe()

    @property
    def address(self) -> str:
        """What `subscribe` takes to attach to the stream once more."""
        return str(self.info.path)

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._connection.ended

    def close(self) -> None:
        """Leave the stream. Idempotent; frames and arrays that are held stay valid.

        A thread or task that waits on this subscriber wakes with a `ClosedError`.
        """
        self._connection.ended = True
        self._usable = False
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
        state = "closed" if self.closed else "connected" if connected else "waiting"
        return f"<Subscriber {self._connection.name!r} {self._mode.name.lower()}, {state}>"

    # --- Waiting ----------------------------------------------------------------------------------

    def _await(self, deadline: float | None, timeout: float | None) -> Frame:
        """Return the next frame, which was not there a moment ago."""
        reader, connection = self._reader, self._connection
        waits = completion_waits()
        if connection.session is not None:
            connection.session.drain()
        drained = True
        while True:
            connection.check_open()
            frame = reader.take_next()
            if frame is not None:
                return frame
            session = connection.session
            if session is None:
                if not self._retry(deadline):
                    self._check_deadline(deadline, timeout)
                continue
            self._check_deadline(deadline, timeout)
            pause = reader.pause(waits)
            if pause is not None:
                self._pause(pause)
            elif drained:
                drained = False
                frame = self._sleep(session, deadline)
                if frame is not None:
                    return frame
            else:
                session.drain()
                drained = True  # and look again: it may have been about a new frame

    def _sleep(self, session: Session, deadline: float | None) -> Frame | None:
        """Wait for a wake-up; return a frame if nothing but that came."""
        reader = self._reader
        only_woken = reader.wait(session, None if deadline is None else deadline - time.monotonic())
        if not only_woken or not self._usable:
            return None
        frame = reader.take_fresh()
        if frame is None and reader.spin():
            frame = reader.take_fresh()
        return frame

    def _pause(self, seconds: float) -> None:
        if seconds:
            time.sleep(seconds)
        else:
            self._reader.spin()

    def _check_deadline(self, deadline: float | None, timeout: float | None) -> None:
        if deadline is None or time.monotonic() < deadline:
            return
        connection = self._connection
        raise FrameTimeout(
            f"no new frame of stream {connection.name!r} came within {timeout:g} s{connection.why}"
        )

    async def _next_async(self) -> Frame:
        import asyncio

        reader, connection = self._reader, self._connection
        waits = completion_waits()
        use = self._begin()
        try:
            while True:
                connection.check_open()
                frame = reader.take_fresh()
                if frame is None:
                    frame = reader.take_next()
                if frame is not None:
                    return frame
                session = connection.session
                if session is None:
                    await asyncio.sleep(connection.until_retry)
                    # The handshake waits for the publisher, so it has a thread of its own.
                    await asyncio.to_thread(self._reach)
                    continue
                pause = reader.pause(waits)
                if pause is None:
                    await _readable(session)
                else:
                    await asyncio.sleep(pause)
        finally:
            del use
            if not self._usable:
                self._leave()

    def _retry(self, deadline: float | None) -> bool:
        """Try once to reach the publisher again; return whether it is there."""
        found = self._connection.retry(deadline)
        if not self._usable:
            self._leave()
        return found

    def _reach(self) -> None:
        self._connection.reach()
        if not self._usable:
            self._leave()

    # --- One at a time ----------------------------------------------------------------------------

    def _begin(self) -> _Use:
        """Start to use the subscriber alone, for as long as what is returned lives."""
        if not self._usable:
            self._check_process()
            self._connection.check_open()
        use = self._try_use()
        if use is None:
            raise InUseError(
                f"another thread or task is waiting on this subscriber of stream "
                f"{self._connection.name!r}: subscribe once more for this one"
            )
        return use

    def _try_use(self) -> _Use | None:
        use = _Use()
        with self._guard:
            if self._use() is not None:
                return None
            self._use = weakref.ref(use)
        return use

    def _leave(self) -> None:
        # Whoever uses the session while this is called leaves at the end of that.
        while self._connection.session is not None:
            use = self._try_use()
            try:
                if use is None:
                    return
                self._connection.close()
            finally:
                del use

    def _check_process(self) -> None:
        check_process(self._pid, f"the subscriber of stream {self._connection.name!r}")

    def _abandon(self) -> None:
        self._usable = False


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
