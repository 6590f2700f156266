"""GPU memory by the driver's virtual memory management, shared as descriptors.

CUDA Driver API, "Virtual Memory Management". Three things with three owners: the allocation (its
handle), a range of addresses, and the mapping of one in the other. The mapping keeps the allocation
alive by itself.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Sequence
from typing import Any

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.driver import call, driver
from cuframes_nb._cuda.streams import RelaxedCapture
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb.errors import CudaError

__all__ = ["Allocation", "MappedRange", "granularity", "map_joined"]


def granularity(ordinal: int) -> int:
    """Return the bytes that an allocation on that GPU is a multiple of."""
    least = driver().CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM
    with activated(ordinal):
        return int(call("cuMemGetAllocationGranularity", _properties(ordinal), least))


class Allocation:
    """The handle of one allocation on a GPU; made with `create` or `adopt`."""

    __slots__ = ("_handle", "_pid", "nbytes", "ordinal")

    def __init__(self, handle: Any, nbytes: int, ordinal: int) -> None:
        self._handle = handle
        self._pid = os.getpid()
        self.nbytes = nbytes
        self.ordinal = ordinal

    @classmethod
    def create(cls, nbytes: int, ordinal: int) -> Allocation:
        """Allocate at least `nbytes`, to be shared as a descriptor.

        Raises
        ------
        CudaError
            If there is not enough memory, or the driver cannot.
        """
        least = granularity(ordinal)
        size = -(-nbytes // least) * least
        with activated(ordinal):
            return cls(call("cuMemCreate", size, _properties(ordinal), 0), size, ordinal)

    @classmethod
    def retain(cls, address: int, nbytes: int, ordinal: int) -> Allocation:
        """Take part in somebody's allocation in this process, which then lives as long as we do.

        Parameters
        ----------
        address
            Any byte of it.
        nbytes
            Its size.
        ordinal
            The GPU that holds it.

        Raises
        ------
        CudaError
            If nothing is mapped there by the driver's virtual memory management.
        """
        with activated(ordinal):
            return cls(call("cuMemRetainAllocationHandle", address), nbytes, ordinal)

    @classmethod
    def adopt(cls, fd: OwnedFd, nbytes: int, ordinal: int) -> Allocation:
        """Take another process's allocation over by its descriptor, which stays the caller's.

        Raises
        ------
        CudaError
            If the descriptor is no such thing.
        """
        with activated(ordinal):
            handle = call("cuMemImportFromShareableHandle", fd.fileno(), _posix())
        return cls(handle, nbytes, ordinal)

    def location(self) -> int:
        """Return the ordinal of the GPU that holds the memory, by the driver's own word."""
        with activated(self.ordinal):
            properties = call("cuMemGetAllocationPropertiesFromHandle", self._handle)
        return int(properties.location.id)

    def export(self) -> OwnedFd:
        """Return a new descriptor; it pins the memory until it is closed everywhere."""
        with activated(self.ordinal):
            return OwnedFd(int(call("cuMemExportToShareableHandle", self._handle, _posix(), 0)))

    def map(self, *, writable: bool) -> MappedRange:
        """Map the whole allocation into this process for its GPU.

        Raises
        ------
        CudaError
            If the allocation has another size than this object believes, or is of a GPU that this
            one cannot reach; nothing remains.
        """
        return map_joined([self], writable=writable)

    def close(self) -> None:
        """Let go of the handle, once; mappings keep the memory."""
        handle, self._handle = self._handle, None
        if handle is not None and os.getpid() == self._pid:
            with activated(self.ordinal):
                call("cuMemRelease", handle)

    def __del__(self) -> None:
        if getattr(self, "_handle", None) is not None and not sys.is_finalizing():
            with contextlib.suppress(CudaError):
                self.close()


def map_joined(allocations: Sequence[Allocation], *, writable: bool) -> MappedRange:
    """Map allocations on one GPU one behind the other, as one range of addresses.

    Raises
    ------
    CudaError
        As `Allocation.map`.
    """
    ordinal = allocations[0].ordinal
    sizes = [allocation.nbytes for allocation in allocations]
    total = sum(sizes)
    with activated(ordinal), contextlib.ExitStack() as undo:
        start = int(call("cuMemAddressReserve", total, 0, 0, 0))
        undo.callback(call, "cuMemAddressFree", start, total)
        at = start
        for allocation in allocations:
            call("cuMemMap", at, allocation.nbytes, 0, allocation._handle, 0)  # noqa: SLF001
            undo.callback(call, "cuMemUnmap", at, allocation.nbytes)
            at += allocation.nbytes
        call("cuMemSetAccess", start, total, [_access(ordinal, writable=writable)], 1)
        undo.pop_all()
    return MappedRange(start, sizes, ordinal)


class MappedRange:
    """Addresses that show one or more allocations; unmapped when the last reference goes.

    Parameters
    ----------
    address
        First byte.
    sizes
        Bytes of each allocation.
    ordinal
        The GPU.
    """

    __slots__ = ("__weakref__", "_pid", "_sizes", "address", "nbytes", "ordinal")

    def __init__(self, address: int, sizes: Sequence[int], ordinal: int) -> None:
        self.address = address
        self.nbytes = sum(sizes)
        self.ordinal = ordinal
        self._sizes = tuple(sizes)
        self._pid = os.getpid()

    def __del__(self) -> None:
        # At exit, and in a forked child, the driver is gone: the process takes it all along.
        if sys.is_finalizing() or os.getpid() != self._pid:
            return
        with contextlib.suppress(CudaError), activated(self.ordinal):
            # Unmapping under a kernel that nobody told us of would break the whole context.
            with RelaxedCapture():
                call("cuCtxSynchronize")
            at = self.address
            for size in self._sizes:  # the driver unmaps whole mappings, one by one
                call("cuMemUnmap", at, size)
                at += size
            call("cuMemAddressFree", self.address, self.nbytes)


def _access(ordinal: int, *, writable: bool) -> Any:
    flags = driver().CUmemAccess_flags
    access = driver().CUmemAccessDesc()
    access.location.type = driver().CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    access.location.id = ordinal
    access.flags = (
        flags.CU_MEM_ACCESS_FLAGS_PROT_READWRITE
        if writable
        else flags.CU_MEM_ACCESS_FLAGS_PROT_READ
    )
    return access


def _properties(ordinal: int) -> Any:
    properties = driver().CUmemAllocationProp()
    properties.type = driver().CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
    properties.location.type = driver().CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
    properties.location.id = ordinal
    properties.requestedHandleTypes = _posix()
    return properties


def _posix() -> Any:
    types = driver().CUmemAllocationHandleType
    return types.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
