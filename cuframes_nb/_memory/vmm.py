"""GPU memory shared as a POSIX descriptor."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Self

from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._cuda.vmm import Allocation, MappedRange, granularity, map_joined
from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._memory.pieces import Piece, Pieces
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import CudaError, RemoteProtocolError

__all__ = ["VmmArena"]


class VmmArena(Arena):
    """Memory on one GPU, mapped for that GPU only."""

    kind = MemoryKind.CUDA_VMM

    def __init__(
        self,
        mapped: MappedRange,
        gpu: Gpu,
        allocation: Allocation | None,
        *,
        writable: bool,
        pieces: Sequence[Piece] = (),
    ) -> None:
        self._mapped = mapped
        self._pieces = Pieces(pieces)
        self._allocation = allocation
        self._gpu = gpu
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
    def attach(cls, parts: Sequence[Part], gpu: Gpu, *, writable: bool = False) -> Self:
        """Map another process's memory, one or more allocations.

        The descriptors are the arena's, and closed if there is none.

        Raises
        ------
        RemoteProtocolError
            If a descriptor is no GPU memory, or of another size than the publisher says.
        """
        try:
            return cls._attach(parts, gpu, writable=writable)
        except BaseException:
            close_all(part.fd for part in parts if part.fd is not None)
            raise

    @classmethod
    def _attach(cls, parts: Sequence[Part], gpu: Gpu, *, writable: bool) -> Self:
        allocations: list[Allocation] = []
        sizes = [part.description.nbytes for part in parts]
        try:
            allocations.extend(
                _adopt(nbytes, part.descriptor(), gpu)
                for nbytes, part in zip(sizes, parts, strict=True)
            )
            mapped = map_joined(allocations, writable=writable)
            starts = itertools.accumulate(sizes, initial=mapped.address)
            pieces = [
                Piece(start, nbytes, part.descriptor(), None)
                for part, nbytes, start in zip(parts, sizes, starts, strict=False)
            ]
            return cls(mapped, gpu, None, writable=writable, pieces=pieces)
        except CudaError as error:
            raise RemoteProtocolError(
                f"the publisher's GPU memory of {' and '.join(map(str, sizes))} bytes cannot be "
                f"mapped: {error}"
            ) from error
        finally:
            for allocation in allocations:
                allocation.close()

    @property
    def exportable(self) -> bool:
        return self._allocation is not None

    def describe(self) -> ArenaDescription:
        return ArenaDescription(self.kind, self.nbytes, device_uuid=self._gpu.uuid)

    def close(self) -> None:
        self._pieces.close()
        if self._allocation is not None:
            self._allocation.close()

    def _arena_export(self) -> OwnedFd:
        assert self._allocation is not None  # noqa: S101  exportable says so
        return self._allocation.export()


def _adopt(nbytes: int, fd: OwnedFd, gpu: Gpu) -> Allocation:
    """Return another process's allocation, which has to be of that size, on that GPU."""
    least = granularity(gpu.ordinal)
    if not nbytes or nbytes % least:
        raise RemoteProtocolError(
            f"the publisher says that its GPU memory has {nbytes} bytes, which is no multiple of "
            f"{least}"
        )
    try:
        allocation = Allocation.adopt(fd, nbytes, gpu.ordinal)
    except CudaError as error:
        raise RemoteProtocolError(
            f"the publisher's descriptor is not memory of GPU {gpu.name}: {error}"
        ) from error
    if (where := allocation.location()) != gpu.ordinal:
        allocation.close()
        raise RemoteProtocolError(
            f"the publisher says that its memory is on GPU {gpu.ordinal} ({gpu.name}), and the "
            f"driver says {where}"
        )
    return allocation
