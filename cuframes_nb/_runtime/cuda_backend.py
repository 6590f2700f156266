"""GPU memory: frames stay on the GPU, and the GPU says when they are complete."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from typing import Any, Self

from cuframes_nb._core.uuids import uuid_text
from cuframes_nb._cuda import devices
from cuframes_nb._cuda.completion import RegisteredWords
from cuframes_nb._cuda.devices import Gpu, activated
from cuframes_nb._cuda.streams import is_capturing, stream_handle, synchronise
from cuframes_nb._cuda.vmm import Allocation
from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._memory.ipc import IpcArena
from cuframes_nb._memory.vmm import Home, VmmArena
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._runtime.backend import Backend, CompletionWriter, unmappable
from cuframes_nb._runtime.leases import LeaseTable
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._wire.control import COMPLETIONS_OFFSET, CONTROL_NBYTES, ControlWriter
from cuframes_nb._wire.messages import Completion, MemoryKind
from cuframes_nb.errors import CudaError, InvalidArgumentError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["CudaBackend", "require_cupy"]


class _Streams:
    """Streams that users name on one GPU, and CuPy's current one where they name none."""

    def __init__(self, ordinal: int) -> None:
        import cupy  # once, and not for every frame

        self._ordinal = ordinal
        self._current = cupy.cuda.get_current_stream

    def handle(self, stream: object | None) -> int:
        if stream is not None:
            return stream_handle(stream)
        handle: int = self._current(self._ordinal).ptr
        return handle


class _GpuCompletion(CompletionWriter):
    """The GPU writes the word behind the user's work; nobody waits."""

    method = Completion.GPU
    reason = "the GPU writes completion into shared memory; publish does not wait for it"

    def __init__(self, words: RegisteredWords, ordinal: int) -> None:
        self._words = words
        self._streams = _Streams(ordinal)
        self._activated = activated(ordinal)

    def complete(self, slot: int, value: int, stream: object | None) -> None:
        handle = self._streams.handle(stream)
        with self._activated:
            if is_capturing(handle):
                raise InvalidArgumentError(
                    "the stream is capturing a graph: the completion of this frame would be told "
                    "with every replay; publish outside of the capture"
                )
            self._words.write(COMPLETIONS_OFFSET + 8 * slot, value, handle)

    def close(self) -> None:
        self._words.close()


class _SynchronisedCompletion(CompletionWriter):
    """The CPU waits for the stream and writes the word: for drivers that cannot do better."""

    method = Completion.HOST

    def __init__(self, control: ControlWriter, ordinal: int, why: str) -> None:
        self._control = control
        self._streams = _Streams(ordinal)
        self._activated = activated(ordinal)
        self.reason = f"publish waits for the stream: {why}"

    def complete(self, slot: int, value: int, stream: object | None) -> None:
        handle = self._streams.handle(stream)
        with self._activated:
            synchronise(handle)
        self._control.complete(slot, value)

    def close(self) -> None:
        pass  # holds nothing


class CudaBackend(Backend):
    """Memory of one GPU, shared as descriptors; made with `for_publisher` or `for_subscriber`.

    Parameters
    ----------
    gpu
        The GPU that writes or reads it.
    reason
        Why that one, for people.
    home
        The GPU that holds it, if that is another.
    """

    kind = MemoryKind.CUDA_VMM

    def __init__(self, gpu: Gpu, reason: str, home: Home | None = None) -> None:
        # Modules that import CuPy, which is there by now; bound here because they are used for
        # every frame.
        from cuframes_nb._runtime import stream_leases
        from cuframes_nb._views import cuda

        self.gpu = gpu
        self.device = f"cuda:{gpu.ordinal}"
        self.reason = reason
        self._home = home
        self._releaser = stream_leases.releaser(gpu.ordinal)
        self.lease_maker = functools.partial(stream_leases.StreamLease, self._releaser)
        self._planes_type = cuda.CudaPlanes

    @classmethod
    def for_publisher(cls, device: str | int | None, reason: str) -> Self:
        """Choose a GPU and make sure that it can share memory.

        Raises
        ------
        DeviceError
            If there is no GPU, or none that fits.
        UnsupportedError
            If CuPy is missing, or the driver cannot share memory; tried, not looked up.
        """
        require_cupy()
        gpu, why = devices.select(device)
        _try_sharing(gpu)
        return cls(gpu, f"{reason}: {gpu.name} ({why})")

    @classmethod
    def for_buffers(cls, ordinal: int) -> Self:
        """Take the GPU that the user's buffers are on.

        Raises
        ------
        UnsupportedError
            If CuPy is missing.
        """
        require_cupy()
        gpu = devices.gpu(ordinal)
        return cls(gpu, f"on {gpu.name}")

    @classmethod
    def for_subscriber(cls, uuid: bytes, device: str | int | None, hint: str = "") -> Self:
        """Find the GPU that holds the frames.

        Parameters
        ----------
        uuid
            Of that GPU.
        device
            What the subscriber asked for, None for any.
        hint
            What an error proposes where another GPU could read them.

        Raises
        ------
        DeviceError
            If it is hidden, not here, or another than the one asked for.
        UnsupportedError
            If CuPy is missing.
        """
        require_cupy()
        return cls(*devices.select_holder(uuid_text(uuid), device, hint))

    def create_arena(self, nbytes: int) -> Arena:
        return VmmArena.create(nbytes, self.gpu)

    def attach_arena(self, parts: Sequence[Part], *, writable: bool) -> Arena:
        match parts[0].description.kind:
            case MemoryKind.CUDA_VMM:
                return VmmArena.attach(parts, self.gpu, writable=writable, home=self._home)
            case MemoryKind.CUDA_IPC:
                return IpcArena.attach(parts[0].description, self.gpu)
            case kind:
                raise unmappable(kind)

    def planes(self, arena: Arena, offset: int, layout: FrameLayout) -> PlaneSource:
        if arena.kind is MemoryKind.CUDA_IPC and not arena.exportable:
            from cuframes_nb._runtime.fleeting import FleetingPlanes

            return FleetingPlanes(arena.address + offset, layout, self.gpu.ordinal)
        return self._planes_type(
            arena.address + offset, layout, self.gpu.ordinal, leased=not arena.exportable
        )

    def completion(self, control: ControlWriter, mapping: Mapping) -> CompletionWriter:
        try:
            words = RegisteredWords(mapping, self.gpu.ordinal, CONTROL_NBYTES - 8)
        except UnsupportedError as error:
            return _SynchronisedCompletion(control, self.gpu.ordinal, str(error))
        return _GpuCompletion(words, self.gpu.ordinal)

    def pending_releases(self, table: LeaseTable) -> int:
        return self._releaser.pending(table)

    def as_array(self, source: Any) -> Any:
        import cupy
        import numpy as np

        if isinstance(source, cupy.ndarray | np.ndarray):
            return source
        # DLPack first: it has CuPy's stream wait for the producer's, the older protocol need not.
        if hasattr(source, "__dlpack__"):
            on_gpu = source.__dlpack_device__()[0] == 2  # kDLCUDA, dlpack.h
            return cupy.from_dlpack(source) if on_gpu else np.from_dlpack(source)
        if hasattr(source, "__cuda_array_interface__"):
            return cupy.asarray(source)
        array = np.asarray(source)
        if array.dtype == object:
            raise InvalidArgumentError(
                f"{type(source).__name__} is no array: pass one of CuPy, NumPy or torch, or planes"
            )
        return array

    def to_own(self, array: Any) -> Any:
        import cupy

        from cuframes_nb._views.transfer import to_this_gpu

        with activated(self.gpu.ordinal):
            return to_this_gpu(cupy.asarray(array))

    def copy_in(self, target: Any, source: Any) -> None:
        import numpy as np

        from cuframes_nb._views.transfer import to_gpu

        if isinstance(source, np.ndarray):
            to_gpu(target, source)
            return
        from cuframes_nb._views.transfer import to_this_gpu

        # On the slot's GPU, whichever is current: completion is told on that one's stream.
        with activated(self.gpu.ordinal):
            target[...] = to_this_gpu(source)

    @contextlib.contextmanager
    def on_stream(self, stream: object | None) -> Iterator[None]:
        if stream is None:
            yield
            return
        from cuframes_nb._views.cuda import as_cupy_stream

        with activated(self.gpu.ordinal), as_cupy_stream(stream):
            yield


def require_cupy() -> None:
    """Raise unless CuPy can be imported.

    Raises
    ------
    UnsupportedError
        Then.
    """
    try:
        import cupy  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"GPU frames are CuPy arrays, and CuPy cannot be imported ({error}): install "
            f"'cuframes-nb[cuda13]' or 'cuframes-nb[cuda12]', or use memory='host'"
        ) from error


def _try_sharing(gpu: Gpu) -> None:
    """Share a small piece of memory with ourselves: attributes promise what some drivers refuse."""
    try:
        allocation = Allocation.create(1, gpu.ordinal)
        try:
            with allocation.export() as fd:
                again = Allocation.adopt(fd, allocation.nbytes, gpu.ordinal)
            again.close()
        finally:
            allocation.close()
    except CudaError as error:
        raise UnsupportedError(
            f"GPU {gpu.name} cannot share memory as descriptors ({error}): use memory='host'"
        ) from error
