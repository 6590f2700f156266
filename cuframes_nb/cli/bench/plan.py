"""How much is measured."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self, TypeAlias

import numpy as np

import cuframes_nb as cf

__all__ = ["HEIGHT", "ROWS", "WIDTH", "Plan", "Result", "Step", "new_key", "percentiles"]

WIDTH: Final = 1920
HEIGHT: Final = 1080
ROWS: Final = HEIGHT * 3 // 2

Result: TypeAlias = dict[str, Any]
"""One line of a table."""

Step: TypeAlias = tuple[str, Callable[[], list[Result]]]
"""Something to measure: what it is called, and what does it."""


class Plan(NamedTuple):
    """What to measure, and how often."""

    memory: str  #: ``"host"`` or ``"cuda"``
    memory_reason: str
    seconds: float  #: of each rate
    rates: tuple[int, ...]
    subscribers: tuple[int, ...]
    peer_subscribers: tuple[int, ...]
    crowds: tuple[int, ...]  #: of subscribers, to see what each further one costs
    repeats: int  #: of single calls
    quick: bool
    busy: bool  #: whether the publisher keeps its core busy between frames

    @classmethod
    def make(cls, memory: str, *, quick: bool, busy: bool = False) -> Self:
        """Find out what memory there is, and plan."""
        with cf.Publisher(new_key(), width=64, height=64, memory=memory) as publisher:
            info = publisher.info
        kind = "host" if info.memory == "host" else "cuda"
        if quick:
            return cls(
                kind, info.memory_reason, 0.5, (60, 240), (1, 4), (1,), (1, 4), 300, quick, busy
            )
        many = (1, 4, 16)
        return cls(
            kind, info.memory_reason, 3.0, (60, 240, 1000), many, many, (*many, 64), 3000, quick,
            busy,
        )  # fmt: skip

    def publisher(self, ring_size: int = 4) -> cf.Publisher:
        """Return a publisher of 1080p NV12."""
        return cf.Publisher(
            new_key(), width=WIDTH, height=HEIGHT, memory=self.memory, ring_size=ring_size
        )


def new_key() -> str:
    """Return a name that no other stream has."""
    return f"bench-{uuid.uuid4().hex[:12]}"


def percentiles(nanoseconds: Any, prefix: str) -> Result:
    """Return median and 99th percentile in microseconds, under names that start with `prefix`."""
    if not len(nanoseconds):
        return {f"{prefix}_p50_us": None, f"{prefix}_p99_us": None}
    p50, p99 = np.percentile(np.asarray(nanoseconds), (50, 99)) / 1e3
    return {f"{prefix}_p50_us": round(float(p50), 2), f"{prefix}_p99_us": round(float(p99), 2)}
