"""Many cameras in one process: what arrives, and what it takes."""

from __future__ import annotations

import asyncio
import functools
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import numpy as np

import cuframes_nb as cf
from cuframes_nb.cli.bench.contender import Contender, Sightings
from cuframes_nb.cli.bench.latency import cpu_share, draw
from cuframes_nb.cli.bench.pacing import busily, run_phase, sleepily
from cuframes_nb.cli.bench.plan import Plan, Result, Step, percentiles
from cuframes_nb.errors import RingFullError

__all__ = ["steps"]

CAMERAS: Final = 16
_RATE: Final = 60

_Read: TypeAlias = Callable[[Sequence[cf.Subscriber], Sightings], None]
"""Notes the frames of several subscribers until the last stream ends."""


def steps(plan: Plan) -> list[Step]:
    """Return the measurements: a thread for each camera, and one for all of them."""
    ways: dict[str, _Read] = {"a thread each": _in_threads, "async for": _in_tasks}
    return [
        (f"{CAMERAS} cameras, {name}", functools.partial(_measure, plan, name, read))
        for name, read in ways.items()
    ]


class _Cameras(Contender):
    """Publishers in this process, their subscribers in one other."""

    name = "cameras"

    def __init__(self, plan: Plan, read: _Read) -> None:
        super().__init__(1)
        self.publishers = [plan.publisher() for _ in range(CAMERAS)]
        self.start(_subscriber, [publisher.key for publisher in self.publishers], read)
        self.wait_until_ready()

    def publish(self, number: int) -> int:
        publisher = self.publishers[number % CAMERAS]
        start = time.perf_counter_ns()
        try:
            slot = publisher.acquire()
        except RingFullError:
            return time.perf_counter_ns() - start
        draw(slot, number)
        publisher.publish(slot, pts_ns=number)
        return time.perf_counter_ns() - start

    def stop(self) -> None:
        for publisher in self.publishers:
            publisher.close()

    def __exit__(self, *exc_info: object) -> None:
        self.stop()
        super().__exit__(*exc_info)


def _measure(plan: Plan, name: str, read: _Read) -> list[Result]:
    with _Cameras(plan, read) as cameras:
        pace = busily if plan.busy else sleepily
        rate = CAMERAS * _RATE
        phase = run_phase(cameras, rate, 0, int(plan.seconds * rate), pace)
        dropped = sum(publisher.stats.dropped for publisher in cameras.publishers)
        (rows,) = cameras.finish()
    rows = rows[np.argsort(rows[:, 2])]
    rows = rows[(rows[:, 0] >= phase.first) & (rows[:, 0] <= phase.last)]
    return [
        {
            "cameras": f"{CAMERAS} of 1080p at {_RATE} fps, {name}",
            **percentiles(rows[:, 1], "latency"),
            "dropped": dropped,
            "delivered_percent": round(100 * len(rows) / len(phase.costs), 1),
            "publisher_cpu_percent": round(100 * phase.cpu, 1),
            "subscriber_cpu_percent": round(100 * cpu_share(rows), 1),
        }
    ]


def _subscriber(results: Any, keys: Sequence[str], read: _Read) -> None:
    sightings = Sightings()
    subscribers = [cf.subscribe(key, reconnect=False) for key in keys]
    results.put("ready")
    read(subscribers, sightings)
    results.put(sightings.array())


def _in_threads(subscribers: Sequence[cf.Subscriber], sightings: Sightings) -> None:
    def read(subscriber: cf.Subscriber) -> None:
        with subscriber:
            for frame in subscriber:
                sightings.note(frame.pts_ns, frame.published_ns)

    threads = [threading.Thread(target=read, args=(each,)) for each in subscribers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _in_tasks(subscribers: Sequence[cf.Subscriber], sightings: Sightings) -> None:
    async def read(subscriber: cf.Subscriber) -> None:
        with subscriber:
            async for frame in subscriber:
                sightings.note(frame.pts_ns, frame.published_ns)

    async def read_all() -> None:
        await asyncio.gather(*map(read, subscribers))

    asyncio.run(read_all())
