"""GPU memory shared by a legacy CUDA IPC handle: what ``cuMemAlloc`` gave to somebody.

Three things set it apart from memory that travels as a descriptor. The driver maps it for writing,
too, and knows no other way. It goes when its maker frees it or ends, whoever has it open. And the
process that made it cannot open it, so a subscriber there uses the maker's own addresses.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable
from typing import Final, Self

from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._cuda.ipc import HANDLE_NBYTES, OpenedRange, handle_of
from cuframes_nb._cuda.pointers import Region
from cuframes_nb._memory.arena import Arena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import CudaError, LocalProtocolError, RemoteProtocolError, UnsupportedError

__all__ = ["IpcArena"]


class IpcArena(Arena):
    """An allocation of ``cuMemAlloc`` on one GPU, made by somebody else than the stream."""

    kind = MemoryKind.CUDA_IPC
    writable = True

    def __init__(
        self, region: Region, gpu: Gpu, handle: bytes, memory: object, *, ours: bool
    ) -> None:
        self._gpu = gpu
        self._handle = handle
        self._memory = memory  # what keeps it
        self._ours = ours
        self.address = region.base
        self.nbytes = region.nbytes
        self.device = gpu.ordinal

    @classmethod
    def share(cls, region: Region, gpu: Gpu, memory: object) -> Self:
        """Share an allocation of this process.

        Parameters
        ----------
        region
            Where it lies.
        gpu
            The GPU that holds it.
        memory
            What has to live as long as it is shared.

        Raises
        ------
        CudaError
            If the driver does not share it.
        """
        arena = cls(region, gpu, handle_of(region.base, gpu.ordinal), memory, ours=True)
        with _mutex:
            _made_here[arena._handle] = arena
        return arena

    @classmethod
    def attach(cls, description: ArenaDescription, gpu: Gpu) -> Self:
        """Open another process's memory, or use it where it lies in this one.

        Raises
        ------
        UnsupportedError
            If the driver does not open it; tried, not looked up.
        RemoteProtocolError
            If it is not what the publisher says.
        """
        handle = description.handle
        if len(handle) != HANDLE_NBYTES:
            raise RemoteProtocolError(
                f"the publisher sent a CUDA IPC handle of {len(handle)} bytes, which have to be "
                f"{HANDLE_NBYTES}"
            )
        memory = _opened(handle, gpu)
        if memory.nbytes < description.nbytes:
            raise RemoteProtocolError(
                f"the publisher says that its GPU memory has {description.nbytes} bytes, and the "
                f"driver says {memory.nbytes}"
            )
        region = Region(memory.address, memory.nbytes, gpu.ordinal)
        return cls(region, gpu, handle, memory, ours=False)

    @property
    def identity(self) -> Hashable:
        return self.kind, self.address

    @property
    def exportable(self) -> bool:
        return self._ours

    def describe(self) -> ArenaDescription:
        return ArenaDescription(
            self.kind, self.nbytes, has_fd=False, device_uuid=self._gpu.uuid,
            handle=self._handle,
        )  # fmt: skip

    def close(self) -> None:
        pass  # holds no descriptor

    def _arena_export(self) -> OwnedFd:
        raise LocalProtocolError("a legacy handle travels in the message, not as a descriptor")


_mutex: Final = threading.Lock()
_made_here: Final[weakref.WeakValueDictionary[bytes, IpcArena]] = weakref.WeakValueDictionary()
_open: Final[weakref.WeakValueDictionary[tuple[bytes, int], OpenedRange]] = (
    weakref.WeakValueDictionary()
)
"""What this process has open. Not every driver opens a handle twice in one process."""


def _opened(handle: bytes, gpu: Gpu) -> OpenedRange | IpcArena:
    with _mutex:
        memory = _made_here.get(handle) or _open.get((handle, gpu.ordinal))
        if memory is None:
            memory = _open[handle, gpu.ordinal] = _open_anew(handle, gpu)
    return memory


def _open_anew(handle: bytes, gpu: Gpu) -> OpenedRange:
    try:
        opened = OpenedRange(handle, gpu.ordinal)
    except CudaError as error:
        raise UnsupportedError(
            f"the publisher shares buffers of its own by legacy CUDA IPC handles, and the driver "
            f"does not open them here ({error}). Drivers may refuse that in another container "
            f"(PID namespace), for another user or once the publisher is gone: have it publish in "
            f"memory of the library's, without ownership='external', with pub.write(array)"
        ) from error
    if opened.location != gpu.ordinal:
        raise RemoteProtocolError(
            f"the publisher says that its memory is on GPU {gpu.ordinal} ({gpu.name}), and the "
            f"driver says {opened.location}"
        )
    return opened
