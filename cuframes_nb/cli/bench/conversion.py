"""From frames to pictures and to the inputs of networks, beside other ways to do it.

Content is random. Frames and results take turns over more memory than caches hold. On a GPU the
time is that of the GPU alone: calls are queued while a kernel keeps it busy, and timed between two
events.
"""

from __future__ import annotations

import contextlib
import functools
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

import cuframes_nb as cf
from cuframes_nb.cli.bench.converters import (
    FILL,
    MEAN,
    SIDE,
    STD,
    batchers,
    to_pictures,
    to_tensors,
)
from cuframes_nb.cli.bench.plan import Plan, Result, Step, new_key

__all__ = ["conversion"]

SIZES: Final = {"1080p": (1920, 1080), "4K": (3840, 2160), "8K": (7680, 4320)}
CAMERAS: Final = 16
CACHE_BYTES: Final = {"cuda": 250_000_000, "host": 50_000_000}

_FEWEST: Final = 3
"""Calls that a median is taken of."""

_OURS: Final = "cuframes_nb"
_INPUT: Final = f"1080p to {SIDE}x{SIDE} float16 letterbox"

_OPTIONS: Final[dict[str, Any]] = {"mean": MEAN, "std": STD, "fill": FILL}

_SPIN: Final = """
extern "C" __global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) { }
}
"""


def conversion(plan: Plan) -> list[Step]:
    """Return the measurements of conversions."""
    timer = _GpuTimer(plan) if plan.memory == "cuda" else _HostTimer(plan)
    sizes = SIZES if plan.memory == "cuda" else {"1080p": SIZES["1080p"]}
    steps: list[Step] = []
    if plan.memory == "cuda":
        steps.append(("copying on the device", functools.partial(_copying, timer)))
    steps += [
        (f"{name} to RGB", functools.partial(_pictures, plan, timer, name, size))
        for name, size in sizes.items()
    ]
    steps.append(("inputs of networks", functools.partial(_tensors, plan, timer)))
    steps.append((f"{CAMERAS} cameras", functools.partial(_batches, plan, timer)))
    return steps


# --- What is measured -----------------------------------------------------------------------------


def _copying(timer: Any) -> list[Result]:
    """Measure what copying takes: no conversion can move its bytes in less."""
    source = timer.xp.full(256_000_000, 7, np.uint8)
    target = timer.xp.empty_like(source)
    taken = timer(lambda _: timer.xp.copyto(target, source), 10)
    timer.bandwidth = 2 * source.nbytes / taken.device
    return [{"conversion": "copy of 256 MB", "library": "cupy", **_columns(taken)}]


def _pictures(plan: Plan, timer: Any, name: str, size: tuple[int, int]) -> list[Result]:
    moved = size[0] * size[1] * 9 // 2  # 1.5 bytes a pixel in, 3 out
    with _frames(plan, size) as frames:
        outs = [frames[0].rgb() for _ in range(_turns(plan, size[0] * size[1] * 3))]
        ways: dict[str, Callable[[int], Any]] = {
            _OURS: lambda i: frames[i % len(frames)].rgb(out=outs[i % len(outs)])
        }
        for library, convert in to_pictures(timer.xp).items():
            ways[library] = functools.partial(_in_turn, convert, frames)
        return _rows(timer, f"{name} to RGB uint8", ways, moved)


def _tensors(plan: Plan, timer: Any) -> list[Result]:
    with _frames(plan, SIZES["1080p"]) as frames:
        outs = [frames[0].tensor((SIDE, SIDE), **_OPTIONS) for _ in range(8)]
        ways: dict[str, Callable[[int], Any]] = {
            _OURS: lambda i: frames[i % len(frames)].tensor(
                (SIDE, SIDE), out=outs[i % len(outs)], **_OPTIONS
            )
        }
        for library, convert in to_tensors(timer.xp).items():
            ways[library] = functools.partial(_in_turn, convert, frames)
        return _rows(timer, _INPUT, ways, None)


def _batches(plan: Plan, timer: Any) -> list[Result]:
    with _frames(plan, SIZES["1080p"]) as frames:
        few = max(CAMERAS, len(frames) // CAMERAS * CAMERAS)
        batches = [
            [frames[i % len(frames)] for i in range(start, start + CAMERAS)]
            for start in range(0, few, CAMERAS)
        ]
        out = cf.stack(batches[0], (SIDE, SIDE), **_OPTIONS)
        parts = [out[i : i + 1] for i in range(CAMERAS)]

        def one_by_one(i: int) -> None:
            for frame, part in zip(batches[i % len(batches)], parts, strict=True):
                frame.tensor((SIDE, SIDE), out=part, **_OPTIONS)

        ways: dict[str, Callable[[int], Any]] = {
            _OURS: lambda i: cf.stack(batches[i % len(batches)], (SIDE, SIDE), out=out, **_OPTIONS),
            f"{_OURS}, one by one": one_by_one,
        }
        for library, convert in batchers(timer.xp).items():
            ways[library] = functools.partial(_in_turn, convert, batches)
        return _rows(timer, f"{CAMERAS} x {_INPUT}", ways, None)


def _in_turn(convert: Callable[[Any], Any], sources: Sequence[Any], i: int) -> Any:
    return convert(sources[i % len(sources)])


def _rows(
    timer: Any, name: str, ways: dict[str, Callable[[int], Any]], moved: int | None
) -> list[Result]:
    """Measure each way; say how long it takes beside ours, and beside copying as many bytes."""
    rows: list[Result] = []
    ours = None
    for library, act in ways.items():
        taken = timer(act, 100 if library == _OURS else 20)
        ours = ours or taken.device
        row = {"conversion": name, "library": library, **_columns(taken)}
        row["times_ours"] = round(taken.device / ours, 2)
        if moved is not None and timer.bandwidth:
            row["times_copying"] = round(taken.device / (moved / timer.bandwidth), 2)
        rows.append(row)
    return rows


# --- How it is measured ---------------------------------------------------------------------------


class _Taken(NamedTuple):
    """Seconds of one call: until it is done, and until it returns."""

    device: float
    host: float


def _columns(taken: _Taken) -> Result:
    return {
        "time_p50_us": round(taken.device * 1e6, 2),
        "host_p50_us": round(taken.host * 1e6, 2),
    }


class _HostTimer:
    """Measures calls that are done when they return."""

    bandwidth = 0.0

    def __init__(self, plan: Plan) -> None:
        self.xp = np
        self._most, self._seconds = (15, 0.5) if plan.quick else (35, 10.0)

    def __call__(self, act: Callable[[int], Any], calls: int) -> _Taken:
        act(0)
        taken: list[float] = []
        while len(taken) < min(calls, self._most):
            if len(taken) >= _FEWEST and sum(taken) > self._seconds:
                break
            start = time.perf_counter()
            act(len(taken))
            taken.append(time.perf_counter() - start)
        middle = statistics.median(taken)
        return _Taken(middle, middle)


class _GpuTimer:
    """Measures what calls take of the GPU, and of the host."""

    bandwidth = 0.0  #: bytes a second, once measured

    def __init__(self, plan: Plan) -> None:
        with plan.publisher() as publisher:
            self.xp: Any = publisher.xp
        self._repeats = 5 if plan.quick else 15
        self._spin = self.xp.RawKernel(_SPIN, "spin")

    def __call__(self, act: Callable[[int], Any], calls: int) -> _Taken:
        for i in range(3):
            act(i)
        self.xp.cuda.get_current_stream().synchronize()
        runs = [self._run(act, calls, run * calls) for run in range(self._repeats)]
        return _Taken(*(statistics.median(column) for column in zip(*runs, strict=True)))

    def _run(self, act: Callable[[int], Any], calls: int, first: int) -> _Taken:
        begin, end = self.xp.cuda.Event(), self.xp.cuda.Event()
        start = time.perf_counter()
        for i in range(calls):
            act(first + i)
        host = (time.perf_counter() - start) / calls
        self.xp.cuda.get_current_stream().synchronize()
        # About as long as queueing takes, twice, at 2 GHz: so the GPU never waits for the host.
        self._spin((1,), (1,), (np.int64(4e9 * host * calls + 1e5),))
        begin.record()
        for i in range(calls):
            act(first + i)
        end.record()
        end.synchronize()
        return _Taken(self.xp.cuda.get_elapsed_time(begin, end) / 1e3 / calls, host)


@contextlib.contextmanager
def _frames(plan: Plan, size: tuple[int, int]) -> Iterator[list[cf.Frame]]:
    """Give so many frames of random content that no cache holds them all."""
    width, height = size
    noise = np.random.default_rng(1).integers(0, 256, (height * 3 // 2, width), dtype=np.uint8)
    key = new_key()
    with (
        cf.Publisher(key, width=width, height=height, memory=plan.memory) as publisher,
        cf.subscribe(key) as subscriber,
    ):
        publisher.write(noise)
        with subscriber.next(10) as frame:
            yield [frame.copy() for _ in range(_turns(plan, width * height * 3 // 2))]


def _turns(plan: Plan, nbytes: int) -> int:
    return max(2, -(-CACHE_BYTES[plan.memory] // nbytes))
