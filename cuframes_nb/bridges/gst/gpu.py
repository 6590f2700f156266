"""A pipeline's memory on a GPU."""

from __future__ import annotations

from typing import Final

from cuframes_nb._cuda import devices
from cuframes_nb._cuda.devices import Gpu, activated
from cuframes_nb._cuda.ipc import OpenedRange
from cuframes_nb._cuda.vmm import Allocation, MappedRange, granularity
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._runtime.cuda_backend import CudaBackend
from cuframes_nb._runtime.leases import Hold, Lease, LeaseTable
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb.bridges.gst.memory import Importer, Memory
from cuframes_nb.errors import CudaError, DeviceError, RemoteProtocolError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["GpuImporter"]

_NEEDED: Final = "GStreamer shares its frames in the memory of an NVIDIA GPU, as CuPy arrays here"


class GpuImporter(Importer):
    """Maps on the GPU that holds the memory; which one, only the driver tells.

    Parameters
    ----------
    device
        The one that it has to be, None for any.

    Raises
    ------
    UnsupportedError
        If CuPy is missing.
    DeviceError
        If there is no GPU, or none that fits `device`.
    """

    def __init__(self, device: str | int | None) -> None:
        _require_cupy()
        try:
            self._wanted = None if device is None else devices.select(device)[0]
            self._first = self._wanted or devices.select(None)[0]
            with activated(self._first.ordinal):
                pass  # its context takes a while, which no frame should wait for
        except DeviceError as error:
            raise DeviceError(f"{_NEEDED}, and none can be used: {error}") from error

    def from_fd(self, fd: OwnedFd, nbytes: int) -> Memory:
        """Map it read-only, for the GPU that holds it."""
        least = granularity(self._first.ordinal)
        if not nbytes or nbytes % least:
            raise RemoteProtocolError(
                f"the pipeline says that its GPU memory has {nbytes} bytes, which is no multiple "
                f"of {least}"
            )
        try:
            gpu = self._usable(_location(fd, nbytes, self._first))
            allocation = Allocation.adopt(fd, nbytes, gpu.ordinal)
            try:
                mapped = allocation.map(writable=False)
            finally:
                allocation.close()
        except CudaError as error:
            raise RemoteProtocolError(
                f"the pipeline's descriptor is not GPU memory of {nbytes} bytes: {error}"
            ) from error
        return _GpuMemory(mapped, gpu, f"descriptors, mapped read-only on {gpu.name}")

    def from_handle(self, handle: bytes) -> Memory:
        """Open it on the GPU that holds it."""
        opened = self._open(handle)
        gpu = self._usable(opened.location)
        if gpu.ordinal != opened.ordinal:
            opened = OpenedRange(handle, gpu.ordinal)
        return _GpuMemory(
            opened, gpu, f"legacy handles, which the driver maps for writing, too, on {gpu.name}"
        )

    def _open(self, handle: bytes) -> OpenedRange:
        """Open a handle on the GPU that can: which one holds the memory is not told."""
        failures = []
        for gpu in [self._first, *(gpu for gpu in devices.gpus() if gpu != self._first)]:
            try:
                return OpenedRange(handle, gpu.ordinal)
            except CudaError as error:
                failures.append(f"{gpu.ordinal} {gpu.name}: {error}")
        raise RemoteProtocolError(
            f"the pipeline's memory can be opened on no GPU here ({'; '.join(failures)}): where "
            f"it runs in another container, or on a Tegra, use ipc-mode=mmap on its cudaipcsink"
        )

    def _usable(self, ordinal: int) -> Gpu:
        """Return the GPU that holds the memory, if it may be used."""
        if ordinal < 0:
            raise DeviceError(
                "the pipeline's frames are on a GPU that is hidden from this process by "
                "CUDA_VISIBLE_DEVICES: add it there, or set cuda-device-id on the pipeline"
            )
        gpu = devices.gpu(ordinal)
        if self._wanted is not None and self._wanted != gpu:
            raise DeviceError(
                f"the pipeline's frames are on GPU {ordinal} ({gpu.name}), and the one asked for "
                f"is {self._wanted.ordinal} ({self._wanted.name}): subscribe without device= and "
                f"copy what is needed, or set cuda-device-id on the pipeline"
            )
        return gpu


class _GpuMemory(Memory):
    """Memory of a pipeline on a GPU."""

    def __init__(self, mapped: MappedRange | OpenedRange, gpu: Gpu, where: str) -> None:
        super().__init__()
        self._mapped = mapped
        self._ordinal = gpu.ordinal
        self._lease_maker = CudaBackend(gpu, where).lease_maker
        self.nbytes = mapped.nbytes
        self.device_uuid = gpu.uuid
        self.where = where

    def _planes_of(self, layout: FrameLayout) -> PlaneSource:
        from cuframes_nb._views.cuda import CudaPlanes

        return CudaPlanes(self._mapped.address, layout, self._ordinal, leased=True)

    def _lease(self, table: LeaseTable, number: int, hold: Hold) -> Lease:
        return self._lease_maker(table, number, hold)


def _location(fd: OwnedFd, nbytes: int, gpu: Gpu) -> int:
    """Return the ordinal of the GPU that holds the memory, negative for a hidden one."""
    allocation = Allocation.adopt(fd, nbytes, gpu.ordinal)
    try:
        return allocation.location()
    finally:
        allocation.close()


def _require_cupy() -> None:
    try:
        import cuframes_nb._views.cuda  # noqa: F401
    except ImportError as error:
        raise UnsupportedError(
            f"{_NEEDED}, and CuPy cannot be imported ({error}): install 'cuframes-nb[cuda13]' or "
            f"'cuframes-nb[cuda12]' on a machine with a GPU"
        ) from error
