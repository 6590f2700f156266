"""What the driver says of an address: what kind of memory, whose allocation, on which GPU.

CUDA Driver API, "Unified Addressing" (``cuPointerGetAttribute``) and "Virtual Memory Management".
"""

from __future__ import annotations

import enum
from typing import Any, NamedTuple

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.driver import call, driver
from cuframes_nb.errors import CudaError

__all__ = ["MemoryOrigin", "Region", "ordinal_of", "origin_of", "region_of"]


class MemoryOrigin(enum.Enum):
    """How memory was made."""

    VIRTUAL = "mapped by the driver's virtual memory management"
    PLAIN = "cuMemAlloc"
    POOL = "a stream-ordered pool (cudaMallocAsync)"
    MANAGED = "managed memory (cudaMallocManaged)"
    HOST = "host memory"


class Region(NamedTuple):
    """One allocation, or one mapping of one, in this process's addresses."""

    base: int
    nbytes: int
    ordinal: int  #: the GPU that holds it

    @property
    def end(self) -> int:
        """The address just behind it."""
        return self.base + self.nbytes


def origin_of(address: int, ordinal: int) -> MemoryOrigin:
    """Return how the memory at an address was made.

    Parameters
    ----------
    address
        A byte of it.
    ordinal
        A GPU whose context may be used to ask.
    """
    types = driver().CUmemorytype
    with activated(ordinal):
        if _attribute("IS_MANAGED", address):
            return MemoryOrigin.MANAGED
        if _attribute("MEMORY_TYPE", address) != int(types.CU_MEMORYTYPE_DEVICE):
            return MemoryOrigin.HOST
        if _attribute("MEMPOOL_HANDLE", address):
            return MemoryOrigin.POOL
        try:
            call("cuMemRelease", call("cuMemRetainAllocationHandle", address))
        except CudaError:
            return MemoryOrigin.PLAIN
        return MemoryOrigin.VIRTUAL


def ordinal_of(address: int, ordinal: int) -> int:
    """Return the ordinal of the GPU that holds the memory at an address."""
    with activated(ordinal):
        return _attribute("DEVICE_ORDINAL", address)


def region_of(address: int, ordinal: int) -> Region:
    """Return the allocation, or mapping, that an address lies in.

    Raises
    ------
    CudaError
        If it lies in none.
    """
    with activated(ordinal):
        base, nbytes = call("cuMemGetAddressRange", address)
    return Region(int(base), int(nbytes), ordinal)


def _attribute(name: str, address: int) -> int:
    """Return what the driver says, 0 where it knows no such memory or no such question."""
    which = getattr(driver().CUpointer_attribute, f"CU_POINTER_ATTRIBUTE_{name}", None)
    if which is None:
        return 0
    try:
        value: Any = call("cuPointerGetAttribute", which, address)
    except CudaError:
        return 0
    return int(value)
