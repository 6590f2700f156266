"""The reading end of a GStreamer pipeline's stream."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import weakref
from typing import Final

from cuframes_nb._api.frame import Frame
from cuframes_nb._api.info import StreamInfo
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._core.stats import SubscriberStats
from cuframes_nb._os.forks import check_process
from cuframes_nb._runtime.leases import Lease
from cuframes_nb.bridges.gst.describing import pipeline_info
from cuframes_nb.bridges.gst.inbox import LEASE_LIMIT, Arrival, Facts, Inbox
from cuframes_nb.bridges.gst.memory import Importer
from cuframes_nb.bridges.gst.pump import Place, Pump, nobody_listens
from cuframes_nb.errors import ClosedError, FrameTimeout, StreamNotFoundError

__all__ = ["GstSubscriber"]

_STRICT_DEPTH: Final = 8
"""Frames that wait for somebody who wants each one."""

_LEAVE_SECONDS: Final = 1.0
"""For the thread to end where it has nothing to wait for; it takes less than a millisecond."""

_FIRST_FRAME_SECONDS: Final = 0.5
"""For the first frame of a pipeline that is there, for somebody who does not want to wait."""


class GstSubscriber(Subscriber):
    """Reads the frames of a ``cudaipcsink``; a `Subscriber` in every way that users see.

    A thread of its own receives each frame as it comes and gives it back when nobody holds it.

    Parameters
    ----------
    place
        Where the pipeline is.
    importer
        What maps its memory.
    mode
        ``"newest"`` or ``"strict"``.
    reconnect
        Whether to wait for the next pipeline when this one is gone.
    timeout
        Seconds to wait for its first frame, None for ever.
    """

    def __init__(
        self, place: Place, importer: Importer, mode: str, *, reconnect: bool, timeout: float | None
    ) -> None:
        self._place = place
        self._word = mode
        self._maker = os.getpid()
        self._inbox = Inbox(place.name, 1 if mode == "newest" else _STRICT_DEPTH)
        self._pump = Pump(place, importer, self._inbox, reconnect=reconnect)
        self._facts: Facts
        self._finalizer = weakref.finalize(self, _stop, self._pump, self._maker)
        self._finalizer.atexit = False  # the kernel closes it all
        self._pump.start()
        try:
            self._wait_for_first(timeout)
        except BaseException:
            self._finalizer()
            self._pump.join(_LEAVE_SECONDS)
            raise

    # --- Frames -----------------------------------------------------------------------------------

    def next(self, timeout: float | None = None) -> Frame:
        """Return the next frame: the newest not yet seen, or with ``mode="strict"`` the next one.

        As ``Subscriber.next``. A sink sends only its newest frame, so with ``"strict"``, too, those
        are missed that came while this process could not run.
        """
        self._check_process()
        deadline = None if timeout is None else time.monotonic() + timeout
        with self._inbox.changed:
            while True:
                taken = self._inbox.take(newest=False)
                if taken is not None:
                    return self._frame(*taken)
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise FrameTimeout(
                        f"no new frame of stream {self._place.name!r} came within {timeout:g} s"
                        f"{self._inbox.why}"
                    )
                self._inbox.wait(left)

    def latest(self) -> Frame | None:
        """Return the newest frame, seen before or not; None before the first.

        As ``Subscriber.latest``.
        """
        self._check_process()
        with self._inbox.changed:
            taken = self._inbox.take(newest=True)
            return None if taken is None else self._frame(*taken)

    def recent(self, limit: int | None = None) -> list[Frame]:
        """Return the frames that wait here, the oldest first, or the newest if all were seen.

        As ``Subscriber.recent``; those that are returned count as seen.
        """
        self._check_process()
        frames: list[Frame] = []
        with self._inbox.changed:
            count = len(self._inbox.waiting) or 1
            for _ in range(count):
                if self._inbox.held >= LEASE_LIMIT:
                    break
                taken = self._inbox.take(newest=count == 1)
                if taken is not None:
                    frames.append(self._frame(*taken))
        return frames if limit is None else frames[-limit:]

    async def _next_async(self) -> Frame:
        self._check_process()
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # a loop that was closed meanwhile
                loop.call_soon_threadsafe(ready.set)

        with self._inbox.listening(wake):
            while True:
                ready.clear()
                with self._inbox.changed:
                    taken = self._inbox.take(newest=False)
                if taken is not None:
                    return self._frame(*taken)
                await ready.wait()

    # --- The subscription -------------------------------------------------------------------------

    @property
    def stats(self) -> SubscriberStats:
        """A snapshot of the counters."""
        self._check_process()
        inbox = self._inbox
        with inbox.changed:
            return SubscriberStats(
                received=inbox.received,
                skipped=inbox.skipped,
                retries=0,
                connects=inbox.connects,
                epoch=self._now.epoch if inbox.connected else 0,
                leases=inbox.held,
                lease_limit=LEASE_LIMIT,
            )

    @property
    def info(self) -> StreamInfo:
        """What is known about the stream; the last that was known while the pipeline is away."""
        self._check_process()
        facts, inbox = self._now, self._inbox
        state = "closed" if self.closed else "live" if inbox.connected else "waiting"
        return pipeline_info(
            self._place.key,
            self._place.path,
            facts.ring,
            pid=facts.pid,
            epoch=facts.epoch,
            state=state,
            published=inbox.arrived,
            last_ns=inbox.last_ns,
            reason=facts.reason,
        )

    @property
    def address(self) -> str:
        """What `subscribe` takes to attach to the stream once more."""
        return f"gst://{self._place.path}"

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._inbox.closing

    def close(self) -> None:
        """Leave the stream. Idempotent; frames and arrays that are held stay valid.

        They are given back when they go, and the connection lasts until then. A thread or task that
        waits on this subscriber wakes with a `ClosedError`.
        """
        self._finalizer()
        if os.getpid() != self._maker:
            return
        self._inbox.clear()
        with self._inbox.changed:
            held = self._inbox.held
        if not held:
            self._pump.join(_LEAVE_SECONDS)

    def __repr__(self) -> str:
        state = "closed" if self.closed else "connected" if self._inbox.connected else "waiting"
        return f"<Subscriber {self._place.name!r} {self._word}, {state}>"

    # --- Inside -----------------------------------------------------------------------------------

    @property
    def _now(self) -> Facts:
        facts = self._inbox.facts
        assert facts is not None  # noqa: S101  nobody has a subscriber before its first frame
        return facts

    def _frame(self, arrival: Arrival, lease: Lease) -> Frame:
        return Frame(self._place.key, arrival.facts.ring, arrival.record, arrival.planes, lease)

    def _wait_for_first(self, timeout: float | None) -> None:
        deadline = None if timeout is None else time.monotonic() + timeout
        least = time.monotonic() + _FIRST_FRAME_SECONDS
        with self._inbox.changed:
            while self._inbox.facts is None:
                if self._inbox.closing:
                    raise ClosedError(f"stream {self._place.name!r} was left")
                self._inbox.check()
                until = deadline
                if until is not None and (self._pump.found or not self._pump.attempts):
                    until = max(until, least)
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    raise self._not_found(timeout)
                self._inbox.wait(left)

    def _not_found(self, timeout: float | None) -> StreamNotFoundError | FrameTimeout:
        path = self._place.path
        if self._pump.found:
            return FrameTimeout(
                f"a pipeline listens at {path} and sent no frame within "
                f"{max(timeout or 0.0, _FIRST_FRAME_SECONDS):g} s: it may be paused, or wait for "
                f"its source{self._inbox.why}"
            )
        return nobody_listens(path)

    def _check_process(self) -> None:
        check_process(self._maker, f"the subscriber of stream {self._place.name!r}")


def _stop(pump: Pump, pid: int) -> None:
    """Leave, unless this is a forked child, which has nothing to leave."""
    if os.getpid() == pid:
        pump.stop()
