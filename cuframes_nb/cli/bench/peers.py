"""Other ways to pass frames between processes on one machine, as their documentation has it.

Each has a queue of two notes a subscriber; a frame for which there is no room is dropped, as
cuframes_nb does it. None of them keeps the publisher from writing what a subscriber still reads.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import multiprocessing
import queue
import time
from collections.abc import Callable
from multiprocessing import shared_memory
from typing import Any, Final, TypeAlias

import numpy as np

from cuframes_nb.cli.bench.contender import SPAWN, Contender, Sightings
from cuframes_nb.cli.bench.plan import ROWS, WIDTH

__all__ = ["peers"]

_DEPTH: Final = 2
_RING: Final = 4
_SHAPE: Final = (ROWS, WIDTH)

Taker: TypeAlias = Callable[[Any], None]
"""Makes what came through the queue an array in hand."""


def peers(memory: str) -> list[type[Contender]]:
    """Return those that can run here."""
    if memory == "host":
        return [_ArrayQueue, _SharedMemory]
    found: list[type[Contender]] = [_RoundTrip]
    if importlib.util.find_spec("torch"):
        found.append(_TorchQueue)
    with contextlib.suppress(ImportError):
        from cuda.core import DeviceMemoryResourceOptions  # noqa: F401

        found.append(_CoreBuffers)
    return found


class _QueuePeer(Contender):
    """Notes of ``(number, time, payload)`` through one queue a subscriber."""

    def __init__(self, subscribers: int, prepare: Callable[[], Taker]) -> None:
        super().__init__(subscribers)
        self._queues: list[Any] = [SPAWN.Queue(_DEPTH) for _ in range(subscribers)]
        for notes in self._queues:
            self.start(_subscriber, notes, prepare)
        self.wait_until_ready()

    def send(self, note: tuple[int, int, Any]) -> None:
        for notes in self._queues:
            with contextlib.suppress(queue.Full):
                notes.put_nowait(note)

    def stop(self) -> None:
        for notes in self._queues:
            notes.put(None, timeout=30)


def _subscriber(results: Any, notes: Any, prepare: Callable[[], Taker]) -> None:
    take = prepare()
    sightings = Sightings()
    results.put("ready")
    while (note := notes.get()) is not None:
        number, sent_ns, payload = note
        take(payload)
        sightings.note(number, sent_ns)
        del note, payload
    results.put(sightings.array())


# --- Host memory ----------------------------------------------------------------------------------


class _ArrayQueue(_QueuePeer):
    name = "multiprocessing.Queue of arrays"

    def __init__(self, subscribers: int) -> None:
        self._frame = np.zeros(_SHAPE, np.uint8)
        super().__init__(subscribers, _nothing_to_do)

    def publish(self, number: int) -> int:
        self._frame[0, :64] = number & 255
        start = time.monotonic_ns()
        self.send((number, start, self._frame))
        return time.monotonic_ns() - start


def _nothing_to_do() -> Taker:
    return _in_hand


def _in_hand(frame: Any) -> None:
    """Do nothing: what came through the queue is the frame."""


class _SharedMemory(_QueuePeer):
    name = "shared_memory, copy in and out"

    def __init__(self, subscribers: int) -> None:
        self._memory, self._ring = _make_ring()
        self._frame = np.zeros(_SHAPE, np.uint8)
        super().__init__(subscribers, functools.partial(_copy_out, self._memory.name))

    def publish(self, number: int) -> int:
        self._frame[0, :64] = number & 255
        start = time.monotonic_ns()
        self._ring[number % _RING] = self._frame
        self.send((number, start, number % _RING))
        return time.monotonic_ns() - start

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        del self._ring
        _remove(self._memory)


def _make_ring() -> tuple[shared_memory.SharedMemory, Any]:
    memory = shared_memory.SharedMemory(create=True, size=_RING * ROWS * WIDTH)
    return memory, np.ndarray((_RING, *_SHAPE), np.uint8, memory.buf)


def _remove(memory: shared_memory.SharedMemory) -> None:
    memory.close()
    memory.unlink()


def _copy_out(name: str) -> Taker:
    memory = shared_memory.SharedMemory(name)
    ring: Any = np.ndarray((_RING, *_SHAPE), np.uint8, memory.buf)
    own = np.empty(_SHAPE, np.uint8)

    def take(slot: int) -> None:
        assert memory.buf is not None  # noqa: S101  the ring lies in it
        np.copyto(own, ring[slot])

    return take


# --- GPU memory: a frame is one whose kernel was just queued --------------------------------------


class _RoundTrip(_QueuePeer):
    name = "to the host, shared_memory, and back"

    def __init__(self, subscribers: int) -> None:
        import cupy

        self._memory, self._ring = _make_ring()
        self._frame = cupy.zeros(_SHAPE, np.uint8)
        super().__init__(subscribers, functools.partial(_upload, self._memory.name))

    def publish(self, number: int) -> int:
        self._frame.fill(number & 255)
        start = time.monotonic_ns()
        self._frame.get(out=self._ring[number % _RING])
        self.send((number, start, number % _RING))
        return time.monotonic_ns() - start

    def __exit__(self, *exc_info: object) -> None:
        super().__exit__(*exc_info)
        del self._ring
        _remove(self._memory)


def _upload(name: str) -> Taker:
    import cupy

    memory = shared_memory.SharedMemory(name)
    ring: Any = np.ndarray((_RING, *_SHAPE), np.uint8, memory.buf)
    own = cupy.empty(_SHAPE, np.uint8)

    def take(slot: int) -> None:
        assert memory.buf is not None  # noqa: S101  the ring lies in it
        own.set(ring[slot])
        cupy.cuda.get_current_stream().synchronize()

    return take


class _TorchQueue(_QueuePeer):
    name = "torch.multiprocessing queue"

    def __init__(self, subscribers: int) -> None:
        import torch
        import torch.multiprocessing  # teaches queues to pass tensors

        self._torch = torch
        self._ring = [torch.zeros(_SHAPE, dtype=torch.uint8, device="cuda") for _ in range(_RING)]
        super().__init__(subscribers, _torch_ready)

    def publish(self, number: int) -> int:
        frame = self._ring[number % _RING]
        frame.fill_(number & 255)
        start = time.monotonic_ns()
        self._torch.cuda.current_stream().synchronize()
        self.send((number, start, frame))
        return time.monotonic_ns() - start


def _torch_ready() -> Taker:
    import torch
    import torch.multiprocessing

    torch.zeros(1, device="cuda")
    return _in_hand


class _CoreBuffers(_QueuePeer):
    name = "cuda.core IPC buffers in a queue"

    def __init__(self, subscribers: int) -> None:
        from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions

        multiprocessing.set_start_method("spawn", force=True)  # else it warns of fork
        device = Device(0)
        device.set_current()
        options = DeviceMemoryResourceOptions(max_size=64 << 20, ipc_enabled=True)
        self._pool = DeviceMemoryResource(device, options)
        self._stream = device.create_stream()
        self._ring = [self._pool.allocate(ROWS * WIDTH, stream=self._stream) for _ in range(_RING)]
        self._stream.sync()
        super().__init__(subscribers, _core_ready)

    def publish(self, number: int) -> int:
        frame = self._ring[number % _RING]
        frame.fill(number & 255, stream=self._stream)
        start = time.monotonic_ns()
        self._stream.sync()
        self.send((number, start, frame))
        return time.monotonic_ns() - start


def _core_ready() -> Taker:
    from cuda.core import Device

    Device(0).set_current()
    return _in_hand
