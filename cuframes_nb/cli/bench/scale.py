"""What each further subscriber costs the publisher, and whether all of them see whole frames."""

from __future__ import annotations

import functools
import threading
import time
from typing import Any, Final

import cuframes_nb as cf
from cuframes_nb.cli.bench.contender import Contender
from cuframes_nb.cli.bench.pacing import Phase, busily, run_phase, sleepily
from cuframes_nb.cli.bench.plan import Plan, Result, Step, percentiles
from cuframes_nb.errors import RingFullError

__all__ = ["steps"]

_RATE: Final = 60
_PROCESSES: Final = 4
"""At most, to have the subscribers in."""

_RING: Final = 8
_SAMPLED: Final = (slice(None, None, 60), slice(None, None, 64))
"""Of each frame, what is looked at: some of its pixels from top to bottom."""


def steps(plan: Plan) -> list[Step]:
    """Return the measurements, each with more subscribers."""
    first: list[Result] = []  # what one costs, once it is known
    return [
        (f"{count} subscribers", functools.partial(_measure, plan, count, first))
        for count in plan.crowds
    ]


class _Crowd(Contender):
    """A publisher that fills whole frames, and subscribers in a few processes."""

    name = "a crowd of subscribers"

    def __init__(self, plan: Plan, subscribers: int) -> None:
        super().__init__(subscribers)
        self.publisher = plan.publisher(ring_size=_RING)
        processes = min(_PROCESSES, subscribers)
        for index in range(processes):
            share = len(range(index, subscribers, processes))
            self.start(_read_in_threads, self.publisher.key, share)
        self.publish(0)
        self.wait_until_ready()

    def publish(self, number: int) -> int:
        start = time.perf_counter_ns()
        try:
            slot = self.publisher.acquire()
        except RingFullError:
            return time.perf_counter_ns() - start
        acquired = time.perf_counter_ns()
        slot.array.fill(number & 255)
        filled = time.perf_counter_ns()
        self.publisher.publish(slot, pts_ns=number)
        return time.perf_counter_ns() - filled + acquired - start

    def stop(self) -> None:
        self.publisher.close()

    def __exit__(self, *exc_info: object) -> None:
        self.publisher.close()
        super().__exit__(*exc_info)


def _measure(plan: Plan, subscribers: int, first: list[Result]) -> list[Result]:
    with _Crowd(plan, subscribers) as crowd:
        pace = busily if plan.busy else sleepily
        phase = run_phase(crowd, _RATE, 1, int(plan.seconds * _RATE), pace)
        dropped = crowd.publisher.stats.dropped
        counts = [count for child in crowd.finish() for count in child]
    return [_result(subscribers, phase, dropped, counts, first)]


def _result(
    subscribers: int, phase: Phase, dropped: int, counts: list[Any], first: list[Result]
) -> Result:
    """Return the line; `first` keeps that of the smallest crowd, to compare the others with."""
    frames, torn = (sum(column) for column in zip(*counts, strict=True))
    row: Result = {
        "subscribers": subscribers,
        **percentiles(phase.costs, "publish"),
        "cpu_us": round(1e6 * phase.cpu / phase.rate, 2),
        "each_further_us": None,
        "each_further_cpu_us": None,
        "dropped": dropped,
        "delivered_percent": round(100 * frames / (subscribers * phase.last), 1),
        "looked_at": frames,
        "torn": torn,
    }
    if not first:
        first.append(row)
        return row
    more = subscribers - first[0]["subscribers"]
    for column, total in (("each_further_us", "publish_p50_us"), ("each_further_cpu_us", "cpu_us")):
        row[column] = round((row[total] - first[0][total]) / more, 2)
    return row


def _read_in_threads(results: Any, key: str, count: int) -> None:
    seen: list[tuple[int, int]] = []
    subscribers = [cf.subscribe(key, reconnect=False) for _ in range(count)]
    threads = [threading.Thread(target=_read, args=(each, seen)) for each in subscribers]
    for thread in threads:
        thread.start()
    results.put("ready")
    for thread in threads:
        thread.join()
    results.put(seen)


def _read(subscriber: cf.Subscriber, seen: list[tuple[int, int]]) -> None:
    """Look at every frame that comes, and note how many there were and how many were torn."""
    frames = torn = 0
    with subscriber:
        for frame in subscriber:
            if frame.pts_ns > 0:  # not the one before the first
                frames += 1
                torn += _is_torn(frame)
    seen.append((frames, torn))


def _is_torn(frame: cf.Frame) -> bool:
    sample = frame.array[_SAMPLED]
    if hasattr(sample, "get"):
        sample = sample.get()
    return bool((sample != frame.pts_ns & 255).any())
