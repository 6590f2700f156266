"""Publishing at a steady rate, and what that costs."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, NamedTuple, TypeAlias

from cuframes_nb.cli.bench.contender import Contender

__all__ = ["Pace", "Phase", "busily", "run_phase", "sleepily"]

Pace: TypeAlias = Callable[[float], None]
"""Waits until a time of ``time.monotonic()``."""

_NAP_SECONDS: Final = 50e-6
_LAST_SPIN_SECONDS: Final = 100e-6

_WARM_SECONDS: Final = 0.25
"""At the start of each rate, not counted."""


class Phase(NamedTuple):
    """One rate, as the publisher saw it."""

    rate: int
    first: int  #: number of the first frame that counts
    last: int
    costs: list[int]  #: of each frame in nanoseconds
    cpu: float  #: share of one core


def run_phase(contender: Contender, rate: int, number: int, frames: int, pace: Pace) -> Phase:
    """Publish at one rate: frames from `number` to warm up, then `frames` that count."""
    warm = max(5, int(rate * _WARM_SECONDS))
    start = time.monotonic()
    _paced(contender, rate, start, range(number, number + warm), pace)
    first = number + warm
    cpu, wall = time.process_time(), time.monotonic()
    start += warm / rate
    costs = _paced(contender, rate, start, range(first, first + frames), pace)
    share = (time.process_time() - cpu) / (time.monotonic() - wall)
    return Phase(rate, first, first + frames - 1, costs, share)


def sleepily(until: float) -> None:
    """Wait as one does who waits for a camera: caches and clocks grow cold."""
    time.sleep(max(0.0, until - time.monotonic()))


def busily(until: float) -> None:
    """Wait as one who is at work between frames, and lets other threads work, too."""
    while until - time.monotonic() > _LAST_SPIN_SECONDS:
        time.sleep(_NAP_SECONDS)
    while time.monotonic() < until:
        pass


def _paced(contender: Contender, rate: int, start: float, numbers: range, pace: Pace) -> list[int]:
    costs = []
    for index, number in enumerate(numbers):
        pace(start + index / rate)
        costs.append(contender.publish(number))
    return costs
