"""The one owner of a memory mapping of a file.

Python's own `mmap` keeps a duplicate of the descriptor for as long as it lives. Record locks belong
to the open file description, so that duplicate, inherited by a forked child, would keep a dead
parent's leases. These mappings keep no descriptor, and the child does not inherit them.
"""

from __future__ import annotations

import ctypes
import mmap
import os

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb.errors import ClosedError

__all__ = ["Mapping"]

_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (
    ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_int64,
)  # fmt: skip
_libc.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
_libc.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)

_FAILED = ctypes.c_void_p(-1).value


class Mapping:
    """A file's bytes in this process's address space, shared with all who map it.

    It is unmapped by `close`, or when the last reference goes; whoever hands out addresses inside
    it must keep it alive. The descriptor may be closed at once.

    Parameters
    ----------
    fd
        What to map; it stays the caller's.
    nbytes
        How much, from the start.
    writable
        Whether stores are allowed.
    inherit
        Whether a forked child keeps the mapping. A mapping holds its open file description, and
        with it the locks, so one of a locked file must not be inherited.

    Raises
    ------
    OSError
        If the kernel refuses.
    """

    __slots__ = ("__weakref__", "_address", "_pid", "nbytes", "writable")

    def __init__(self, fd: OwnedFd, nbytes: int, *, writable: bool, inherit: bool = False) -> None:
        self._address = 0
        protection = mmap.PROT_READ | (mmap.PROT_WRITE if writable else 0)
        address = _libc.mmap(None, nbytes, protection, mmap.MAP_SHARED, fd.fileno(), 0)
        if address == _FAILED:
            number = ctypes.get_errno()
            raise OSError(number, f"mapping {nbytes} bytes failed: {os.strerror(number)}")
        self._address = address
        self._pid = os.getpid()
        self.nbytes = nbytes
        self.writable = writable
        if not inherit and _libc.madvise(address, nbytes, mmap.MADV_DONTFORK):
            number = ctypes.get_errno()
            self.close()
            raise OSError(
                number, f"keeping {nbytes} bytes from children failed: {os.strerror(number)}"
            )

    @property
    def address(self) -> int:
        """First byte's address.

        Raises
        ------
        ClosedError
            If it is unmapped.
        """
        if not self._address:
            raise ClosedError("this mapping was closed already")
        return self._address

    def view(self) -> memoryview:
        """Return the bytes as a memoryview, which keeps the mapping alive, though not open."""
        array = (ctypes.c_char * self.nbytes).from_address(self.address)
        array.mapping = self  # type: ignore[attr-defined]
        view = memoryview(array).cast("B")
        return view if self.writable else view.toreadonly()

    def close(self) -> None:
        """Unmap, once. Views and addresses handed out must not be used any more."""
        address, self._address = self._address, 0
        # A child has no such mapping (or its own copy of it): the number may mean something else.
        if address and os.getpid() == self._pid:
            _libc.munmap(address, self.nbytes)

    def __del__(self) -> None:
        if getattr(self, "_address", 0):
            self.close()
