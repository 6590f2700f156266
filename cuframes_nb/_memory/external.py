"""GPU memory that the publisher's user made: shared where it lies, the best way there is."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._cuda.pointers import MemoryOrigin, Region, ordinal_of, origin_of, region_of
from cuframes_nb._cuda.vmm import Allocation
from cuframes_nb._memory.arena import Arena
from cuframes_nb._memory.ipc import IpcArena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import MAX_ARENAS, ArenaDescription, MemoryKind, SlotPlace
from cuframes_nb.errors import CudaError, InvalidArgumentError, UnsupportedError

__all__ = ["WAY_OUT", "Extent", "borrow"]

WAY_OUT: Final = (
    "let the publisher make the memory (cf.Publisher without ownership= and buffers=) and copy "
    "each frame in with pub.write(array), or draw into the slots of pub.acquire()"
)
"""What to do about memory that cannot be shared."""

_REASONS: Final = {
    MemoryOrigin.POOL: "the driver shares no memory of a stream-ordered pool (cudaMallocAsync)",
    MemoryOrigin.MANAGED: "the driver shares no managed memory (cudaMallocManaged)",
    MemoryOrigin.HOST: "it is host memory, pinned or not, and no memory of the GPU's",
}


class Extent(NamedTuple):
    """Where one frame lies in this process."""

    address: int
    nbytes: int


class _Piece(NamedTuple):
    """What a frame lies in: an allocation, or mappings of several one behind the other."""

    origin: MemoryOrigin
    regions: tuple[Region, ...]


class RetainedArena(Arena):
    """One mapping of the driver's virtual memory management, whose allocation is held.

    Subscribers map the whole allocation, whatever else lies in it.
    """

    kind = MemoryKind.CUDA_VMM
    writable = True

    def __init__(self, region: Region, gpu: Gpu, memory: object, *, continues: bool) -> None:
        self._gpu = gpu
        self._memory = memory
        self._continues = continues
        self.address = region.base
        self.nbytes = region.nbytes
        self.device = gpu.ordinal
        self._allocation = Allocation.retain(region.base, region.nbytes, gpu.ordinal)
        try:
            self.export().close()  # tried, not looked up
        except BaseException:
            self._allocation.close()
            raise

    @property
    def identity(self) -> Hashable:
        return self.kind, self.address

    @property
    def exportable(self) -> bool:
        return True

    def describe(self) -> ArenaDescription:
        return ArenaDescription(
            self.kind, self.nbytes, device_uuid=self._gpu.uuid, continues=self._continues
        )

    def close(self) -> None:
        self._allocation.close()

    def _arena_export(self) -> OwnedFd:
        return self._allocation.export()


def borrow(
    extents: Sequence[Extent], gpu: Gpu, memory: object
) -> tuple[tuple[Arena, ...], tuple[SlotPlace, ...]]:
    """Share frames where they lie.

    Parameters
    ----------
    extents
        The frames, which the caller has found to be on `gpu`.
    gpu
        The GPU.
    memory
        What has to live as long as they are shared.

    Returns
    -------
    tuple
        Arenas, one for each allocation however many frames lie in it, and each frame's place.

    Raises
    ------
    UnsupportedError
        If the driver does not share one of them; the message says which and why.
    InvalidArgumentError
        If one is on another GPU, or they lie in too many allocations.
    """
    pieces = [_piece(number, extent, gpu) for number, extent in enumerate(extents)]
    distinct = _distinct(pieces)
    if len(distinct) > MAX_ARENAS:
        raise InvalidArgumentError(
            f"the buffers lie in {len(distinct)} allocations, and a stream may have {MAX_ARENAS}"
        )
    arenas: list[Arena] = []
    # Of each region, by its first byte: the first arena of its run, and that one's first byte.
    heads: dict[int, tuple[int, int]] = {}
    try:
        for origin, region in distinct:
            before = arenas[-1] if arenas else None
            joined = origin is MemoryOrigin.VIRTUAL and _ends_at(before, region.base)
            head = (len(arenas), region.base)
            heads[region.base] = heads[before.address] if joined and before else head
            arenas.append(_arena(origin, region, gpu, memory, continues=joined))
    except BaseException:
        for arena in arenas:
            arena.close()
        raise
    places = []
    for extent, piece in zip(extents, pieces, strict=True):
        arena_number, base = heads[piece.regions[0].base]
        places.append(SlotPlace(arena_number, extent.address - base))
    return tuple(arenas), tuple(places)


def _piece(number: int, extent: Extent, gpu: Gpu) -> _Piece:
    """Return what a frame lies in, all of it."""
    origin = origin_of(extent.address, gpu.ordinal)
    if reason := _REASONS.get(origin):
        raise UnsupportedError(f"buffer {number} cannot be shared: {reason}; {WAY_OUT}")
    if (where := ordinal_of(extent.address, gpu.ordinal)) != gpu.ordinal:
        raise InvalidArgumentError(
            f"buffer {number} is on GPU {where}, and the stream on GPU {gpu.ordinal}: all buffers "
            f"of a stream are on one"
        )
    regions: list[Region] = []
    end = extent.address + extent.nbytes
    at = extent.address
    while at < end:
        try:
            region = region_of(at, gpu.ordinal)
        except CudaError as error:
            raise InvalidArgumentError(
                f"buffer {number} reaches {end - at} bytes beyond its memory: {error}"
            ) from error
        regions.append(region)
        at = region.end
        if origin is MemoryOrigin.PLAIN and at < end:
            raise UnsupportedError(
                f"buffer {number} cannot be shared: its planes lie in several allocations, whose "
                f"distance another process does not have; {WAY_OUT}"
            )
    return _Piece(origin, tuple(regions))


def _distinct(pieces: Sequence[_Piece]) -> list[tuple[MemoryOrigin, Region]]:
    """Return each region once, by address."""
    found = {region.base: (piece.origin, region) for piece in pieces for region in piece.regions}
    return [found[base] for base in sorted(found)]


def _ends_at(arena: Arena | None, address: int) -> bool:
    return isinstance(arena, RetainedArena) and arena.address + arena.nbytes == address


def _arena(
    origin: MemoryOrigin, region: Region, gpu: Gpu, memory: object, *, continues: bool
) -> Arena:
    try:
        if origin is MemoryOrigin.VIRTUAL:
            return RetainedArena(region, gpu, memory, continues=continues)
        return IpcArena.share(region, gpu, memory)
    except CudaError as error:
        asked = (
            "whoever made it did not ask for shareable handles"
            if origin is MemoryOrigin.VIRTUAL
            else "it may be of a pool, or not the GPU's"
        )
        raise UnsupportedError(
            f"the memory of {region.nbytes} bytes at {region.base:#x} cannot be shared ({error}): "
            f"{asked}; {WAY_OUT}"
        ) from error
