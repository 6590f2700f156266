"""A pipeline's stream in our own terms."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from cuframes_nb._api.info import StreamInfo, describe
from cuframes_nb._wire.messages import (
    ArenaDescription,
    Completion,
    MemoryKind,
    Policy,
    RingDescription,
    Status,
)
from cuframes_nb.bridges.gst.caps import Caps
from cuframes_nb.formats import FrameLayout

__all__ = ["pipeline_info", "pipeline_ring"]


def pipeline_ring(
    caps: Caps, layout: FrameLayout, nbytes: int, device_uuid: bytes, *, is_mmap: bool
) -> RingDescription:
    """Return what a pipeline's frames are; it has no ring, and so no slots."""
    kind = MemoryKind.CUDA_VMM if is_mmap else MemoryKind.CUDA_IPC
    arena = ArenaDescription(kind, nbytes, is_mmap, device_uuid, external=True)
    return RingDescription(
        layout, caps.color, caps.fps, Policy.DROP_OLDEST, Completion.HOST, (arena,), ()
    )


def pipeline_info(
    key: str,
    path: Path,
    ring: RingDescription,
    *,
    pid: int,
    epoch: int,
    state: str,
    published: int,
    last_ns: int,
    reason: str,
) -> StreamInfo:
    """Return what is known about a pipeline's stream.

    Parameters
    ----------
    published
        Frames that came, 0 for whoever does not subscribe.
    last_ns
        When the last one was to be shown.
    reason
        How its memory is mapped, for people.
    """
    status = Status(
        key=key,
        pid=pid,
        epoch=epoch,
        started_ns=0,
        published=published,
        dropped=0,
        last_publish_ns=last_ns,
        ring=ring,
        subscribers=(),
    )
    info = describe(
        status,
        path,
        state=state,
        memory_reason=reason,
        completion_reason="the pipeline waits for its GPU before it offers a frame",
        complete=False,
    )
    is_mmap = ring.arenas[0].kind is MemoryKind.CUDA_VMM
    return dataclasses.replace(info, memory=f"gst ({'mmap' if is_mmap else 'legacy'})")
