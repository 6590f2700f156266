"""GPU memory of another process by its legacy handle (CUDA Driver API, ``cuIpcOpenMemHandle``)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import Any, Final

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.driver import call, driver
from cuframes_nb._cuda.streams import RelaxedCapture
from cuframes_nb.errors import CudaError

__all__ = ["HANDLE_NBYTES", "OpenedRange", "handle_of"]

HANDLE_NBYTES: Final = 64
"""CU_IPC_HANDLE_SIZE, cuda.h."""


def handle_of(address: int, ordinal: int) -> bytes:
    """Return the handle by which another process opens an allocation of this one.

    Parameters
    ----------
    address
        Its first byte.
    ordinal
        The GPU that holds it.

    Raises
    ------
    CudaError
        If the driver does not share it: it came from a pool, or is no memory of the GPU's.
    """
    with activated(ordinal):
        handle = call("cuIpcGetMemHandle", address)
    return ctypes.string_at(handle.getPtr(), HANDLE_NBYTES)


class OpenedRange:
    """Another process's allocation at an address of this one; closed with the last reference.

    The driver maps it for reading and writing, and knows no other way. The memory goes when its
    maker frees it, whoever has it open.

    Parameters
    ----------
    handle
        What the maker got from ``cuIpcGetMemHandle``.
    ordinal
        The GPU to use it on.

    Attributes
    ----------
    address
        Its first byte.
    nbytes
        From there to the end of the allocation, by the driver's own word.
    location
        Ordinal of the GPU that holds it.

    Raises
    ------
    CudaError
        If it is no such handle, the maker is gone, or that GPU cannot reach the memory.
    """

    __slots__ = ("__weakref__", "_pid", "address", "location", "nbytes", "ordinal")

    def __init__(self, handle: bytes, ordinal: int) -> None:
        self._pid = os.getpid()
        self.ordinal = ordinal
        self.address = 0
        with activated(ordinal):
            flag = driver().CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
            self.address = int(call("cuIpcOpenMemHandle", _as_handle(handle), int(flag)))
            base, size = call("cuMemGetAddressRange", self.address)
            self.nbytes = int(base) + int(size) - self.address
            what = driver().CUpointer_attribute.CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
            self.location = int(call("cuPointerGetAttribute", what, self.address))

    def __del__(self) -> None:
        # At exit, and in a forked child, the driver is gone: the process takes it all along.
        if not getattr(self, "address", 0) or sys.is_finalizing() or os.getpid() != self._pid:
            return
        with contextlib.suppress(CudaError), activated(self.ordinal):
            # As for mapped ranges: a kernel that nobody told us of may still read.
            with RelaxedCapture():
                call("cuCtxSynchronize")
            call("cuIpcCloseMemHandle", self.address)


def _as_handle(raw: bytes) -> Any:
    handle = driver().CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), raw, HANDLE_NBYTES)
    return handle
