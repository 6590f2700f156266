"""GPU memory shared as a POSIX descriptor."""

from __future__ import annotations

from typing import Self

from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._cuda.vmm import Allocation, MappedRange, granularity
from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import CudaError, RemoteProtocolError

__all__ = ["VmmArena"]


class VmmArena(Arena):
    """Memory on one GPU, mapped for that GPU only."""

    kind = MemoryKind.CUDA_VMM

    def __init__(
        self, mapped: MappedRange, gpu: Gpu, allocation: Allocation | None, *, writable: bool
    ) -> None:
        self._mapped = mapped
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
    def attach(
        cls, description: ArenaDescription, fd: OwnedFd, gpu: Gpu, *, writable: bool = False
    ) -> Self:
        """Map another process's memory; `fd` is closed.

        Raises
        ------
        RemoteProtocolError
            If the descriptor is no GPU memory, or of another size than the publisher says.
        """
        with fd:
            least = granularity(gpu.ordinal)
            if not description.nbytes or description.nbytes % least:
                raise RemoteProtocolError(
                    f"the publisher says that its GPU memory has {description.nbytes} bytes, which "
                    f"is no multiple of {least}"
                )
            try:
                allocation = Allocation.adopt(fd, description.nbytes, gpu.ordinal)
            except CudaError as error:
                raise RemoteProtocolError(
                    f"the publisher's descriptor is not memory of GPU {gpu.name}: {error}"
                ) from error
        try:
            if (where := allocation.location()) != gpu.ordinal:
                raise RemoteProtocolError(
                    f"the publisher says that its memory is on GPU {gpu.ordinal} ({gpu.name}), and "
                    f"the driver says {where}"
                )
            return cls(allocation.map(writable=writable), gpu, None, writable=writable)
        except CudaError as error:
            raise RemoteProtocolError(
                f"the publisher's GPU memory of {description.nbytes} bytes cannot be mapped: "
                f"{error}"
            ) from error
        finally:
            allocation.close()

    @property
    def exportable(self) -> bool:
        return self._allocation is not None

    def describe(self) -> ArenaDescription:
        return ArenaDescription(self.kind, self.nbytes, device_uuid=self._gpu.uuid)

    def close(self) -> None:
        if self._allocation is not None:
            self._allocation.close()

    def _arena_export(self) -> OwnedFd:
        assert self._allocation is not None  # noqa: S101  exportable says so
        return self._allocation.export()
