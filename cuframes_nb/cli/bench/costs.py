"""Single calls, attaching, memory."""

from __future__ import annotations

import functools
import gc
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import cuframes_nb as cf
from cuframes_nb.cli._maps import regions
from cuframes_nb.cli._signals import deaf_children
from cuframes_nb.cli.bench.contender import SPAWN
from cuframes_nb.cli.bench.plan import ROWS, WIDTH, Plan, Result, Step, percentiles

__all__ = ["attaching", "calls", "memory"]

_ATTACH: Final = """
import json, sys, time
def attach():
    start = time.monotonic_ns()
    with cf.subscribe(sys.argv[1]) as subscriber:
        frame = subscriber.next(10)
        frame.y
        return time.monotonic_ns() - start
start = time.monotonic_ns()
import cuframes_nb as cf
imported = time.monotonic_ns()
first = attach()
done = time.monotonic_ns()
print(json.dumps([imported - start, first, done, [attach() for _ in range(int(sys.argv[2]))]]))
"""

_IMPORT: Final = """
import sys, time
start = time.perf_counter_ns()
__import__(sys.argv[1])
print(time.perf_counter_ns() - start)
"""

_SPIN: Final = """
extern "C" __global__ void spin(long long cycles) {
  long long start = clock64();
  while (clock64() - start < cycles) { }
}
"""


# --- Single calls ---------------------------------------------------------------------------------


def calls(plan: Plan) -> list[Step]:
    """Return the measurements of single calls, within one process."""
    work: list[Step] = [("single calls", functools.partial(_calls, plan))]
    if plan.memory == "cuda":
        work.append(("publishing behind a long kernel", functools.partial(_behind_kernel, plan)))
    return work


def _calls(plan: Plan) -> list[Result]:
    with plan.publisher() as publisher, cf.subscribe(publisher.key) as subscriber:
        times: dict[str, list[int]] = {}
        _publish_and_take(publisher, subscriber, 50, {})
        _publish_and_take(publisher, subscriber, plan.repeats, times)
        for _ in range(plan.repeats):
            frame = _timed(times, "latest(), the same frame again", subscriber.latest)
            frame.release()
        for _ in range(plan.repeats):
            publisher.publish(publisher.acquire())
            _await_completion(publisher)
            look = functools.partial(_look, subscriber)
            _timed(times, "latest() + .y + release(), a new frame ready", look)
    times["send() to a process that sleeps"] = _wake_times(plan.repeats // 10)
    return [{"call": name, **percentiles(taken, "time")} for name, taken in times.items()]


def _look(subscriber: cf.Subscriber) -> None:
    frame = subscriber.latest()
    assert frame is not None  # noqa: S101  one was just published
    frame.y  # noqa: B018  an array that is made and dropped
    frame.release()


def _wake_times(repeats: int) -> list[int]:
    """Return what the kernel takes to wake a process: part of publishing to each subscriber."""
    reader, writer = SPAWN.Pipe()  # two sockets, as those of a subscriber
    sleeper = SPAWN.Process(target=_sleep_on, args=(reader, ready := SPAWN.Event()), daemon=True)
    with deaf_children():
        sleeper.start()
    ready.wait(30)
    taken = []
    for _ in range(repeats):
        time.sleep(0.002)
        start = time.perf_counter_ns()
        os.write(writer.fileno(), b"x")
        taken.append(time.perf_counter_ns() - start)
    sleeper.kill()
    sleeper.join()
    reader.close()
    writer.close()
    return taken


def _sleep_on(reader: Any, ready: Any) -> None:
    ready.set()
    while os.read(reader.fileno(), 1):
        pass


def _publish_and_take(
    publisher: cf.Publisher, subscriber: cf.Subscriber, repeats: int, times: dict[str, list[int]]
) -> None:
    for number in range(repeats):
        slot = _timed(times, "acquire()", publisher.acquire)
        _timed(times, "publish(slot), 1 subscriber", functools.partial(publisher.publish, slot))
        take = subscriber.next if number % 2 else subscriber.latest
        _await_completion(publisher)
        frame = _timed(times, f"{take.__name__}(), a new frame ready", take)
        _timed(times, "frame.y", functools.partial(getattr, frame, "y"))
        _timed(times, "frame.release()", frame.release)


def _await_completion(publisher: cf.Publisher) -> None:
    if publisher.xp.__name__ == "cupy":
        publisher.xp.cuda.get_current_stream().synchronize()


def _timed(times: dict[str, list[int]], name: str, act: Callable[[], Any]) -> Any:
    start = time.perf_counter_ns()
    value = act()
    times.setdefault(name, []).append(time.perf_counter_ns() - start)
    return value


def _behind_kernel(plan: Plan) -> list[Result]:
    """Publish while a kernel of about 50 ms is queued, which must not be waited for."""
    name = "publish(slot) behind a kernel of 50 ms"
    times: dict[str, list[int]] = {}
    waited = 0
    with plan.publisher() as publisher:
        xp = publisher.xp
        spin = xp.RawKernel(_SPIN, "spin")
        spin((1,), (1,), (1,))
        for _ in range(10):
            xp.cuda.get_current_stream().synchronize()
            slot = publisher.acquire()
            spin((1,), (1,), (80_000_000,))
            end = xp.cuda.Event()
            end.record()
            _timed(
                times,
                name,
                functools.partial(publisher.publish, slot),
            )
            waited += end.done
        xp.cuda.get_current_stream().synchronize()
    return [{"call": name, **percentiles(times[name], "time"), "waited_for_the_gpu": waited}]


# --- Attaching and importing ----------------------------------------------------------------------


def attaching(plan: Plan) -> list[Step]:
    """Return the measurements of how long it takes until the first array."""
    return [
        ("importing", functools.partial(_imports, plan)),
        ("attaching", functools.partial(_attach, plan)),
    ]


def _imports(plan: Plan) -> list[Result]:
    return [
        {"what": f"import {name}", **percentiles(_import_times(name, plan), "time")}
        for name in ("cuframes_nb", "numpy")
    ]


def _import_times(module: str, plan: Plan) -> list[int]:
    runs = [_python(_IMPORT, module) for _ in range(3 if plan.quick else 9)]
    return [int(run) for run in runs[1:]]  # the first fills the page cache


def _attach(plan: Plan) -> list[Result]:
    total, first, again = [], [], []
    with plan.publisher() as publisher:
        publisher.publish(publisher.acquire())
        for _ in range(2 if plan.quick else 5):
            start = time.monotonic_ns()
            output = _python(_ATTACH, publisher.key, "5" if plan.quick else "40")
            _, first_ns, done, later = json.loads(output)
            total.append(done - start)
            first.append(first_ns)
            again += later
    runtime = "NumPy" if plan.memory == "host" else "CuPy and CUDA"
    return [
        {"what": "new process to first array", **percentiles(total, "time")},
        {"what": f"first subscribe() to array, loads {runtime}", **percentiles(first, "time")},
        {"what": "subscribe() to array again", **percentiles(again, "time")},
    ]


def _python(code: str, *args: str) -> str:
    command = [sys.executable, "-c", code, *args]
    run = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)  # noqa: S603
    return run.stdout


# --- Memory ---------------------------------------------------------------------------------------


def memory(plan: Plan) -> list[Step]:
    """Return the measurement of what a ring of four takes."""
    return [("memory", functools.partial(_memory, plan))]


def _memory(plan: Plan) -> list[Result]:
    with plan.publisher() as warm:
        look = functools.partial(_memory_in_use, warm.xp)
        gc.collect()
        before = look()
        with plan.publisher() as publisher:
            taken = look() - before
            padded = publisher.layout.nbytes
    return [
        {
            "what": "ring of 4, 1080p NV12",
            "bytes": taken,
            "pixels_bytes": 4 * ROWS * WIDTH,
            "with_pitch_bytes": 4 * padded,
        }
    ]


def _memory_in_use(xp: Any) -> int:
    """Return the bytes of GPU memory in use, or of shared files that this process maps."""
    if xp.__name__ == "cupy":
        free, total = xp.cuda.runtime.memGetInfo()
        return int(total - free)
    return sum(r.end - r.start for r in regions() if r.name.startswith("/memfd:"))
