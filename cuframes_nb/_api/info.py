"""What is known about a stream, as one value."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from cuframes_nb._core.clock import now_ns
from cuframes_nb._core.uuids import uuid_text
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind, Status, Tiling
from cuframes_nb.color import ColorSpec
from cuframes_nb.formats import PixelFormat

__all__ = ["StreamInfo", "SubscriberInfo", "describe"]

_STALLED_NS: Final = 2_000_000_000
_STALLED_FRAMES: Final = 10
"""Without a new frame for so long and so many frame times, a stream is stalled."""


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriberInfo:
    """One subscriber, as its publisher sees it."""

    name: str  #: what it calls itself
    pid: int  #: 0 if it is in another PID namespace
    uid: int
    mode: str  #: ``"newest"`` or ``"strict"``
    holds: int  #: slots it is reading


@dataclasses.dataclass(frozen=True, slots=True)
class StreamInfo:
    """What is known about a stream.

    Attributes
    ----------
    key, path
        Its name, and where its socket is.
    state
        ``"live"``, ``"stalled"`` (the publisher is there, and no frame came for two seconds and ten
        frame times; only where `fps` is known), ``"waiting"`` (a subscriber without its publisher)
        or ``"closed"``.
    pid
        The publisher's process, 0 if unknown.
    format, width, height, fps, color
        What the frames are; sizes in pixels, `fps` 0 if the publisher did not say.
    pitches
        Bytes from row to row of each plane.
    memory
        Kind of memory: ``"host"``, ``"cuda-vmm"``, ``"cuda-ipc"``, ``"vulkan"`` or ``"gst (…)"``.
    memory_reason
        Why that kind, or how it is mapped here.
    device
        UUID of the GPU that holds the frames (``"GPU-…"``), None for host memory.
    completion
        ``"gpu"`` (written by the GPU, `publish` does not wait) or ``"host"``.
    completion_reason
        Why, where this process knows.
    policy, slots, epoch
        The ring: what happens when it is full, its size, its configuration's number.
    published, dropped
        Frames since the publisher started, and frames that found no slot.
    age_ns
        Nanoseconds since the last frame was published, None before the first.
    uptime_ns
        Nanoseconds since the publisher started, None if unknown.
    subscribers
        Who reads it; None where this process cannot know (a subscriber sees only itself).
    ownership
        Whose memory the frames lie in: ``"library"`` (the publisher's ring) or ``"external"``
        (buffers that the publisher's user made).
    sharing
        How the frames reach a subscriber: ``"descriptor"``, ``"legacy handle"`` (which maps for
        writing, too, and does not keep the memory when its owner frees it) or ``"copied"``; of a
        subscriber that reads frames of another GPU, ``"peer"`` or ``"copied"``.
    """

    key: str
    path: Path
    state: str
    pid: int
    format: PixelFormat
    width: int
    height: int
    fps: float
    color: ColorSpec
    pitches: tuple[int, ...]
    memory: str
    memory_reason: str
    device: str | None
    completion: str
    completion_reason: str
    policy: str
    slots: int
    epoch: int
    published: int
    dropped: int
    age_ns: int | None
    uptime_ns: int | None
    subscribers: tuple[SubscriberInfo, ...] | None
    ownership: str = "library"
    sharing: str = "descriptor"


def describe(
    status: Status,
    path: Path,
    *,
    state: str = "live",
    memory_reason: str = "",
    completion_reason: str = "",
    sharing: str = "",
    complete: bool = True,
) -> StreamInfo:
    """Return a publisher's status as people read it.

    `sharing` is how its frames come to the one who asks, if not as the publisher shares them.
    """
    now = now_ns()
    ring = status.ring
    layout = ring.layout
    uuid = ring.arenas[0].device_uuid
    age_ns = now - status.last_publish_ns if status.last_publish_ns else None
    if state == "live" and _is_stalled(ring.fps, age_ns):
        state = "stalled"
    return StreamInfo(
        key=status.key,
        path=path,
        state=state,
        pid=status.pid,
        format=layout.format,
        width=layout.width,
        height=layout.height,
        fps=ring.fps,
        color=ring.color,
        pitches=tuple(plane.pitch for plane in layout.planes),
        memory=ring.arenas[0].kind.label,
        memory_reason=memory_reason,
        device=uuid_text(uuid) if any(uuid) else None,
        completion=ring.completion.name.lower(),
        completion_reason=completion_reason,
        policy=ring.policy.name.lower().replace("_", "-"),
        slots=len(ring.slots),
        epoch=status.epoch,
        published=status.published,
        dropped=status.dropped,
        age_ns=age_ns,
        uptime_ns=now - status.started_ns if status.started_ns else None,
        subscribers=tuple(
            SubscriberInfo(s.name, s.pid, s.uid, s.mode.name.lower(), s.holds)
            for s in status.subscribers
        )
        if complete
        else None,
        ownership="external" if any(arena.external for arena in ring.arenas) else "library",
        sharing=sharing or _sharing(ring.arenas),
    )


def _sharing(arenas: Sequence[ArenaDescription]) -> str:
    """Return how the pixels reach a subscriber, the least good where there are several ways."""
    if any(arena.tiling is Tiling.OPTIMAL for arena in arenas):
        return "copied"
    if any(arena.kind is MemoryKind.CUDA_IPC for arena in arenas):
        return "legacy handle"
    return "descriptor"


def _is_stalled(fps: float, age_ns: int | None) -> bool:
    if not fps or age_ns is None:
        return False
    return age_ns > max(_STALLED_NS, _STALLED_FRAMES * 1e9 / fps)
