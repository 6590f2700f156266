"""From publish to the frame in hand, at a steady rate; and what that costs both sides."""

from __future__ import annotations

import functools
import os
import time
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

import cuframes_nb as cf
from cuframes_nb.cli.bench.contender import Contender, Sightings
from cuframes_nb.cli.bench.pacing import Phase, busily, run_phase, sleepily
from cuframes_nb.cli.bench.peers import peers
from cuframes_nb.cli.bench.plan import Plan, Result, Step, percentiles
from cuframes_nb.errors import RingFullError

__all__ = ["OURS", "SPINNING", "cpu_share", "draw", "steps"]

OURS: Final = "cuframes_nb"
SPIN_US: Final = 400
SPINNING: Final = f"{OURS}, spin_us={SPIN_US}"

_MOST_FRAMES: Final = 500
"""Of one rate, which is enough for a 99th percentile."""


def steps(plan: Plan) -> list[Step]:
    """Return what is to be measured: ours first."""
    work: list[Step] = [
        (f"{OURS}, {n} subscribers", functools.partial(_measure_ours, plan, n))
        for n in plan.subscribers
    ]
    work += [
        (f"{SPINNING}, {n} subscribers", functools.partial(_measure_ours, plan, n, SPIN_US))
        for n in plan.subscribers
        if n < (os.cpu_count() or 1)  # each keeps a core busy for a part of the time
    ]
    work += [
        (f"{peer.name}, {n} subscribers", functools.partial(_measure_peer, peer, plan, n))
        for peer in peers(plan.memory)
        for n in plan.peer_subscribers
    ]
    return work


class _Ours(Contender):
    """This package."""

    def __init__(self, plan: Plan, subscribers: int, spin_us: int) -> None:
        super().__init__(subscribers)
        self.name = SPINNING if spin_us else OURS
        self._publisher = plan.publisher()
        for _ in range(subscribers):
            self.start(_subscriber, self._publisher.key, spin_us)
        self.publish(-1)  # loads what the first frame loads
        self.wait_until_ready()

    def publish(self, number: int) -> int:
        start = time.monotonic_ns()
        try:
            slot = self._publisher.acquire()
        except RingFullError:
            return time.monotonic_ns() - start
        acquired = time.monotonic_ns()
        draw(slot, number)
        drawn = time.monotonic_ns()
        self._publisher.publish(slot, pts_ns=number)  # so that a frame says which it is
        return time.monotonic_ns() - drawn + acquired - start

    def stop(self) -> None:
        self._publisher.close()

    def __exit__(self, *exc_info: object) -> None:
        self._publisher.close()
        super().__exit__(*exc_info)


def draw(slot: cf.WritableSlot, number: int) -> None:
    """Write the frame: on a GPU all of it by one kernel; on the host a little, to be no part."""
    if slot.xp.__name__ == "cupy":
        slot.y.fill(number & 255)
    else:
        slot.y[0, :64] = number & 255


def _subscriber(results: Any, key: str, spin_us: int) -> None:
    sightings = Sightings()
    with cf.subscribe(key, reconnect=False, spin_us=spin_us) as subscriber:
        results.put("ready")
        for frame in subscriber:
            sightings.note(frame.pts_ns, frame.published_ns)
    results.put(sightings.array())


def _measure_ours(plan: Plan, subscribers: int, spin_us: int = 0) -> list[Result]:
    with _Ours(plan, subscribers, spin_us) as contender:
        return _run(contender, plan)


def _measure_peer(peer: Any, plan: Plan, subscribers: int) -> list[Result]:
    with peer(subscribers) as contender:
        return _run(contender, plan)


def _run(contender: Contender, plan: Plan) -> list[Result]:
    number = 0
    phases = []
    for rate in plan.rates:
        frames = min(int(rate * plan.seconds), _MOST_FRAMES)
        pace = busily if plan.busy else sleepily
        phases.append(run_phase(contender, rate, number, frames, pace))
        number = phases[-1].last + 1
    seen = contender.finish()
    return [_result(contender, phase, seen) for phase in phases]


def _result(contender: Contender, phase: Phase, seen: list[NDArray[np.int64]]) -> Result:
    counted = [rows[(rows[:, 0] >= phase.first) & (rows[:, 0] <= phase.last)] for rows in seen]
    frames = phase.last - phase.first + 1
    return {
        "library": contender.name,
        "rate_fps": phase.rate,
        "subscribers": contender.subscribers,
        **percentiles(np.concatenate([rows[:, 1] for rows in counted]), "latency"),
        **percentiles(phase.costs, "publish"),
        "delivered_percent": round(100 * float(np.mean([len(r) for r in counted])) / frames, 1),
        "publisher_cpu_percent": round(100 * phase.cpu, 1),
        "subscriber_cpu_percent": round(100 * float(np.mean([cpu_share(r) for r in counted])), 1),
    }


def cpu_share(rows: NDArray[np.int64]) -> float:
    """Return the share of one core that a process used between its first and last sighting."""
    if len(rows) < 2:
        return 0.0
    _, _, wall, cpu = rows[-1] - rows[0]
    return float(cpu / wall)
