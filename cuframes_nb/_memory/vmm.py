"""GPU memory shared as a POSIX descriptor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple, Self

from cuframes_nb._core.uuids import uuid_text
from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._cuda.vmm import Allocation, MappedRange, granularity, map_joined
from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._memory.pieces import Piece, Pieces
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import CudaError, CuframesError, DeviceError, RemoteProtocolError

__all__ = ["Home", "VmmArena"]


class Home(NamedTuple):
    """The GPU that holds memory, which another one may read."""

    uuid: bytes
    ordinal: int | None  #: None if it is hidden from this process

    @classmethod
    def of(cls, gpu: Gpu) -> Self:
        """Return that of memory which its own GPU reads."""
        return cls(gpu.uuid, gpu.ordinal)


class VmmArena(Arena):
    """Memory on one GPU, mapped for one GPU only: the same, or one that reaches it.

    For no other, also not for the one that holds it: who reads on two GPUs attaches twice, and
    nothing is made on a GPU that does not read.
    """

    kind = MemoryKind.CUDA_VMM

    def __init__(
        self,
        mapped: MappedRange,
        gpu: Gpu,
        allocation: Allocation | None,
        *,
        writable: bool,
        home: Home | None = None,
        pieces: Sequence[Piece] = (),
    ) -> None:
        self._mapped = mapped
        self._pieces = Pieces(pieces)
        self._allocation = allocation
        self._home = home or Home.of(gpu)
        self.address = mapped.address
        self.nbytes = mapped.nbytes
        self.writable = writable
        self.device = gpu.ordinal

    @classmethod
    def create(cls, nbytes: int, gpu: Gpu) -> Self:
        """Make at least `nbytes` of memory on `gpu`; its content is undefined.

        Raises
        ------
        CudaError
            If there is not enough memory, or the driver cannot share it.
        """
        allocation = Allocation.create(nbytes, gpu.ordinal)
        try:
            return cls(allocation.map(writable=True), gpu, allocation, writable=True)
        except BaseException:
            allocation.close()
            raise

    @classmethod
    def attach(
        cls,
        parts: Sequence[Part],
        gpu: Gpu,
        *,
        writable: bool = False,
        home: Home | None = None,
    ) -> Self:
        """Map another process's memory, one or more allocations, for a GPU.

        The descriptors are the arena's, and closed if there is none.

        Parameters
        ----------
        parts
            The allocations.
        gpu
            The GPU that is to read them.
        writable
            Whether to write them, too.
        home
            The GPU that holds them, if that is another.

        Raises
        ------
        RemoteProtocolError
            If a descriptor is no GPU memory, of another size than the publisher says, or on another
            GPU.
        DeviceError
            If `gpu` does not reach the memory of another; tried, not looked up.
        """
        try:
            return cls._attach(parts, gpu, home or Home.of(gpu), writable=writable)
        except BaseException:
            close_all(part.fd for part in parts if part.fd is not None)
            raise

    @classmethod
    def _attach(cls, parts: Sequence[Part], gpu: Gpu, home: Home, *, writable: bool) -> Self:
        allocations: list[Allocation] = []
        sizes = [part.description.nbytes for part in parts]
        try:
            for nbytes, part in zip(sizes, parts, strict=True):
                allocations.append(_adopt(nbytes, part.descriptor(), gpu, home))
                _check_home(allocations[-1], home)
            mapped = map_joined(allocations, writable=writable)
        except CudaError as error:
            told = f"the publisher's GPU memory of {' and '.join(map(str, sizes))} bytes cannot be"
            raise _refusal(f"{told} mapped", gpu, home, error) from error
        finally:
            for allocation in allocations:
                allocation.close()
        starts = itertools.accumulate(sizes, initial=mapped.address)
        pieces = [
            Piece(start, nbytes, part.descriptor(), None)
            for part, nbytes, start in zip(parts, sizes, starts, strict=False)
        ]
        if home != Home.of(gpu):  # no other interface of `gpu` can take what lies elsewhere
            close_all(piece.fd for piece in pieces)
            pieces = []
        return cls(mapped, gpu, None, writable=writable, home=home, pieces=pieces)

    @property
    def exportable(self) -> bool:
        return self._allocation is not None

    def describe(self) -> ArenaDescription:
        return ArenaDescription(self.kind, self.nbytes, device_uuid=self._home.uuid)

    def close(self) -> None:
        self._pieces.close()
        if self._allocation is not None:
            self._allocation.close()

    def _arena_export(self) -> OwnedFd:
        assert self._allocation is not None  # noqa: S101  exportable says so
        return self._allocation.export()


def _adopt(nbytes: int, fd: OwnedFd, gpu: Gpu, home: Home) -> Allocation:
    """Return another process's allocation, which has to be of that size."""
    least = granularity(gpu.ordinal)
    if not nbytes or nbytes % least:
        raise RemoteProtocolError(
            f"the publisher says that its GPU memory has {nbytes} bytes, which is no multiple of "
            f"{least}"
        )
    try:
        return Allocation.adopt(fd, nbytes, gpu.ordinal)
    except CudaError as error:
        told = f"the publisher's descriptor is not memory of GPU {gpu.name}"
        raise _refusal(told, gpu, home, error) from error


def _check_home(allocation: Allocation, home: Home) -> None:
    """Raise unless the memory is where the publisher says, by the driver's own word."""
    where = allocation.location()
    # Of a hidden GPU the driver says -2 (seen with driver 580), which is CU_DEVICE_INVALID.
    if (None if where < 0 else where) != home.ordinal:
        said = "a hidden one" if home.ordinal is None else f"GPU {home.ordinal}"
        raise RemoteProtocolError(
            f"the publisher says that its memory is on {said} ({uuid_text(home.uuid)}), and the "
            f"driver says {where}"
        )


def _refusal(told: str, gpu: Gpu, home: Home, error: CudaError) -> CuframesError:
    """Return what a driver's refusal to import or map means."""
    if home == Home.of(gpu):
        return RemoteProtocolError(f"{told}: {error}")
    if home.ordinal is None:
        what, remedy = "a hidden one", "have CUDA_VISIBLE_DEVICES show it to this process, and then"
    else:
        what, remedy = f"GPU {home.ordinal}", "subscribe without device=, or"
    return DeviceError(
        f"the frames are on {what} ({uuid_text(home.uuid)}), and GPU {gpu.ordinal} ({gpu.name}) "
        f"cannot map them: {error}. Not all GPUs reach each other's memory: {remedy} use "
        f"copy_to={gpu.uuid_text!r} for a copy of each frame"
    )
