"""A way to pass frames from one process to others, with the processes that take them."""

from __future__ import annotations

import abc
import multiprocessing
import queue
import time
from collections.abc import Callable
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from cuframes_nb.cli._signals import deaf_children
from cuframes_nb.errors import CuframesError

__all__ = ["SPAWN", "Contender", "Sightings"]

SPAWN: Final = multiprocessing.get_context("spawn")

_PATIENCE_SECONDS: Final = 60.0
"""For a child that imports a large library and starts CUDA."""


class Sightings:
    """What a subscriber notes of each frame."""

    def __init__(self) -> None:
        self._rows: list[tuple[int, int, int, int]] = []

    def note(self, number: int, sent_ns: int) -> None:
        """Note that frame `number`, handed over at `sent_ns`, is in hand now."""
        now = time.monotonic_ns()
        self._rows.append((number, now - sent_ns, now, time.process_time_ns()))

    def array(self) -> NDArray[np.int64]:
        """Return columns: number, latency, when, CPU time of this process; all but one in ns."""
        return np.array(self._rows, np.int64).reshape(-1, 4)


class Contender(abc.ABC):
    """Passes frames; a context manager, within which its subscribers run.

    Attributes
    ----------
    name
        What it is, for people.
    """

    name: str

    def __init__(self, subscribers: int) -> None:
        self.subscribers = subscribers
        self._results: Any = SPAWN.Queue()
        self._children: list[Any] = []

    @abc.abstractmethod
    def publish(self, number: int) -> int:
        """Hand over frame `number`; return what that cost the caller in nanoseconds."""

    @abc.abstractmethod
    def stop(self) -> None:
        """Tell the subscribers that there is no more."""

    def finish(self) -> list[NDArray[np.int64]]:
        """Stop, and return what each subscriber noted (see `Sightings.array`)."""
        self.stop()
        return [self._hear() for _ in self._children]

    def start(self, target: Callable[..., None], *args: Any) -> None:
        """Run ``target(results, *args)`` in a process of its own."""
        child = SPAWN.Process(target=target, args=(self._results, *args), daemon=True)
        with deaf_children():
            child.start()
        self._children.append(child)

    def wait_until_ready(self) -> None:
        """Return when each child has put something."""
        for _ in self._children:
            self._hear()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        for child in self._children:
            child.join(5 if exc_info[0] is None else 0)
            child.kill()
            child.join()
        self._results.close()

    def _hear(self) -> Any:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            try:
                return self._results.get(timeout=0.2)
            except queue.Empty:
                if any(child.exitcode for child in self._children):
                    break
        raise _ChildError(f"a subscriber of {self.name!r} failed: see above for why")


class _ChildError(CuframesError):
    """A process of the benchmark ended early."""
