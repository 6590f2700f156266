"""Host memory: the CPU writes, so a slot is complete when it is published."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._memory.host import HostArena
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._runtime.backend import Backend, CompletionWriter, unmappable
from cuframes_nb._runtime.leases import Lease
from cuframes_nb._views.downloads import as_numpy
from cuframes_nb._views.host import HostPlanes
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._wire.control import ControlWriter
from cuframes_nb._wire.messages import Completion, MemoryKind
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout

__all__ = ["HostBackend", "HostCompletion"]


class HostCompletion(CompletionWriter):
    """The CPU writes the word at once: whoever publishes has waited for the pixels."""

    method = Completion.HOST

    def __init__(self, control: ControlWriter, reason: str) -> None:
        self._control = control
        self.reason = reason

    def complete(self, slot: int, value: int, stream: object | None) -> None:
        del stream  # nothing is queued anywhere
        self._control.complete(slot, value)

    def close(self) -> None:
        pass  # holds nothing


class HostBackend(Backend):
    """Host memory in a sealed memfd."""

    kind = MemoryKind.HOST
    device = "cpu"

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.lease_maker = Lease

    def create_arena(self, nbytes: int) -> Arena:
        return HostArena.create(nbytes)

    def attach_arena(self, parts: Sequence[Part], *, writable: bool) -> Arena:
        part = parts[0]
        match part.description.kind:
            case MemoryKind.HOST:
                return HostArena.attach(part.description, part.descriptor(), writable=writable)
            case kind:
                raise unmappable(kind)

    def planes(self, arena: Arena, offset: int, layout: FrameLayout) -> PlaneSource:
        return HostPlanes(arena.address + offset, layout, writable=arena.writable)

    def completion(self, control: ControlWriter, mapping: Mapping) -> CompletionWriter:
        del mapping
        return HostCompletion(control, "host memory: the CPU wrote the pixels before publish")

    def as_array(self, source: Any) -> Any:
        if isinstance(source, np.ndarray):
            return source
        if hasattr(source, "__cuda_array_interface__"):
            return source if hasattr(source, "get") else _cupy_array(source)
        for convert in (np.from_dlpack, np.asarray):
            with contextlib.suppress(TypeError, AttributeError, BufferError, RuntimeError):
                array: NDArray[Any] = convert(source)
                if array.dtype != object:
                    return array
        raise InvalidArgumentError(
            f"{type(source).__name__} is no array: pass one of NumPy, CuPy or torch, or planes"
        )

    def to_own(self, array: Any) -> Any:
        return as_numpy(array)

    def copy_in(self, target: Any, source: Any) -> None:
        target[...] = self.to_own(source)


def _cupy_array(source: Any) -> Any:
    """Return another library's GPU array as CuPy's, so that it can be brought to the host."""
    import cupy

    # DLPack first: it has CuPy's stream wait for the producer's, the older protocol need not.
    return cupy.from_dlpack(source) if hasattr(source, "__dlpack__") else cupy.asarray(source)
