"""A pipeline's memory as it is mapped here: kept as long as the pipeline uses it."""

from __future__ import annotations

import abc
import weakref
from types import ModuleType
from typing import Any, Final, cast

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb._os.descriptions import same_description
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._runtime.leases import Hold, Lease, LeaseTable
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb.bridges.gst.ledger import Ledger
from cuframes_nb.bridges.gst.messages import Offer
from cuframes_nb.errors import PublisherGoneError, RemoteProtocolError
from cuframes_nb.formats import FrameLayout

__all__ = ["FrameHold", "Importer", "Mappings", "Memory"]

_MOST: Final = 32
"""Mappings kept: a pipeline's pool, with what its clients hold."""

_UNUSED_FRAMES: Final = 256
"""A mapping that so many frames did not need belongs to a buffer that the pipeline freed."""


class Memory(abc.ABC):
    """One allocation of a pipeline, mapped here until the last reference goes.

    Attributes
    ----------
    nbytes
        How much of it there is, by the driver's own word.
    device_uuid
        Of the GPU that holds it; zeros for none.
    where
        How it is mapped, for people.
    """

    nbytes: int
    device_uuid: bytes
    where: str

    def __init__(self) -> None:
        self._why_gone = ""
        self._layout: FrameLayout | None = None
        self._planes: PlaneSource

    def planes(self, layout: FrameLayout) -> PlaneSource:
        """Return what makes arrays on a frame in it."""
        if layout is not self._layout:
            # They know this object weakly: it is kept by the frames' holds.
            self._planes = _GuardedPlanes(self._planes_of(layout), weakref.ref(self))
            self._layout = layout
        return self._planes

    def lease(self, ledger: Ledger[FrameHold], number: int, hold: FrameHold) -> Lease:
        """Return a lease on frame `number`, which the ledger will see to have ended."""
        # Of a table a lease needs `settle` and `inherited`.
        return self._lease(cast("LeaseTable", ledger), number, hold)

    def revoke(self, why: str) -> None:
        """Hand out no more arrays: the memory went with its owner."""
        self._why_gone = why

    def check(self) -> None:
        """Raise if it was revoked.

        Raises
        ------
        PublisherGoneError
            Then.
        """
        if self._why_gone:
            raise PublisherGoneError(self._why_gone)

    @abc.abstractmethod
    def _planes_of(self, layout: FrameLayout) -> PlaneSource: ...

    @abc.abstractmethod
    def _lease(self, table: LeaseTable, number: int, hold: Hold) -> Lease: ...


class Importer(abc.ABC):
    """Maps what pipelines share: on a GPU, or in tests in host memory."""

    @abc.abstractmethod
    def from_fd(self, fd: OwnedFd, nbytes: int) -> Memory:
        """Map an allocation that is said to have `nbytes`; `fd` stays the caller's.

        Raises
        ------
        RemoteProtocolError
            If the descriptor is something else.
        DeviceError
            If the memory is on a GPU that cannot be used here.
        """

    @abc.abstractmethod
    def from_handle(self, handle: bytes) -> Memory:
        """Map an allocation by its legacy handle.

        Raises
        ------
        RemoteProtocolError, DeviceError
            As `from_fd`.
        """


class FrameHold(Hold):
    """Lives as long as a frame is being read, and keeps its memory mapped."""

    __slots__ = ("memory",)

    def __init__(self, memory: Memory) -> None:
        self.memory = memory


class _Kept:
    """A mapping, and what it was made from."""

    __slots__ = ("fd", "memory", "used")

    def __init__(self, memory: Memory, fd: OwnedFd | None, used: int) -> None:
        self.memory = memory
        self.fd = fd
        self.used = used

    def close(self) -> None:
        if self.fd is not None:
            self.fd.close()


class Mappings:
    """The mappings of one connection; to map every frame anew takes longer than a frame.

    A legacy handle names an allocation for good. A descriptor's number does not: the pipeline may
    have freed the buffer since, and the number may be another one's. So the descriptor is kept, and
    the kernel says whether the new one is the same. Where it does not say, nothing is kept.

    Parameters
    ----------
    importer
        What maps.

    Attributes
    ----------
    imports : int
        How often something was mapped.
    blind : str
        Why nothing is kept; empty where it is.
    """

    def __init__(self, importer: Importer) -> None:
        self._importer = importer
        self._kept: dict[bytes, _Kept] = {}
        self._frames = 0
        self.imports = 0
        self.blind = ""

    def find(self, offer: Offer, fd: OwnedFd | None) -> Memory:
        """Return the memory that a frame lies in; `fd` is this object's, whatever happens.

        Raises
        ------
        RemoteProtocolError
            If the memory is not what the pipeline says.
        DeviceError
            If it is on a GPU that cannot be used here.
        """
        self._frames += 1
        if self._frames % _UNUSED_FRAMES == 0:
            self._make_room()
        kept = self._kept.get(offer.token)
        if kept is None or not self._is_same(kept, offer, fd):
            kept = self._import(offer, fd)
        elif fd is not None:
            fd.close()
        kept.used = self._frames
        if offer.size > kept.memory.nbytes:
            raise RemoteProtocolError(
                f"the pipeline says that a frame has {offer.size} bytes, and the driver that its "
                f"memory has {kept.memory.nbytes}"
            )
        return kept.memory

    def forget(self) -> None:
        """Keep none of them any longer; frames that are held keep theirs."""
        for kept in self._kept.values():
            kept.close()
        self._kept.clear()

    def _is_same(self, kept: _Kept, offer: Offer, fd: OwnedFd | None) -> bool:
        if kept.fd is None or fd is None:
            return True
        if self.blind or kept.memory.nbytes != offer.max_size:
            return False
        try:
            return same_description(kept.fd, fd)
        except OSError as error:
            self.blind = f"each frame is mapped anew, since {error}"
            return False

    def _import(self, offer: Offer, fd: OwnedFd | None) -> _Kept:
        self._drop(offer.token)
        if fd is None:
            kept = _Kept(self._importer.from_handle(offer.token), None, self._frames)
        else:
            try:
                kept = _Kept(self._importer.from_fd(fd, offer.max_size), fd, self._frames)
            except BaseException:
                fd.close()
                raise
            fd.let_drop()
        self.imports += 1
        self._make_room()
        self._kept[offer.token] = kept
        return kept

    def _make_room(self) -> None:
        by_use = sorted(self._kept, key=lambda token: self._kept[token].used)
        too_many = len(by_use) + 1 - _MOST
        for index, token in enumerate(by_use):
            if index < too_many or self._kept[token].used < self._frames - _UNUSED_FRAMES:
                self._drop(token)

    def _drop(self, token: bytes) -> None:
        kept = self._kept.pop(token, None)
        if kept is not None:
            kept.close()


class _GuardedPlanes:
    """Planes on memory that its owner may take away."""

    __slots__ = ("_inner", "_memory")

    def __init__(self, inner: PlaneSource, memory: weakref.ref[Memory]) -> None:
        self._inner = inner
        self._memory = memory

    @property
    def xp(self) -> ModuleType:
        return self._inner.xp

    @property
    def device(self) -> str:
        return self._inner.device

    def active(self) -> Any:
        return self._inner.active()

    def plane(self, index: int, owner: object) -> Any:
        self._check()
        return self._inner.plane(index, owner)

    def on_gpu(self) -> GpuPlanes | None:
        self._check()
        return self._inner.on_gpu()

    def rows(self, owner: object) -> Any:
        self._check()
        return self._inner.rows(owner)

    def _check(self) -> None:
        memory = self._memory()
        if memory is not None:
            memory.check()
