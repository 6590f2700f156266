"""Frames that one GPU holds, read on another: mapped into it, or copied to it."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Final

from cuframes_nb._core.uuids import uuid_text
from cuframes_nb._cuda import devices, nvml
from cuframes_nb._cuda.devices import Gpu
from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._memory.vmm import Home
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._runtime.cuda_backend import CudaBackend, require_cupy
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb.errors import DeviceError
from cuframes_nb.formats import FrameLayout

__all__ = ["CopyBackend", "PeerBackend", "for_subscriber"]

_HINT: Final = "or subscribe with peer=True, which maps them into a GPU that this process sees"


def for_subscriber(
    uuid: bytes, device: str | int | None, *, peer: bool, copy_to: str | int | None
) -> Backend:
    """Return the backend for frames that the GPU of that UUID holds.

    Parameters
    ----------
    uuid
        Of the GPU.
    device, peer, copy_to
        As `subscribe` has them.

    Raises
    ------
    DeviceError
        If there is no GPU that can read the frames as asked for.
    UnsupportedError
        If CuPy is missing.
    """
    if peer:
        require_cupy()
        reader, reason = devices.select_peer(uuid_text(uuid), device)
        holder = devices.visible(uuid)
        if reader == holder:
            return CudaBackend(reader, reason)
        return PeerBackend(reader, reason, Home(uuid, holder and holder.ordinal))
    source = CudaBackend.for_subscriber(uuid, device, _HINT)
    if copy_to is None:
        return source
    target, _ = devices.select(copy_to, "copy_to")
    return source if target == source.gpu else CopyBackend(target, source)


class PeerBackend(CudaBackend):
    """Memory of one GPU, read by another that it is mapped into.

    Parameters
    ----------
    gpu
        The GPU that reads.
    reason
        Why that one.
    home
        The GPU that holds the memory.
    """

    sharing = "peer"

    def __init__(self, gpu: Gpu, reason: str, home: Home) -> None:
        way = _way_between(gpu.uuid_text, uuid_text(home.uuid))
        mapped = f"{reason}, mapped into {gpu.name} (cuda:{gpu.ordinal}){way}"
        super().__init__(gpu, mapped, home)


class CopyBackend(CudaBackend):
    """Memory of one GPU, of which each frame is copied to another.

    Parameters
    ----------
    gpu
        The GPU that the copies are on, whose streams also hold the leases.
    source
        What maps the memory, on the GPU that holds it.
    """

    sharing = "copied"

    def __init__(self, gpu: Gpu, source: CudaBackend) -> None:
        super().__init__(
            gpu, f"{source.reason}, each is copied to {gpu.name} (cuda:{gpu.ordinal}), as asked for"
        )
        self._source = source

    def attach_arena(self, parts: Sequence[Part], *, writable: bool) -> Arena:
        return self._source.attach_arena(parts, writable=writable)

    def planes(self, arena: Arena, offset: int, layout: FrameLayout) -> PlaneSource:
        from cuframes_nb._views.peers import PeerPlanes

        there = self._source.planes(arena, offset, layout).on_gpu()
        assert there is not None  # noqa: S101  what a CudaBackend maps is on a GPU
        return PeerPlanes(there, layout, self.gpu.ordinal)


def _way_between(uuid: str, other: str) -> str:
    """Return how two GPUs reach each other, in words; empty where NVML does not tell."""
    with contextlib.suppress(DeviceError):
        for board in nvml.look().boards:
            if board.uuid == uuid and other in board.nvlink_peers:
                return " over NVLink"
            if board.uuid == uuid and other in board.peers:
                return " over PCI Express"
    return ""
