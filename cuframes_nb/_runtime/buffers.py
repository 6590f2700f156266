"""The user's own buffers as a ring's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from cuframes_nb._cuda import devices
from cuframes_nb._memory.arena import Arena, Share, Shareable
from cuframes_nb._memory.external import Extent, borrow
from cuframes_nb._runtime.array_frames import address_of, check_on_gpu, frame_of
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._runtime.ring_memory import RingMemory, Span
from cuframes_nb._wire.messages import MemoryKind, SlotPlace
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout

__all__ = ["BackendOf", "share_buffers"]

BackendOf = Callable[[int | None], Backend]
"""Return the backend for memory on a GPU, by its ordinal, or on the host, for None; raises if the
user asked for something else."""


def share_buffers(
    buffers: Sequence[Any], wanted: FrameLayout, pitch: object, backend_of: BackendOf
) -> RingMemory:
    """Share each buffer where it lies.

    Parameters
    ----------
    buffers
        Arrays on a GPU, sequences of their planes, or objects that share themselves.
    wanted
        Format, size, and the pitch if one was asked for.
    pitch
        The pitch that was asked for, None if none was.
    backend_of
        Chooses the backend.

    Raises
    ------
    InvalidArgumentError
        If they do not hold such frames, all laid out alike, or are not all of one kind.
    UnsupportedError
        If they cannot be shared; the message says why, and what can be done instead.
    """
    selves = [isinstance(buffer, Shareable) for buffer in buffers]
    if all(selves):
        memory = _share_selves(buffers, wanted, backend_of)
    elif any(selves):
        raise InvalidArgumentError("buffers are either all arrays, or all share themselves")
    else:
        memory = _share_arrays(buffers, wanted, backend_of)
    try:
        _check_pitch(memory.layout, pitch)
        _check_apart(memory.spans)
    except BaseException:
        memory.close()
        raise
    return memory


# --- Buffers that share themselves ----------------------------------------------------------------


def _share_selves(
    buffers: Sequence[Shareable], wanted: FrameLayout, backend_of: BackendOf
) -> RingMemory:
    shares: list[Share] = []
    try:
        for number, buffer in enumerate(buffers):
            shares.append(buffer.__cuframes_share__(wanted))
            _check_alike(number, shares[-1].layout, shares[0].layout, wanted)
        backend = backend_of(_one_device(shares))
        if shares[0].arena.kind is MemoryKind.VULKAN:
            from cuframes_nb._runtime import vulkan_backend

            backend = vulkan_backend.for_publisher(backend)
        arenas: dict[Any, Arena] = {}
        for share in shares:
            if arenas.setdefault(share.arena.identity, share.arena) is not share.arena:
                share.arena.close()
        numbers = {identity: number for number, identity in enumerate(arenas)}
        end = max(plane.end for plane in shares[0].layout.planes)
        return RingMemory(
            backend,
            shares[0].layout,
            tuple(arenas.values()),
            tuple(SlotPlace(numbers[s.arena.identity], s.offset) for s in shares),
            _told(backend, tuple(arenas.values()), len(buffers)),
            tuple(buffers),
            tuple(map(address_of, buffers)),
            tuple(Span(s.arena.identity, s.offset, s.offset + end) for s in shares),
        )
    except BaseException:
        for share in shares:
            share.arena.close()
        raise


def _one_device(shares: Sequence[Share]) -> int | None:
    devices = {share.arena.device for share in shares}
    if len(devices) > 1:
        raise InvalidArgumentError(
            f"the buffers are on several devices ({sorted(map(str, devices))}): all buffers of a "
            f"stream are on one"
        )
    return devices.pop()


# --- Arrays ---------------------------------------------------------------------------------------


def _share_arrays(buffers: Sequence[Any], wanted: FrameLayout, backend_of: BackendOf) -> RingMemory:
    from cuframes_nb._runtime.cuda_backend import require_cupy

    for number, buffer in enumerate(buffers):
        check_on_gpu(number, buffer)
    require_cupy()
    frames = [frame_of(number, buffer, wanted) for number, buffer in enumerate(buffers)]
    layout = frames[0][1]
    for number, (_, other) in enumerate(frames):
        _check_alike(number, other, layout, wanted)
    arrays = [planes for planes, _ in frames]
    backend = backend_of(arrays[0][0].device.id)
    end = max(plane.end for plane in layout.planes)
    extents = [Extent(planes[0].data.ptr, end) for planes in arrays]
    gpu = devices.gpu(arrays[0][0].device.id)
    # The arrays as well: they hold what their makers lent us.
    arenas, places = borrow(extents, gpu, (buffers, arrays))
    return RingMemory(
        backend,
        layout,
        arenas,
        places,
        _told(backend, arenas, len(buffers)),
        tuple(buffers),
        tuple(extent.address for extent in extents),
        tuple(Span("cuda", e.address, e.address + e.nbytes) for e in extents),
    )


# --- Both -----------------------------------------------------------------------------------------


def _check_alike(number: int, layout: FrameLayout, first: FrameLayout, wanted: FrameLayout) -> None:
    ours, theirs = ((one.format, one.width, one.height) for one in (wanted, layout))
    if ours != theirs:
        raise InvalidArgumentError(
            f"buffer {number} holds {theirs[0]} frames of {theirs[1]}x{theirs[2]}, and the stream "
            f"has {ours[0]} at {ours[1]}x{ours[2]}"
        )
    if layout != first:
        places = [[(p.offset, p.pitch) for p in one.planes] for one in (first, layout)]
        raise InvalidArgumentError(
            f"buffer {number} is laid out otherwise than buffer 0: planes at (offset, pitch) "
            f"{places[1]} and not {places[0]}; all buffers of a stream are alike"
        )


def _check_pitch(layout: FrameLayout, pitch: object) -> None:
    found = [plane.pitch for plane in layout.planes]
    asked = list(pitch) if isinstance(pitch, Sequence) else [pitch] * len(found)
    if pitch is not None and asked != found:
        raise InvalidArgumentError(
            f"pitch={pitch!r} was asked for, and the buffers have {found}: leave pitch= out"
        )


def _check_apart(spans: Sequence[Span]) -> None:
    for number, span in enumerate(spans):
        for other in range(number):
            if span.overlaps(spans[other]):
                raise InvalidArgumentError(
                    f"buffers {other} and {number} have bytes in common: each frame needs its own"
                )


def _told(backend: Backend, arenas: Sequence[Arena], count: int) -> str:
    """Return how the buffers are shared, for people."""
    legacy = sum(arena.kind is MemoryKind.CUDA_IPC for arena in arenas)
    ways = "legacy handles" if legacy == len(arenas) else "descriptors"
    if 0 < legacy < len(arenas):
        ways = "descriptors and legacy handles"
    return f"{count} buffers of the user's {backend.reason}, shared by {ways}"
