"""The memory of a stream of ours, to be handed on as it came: by descriptor, without mapping it.

What a pipeline gets is the descriptor that the publisher sent. So nothing here touches a pixel,
and the process that serves pipelines needs no driver.
"""

from __future__ import annotations

import itertools
import struct
import weakref
from collections.abc import Collection, Sequence
from typing import Final, NamedTuple, cast

from cuframes_nb._memory.arena import Arena, Part
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._runtime.leases import Lease, LeaseTable
from cuframes_nb._views.planes import PlaneSource
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["CUDA", "Forwarder", "Place", "Slot"]

CUDA: Final = frozenset({MemoryKind.CUDA_VMM})
"""What GStreamer's client can map by descriptor."""

_LARGEST: Final = 2**32 - 1
"""Sizes and offsets have 32 bits on the wire."""

_TOKEN: Final = struct.Struct("<i")

_WAYS_OUT: Final = {
    MemoryKind.HOST: "publish with memory='cuda' on a machine with an NVIDIA GPU",
    MemoryKind.CUDA_IPC: (
        "legacy handles do not tell apart the frames in one allocation when a pipeline gives them "
        "back; publish with ownership='library'"
    ),
    MemoryKind.VULKAN: "copy its frames to a stream with memory='cuda', with Publisher.write",
}


class Place(NamedTuple):
    """Where a frame lies, as GStreamer is told."""

    fd: OwnedFd  #: of the allocation; the ring's
    max_size: int  #: bytes of the allocation
    size: int  #: bytes from its start to the end of the frame
    pitch: int  #: bytes from row to row, in every plane
    offsets: tuple[int, int, int, int]  #: from the start of the allocation to each plane
    token: bytes  #: names the slot, and never another


class Slot:
    """A slot whose memory is handed on; what a frame of such a stream has for planes.

    Parameters
    ----------
    memory
        What it lies in.
    offset
        Bytes to it from there.
    layout
        What lies there.
    number
        Of this slot and never another.
    """

    __slots__ = ("__weakref__", "_layout", "_memory", "_number", "_offset", "_place")

    def __init__(self, memory: _Descriptors, offset: int, layout: FrameLayout, number: int) -> None:
        self._memory = memory
        self._offset = offset
        self._layout = layout
        self._number = number
        self._place: Place | None = None

    def place(self) -> Place:
        """Return where it is.

        Raises
        ------
        UnsupportedError
            If GStreamer's protocol has no words for that.
        """
        if self._place is None:
            fd, max_size, start = self._memory.find(self._offset, self._layout.nbytes)
            begin = self._offset - start
            a, b, c, d = (*(begin + plane.offset for plane in self._layout.planes), 0, 0, 0)[:4]
            self._place = Place(
                fd,
                max_size,
                begin + self._layout.nbytes,
                _one_pitch(self._layout),
                (a, b, c, d),
                _TOKEN.pack(self._number),
            )
        return self._place


class Forwarder:
    """What the session with a stream makes its epoch of, instead of mapped memory.

    Of a backend it has what a subscriber needs.

    Parameters
    ----------
    kinds
        The kinds of memory that can be handed on.
    """

    reason = "descriptors, handed on to GStreamer"
    sharing = ""  # as the publisher does
    lease_maker = Lease  # whoever reads says when the GPU has

    def __init__(self, kinds: Collection[MemoryKind] = CUDA) -> None:
        self._kinds = kinds
        self._numbers = itertools.count(1)
        self._slots: weakref.WeakSet[Slot] = weakref.WeakSet()

    def check(self) -> None:
        """Raise if GStreamer cannot be told where some slot lies.

        Raises
        ------
        UnsupportedError
            Then.
        """
        for slot in self._slots:
            slot.place()

    def backend_for(self, description: ArenaDescription) -> Backend:
        """Return itself, as a session asks for it.

        Raises
        ------
        UnsupportedError
            If memory of that kind cannot be handed on.
        """
        kind = description.kind
        if kind not in self._kinds:
            raise UnsupportedError(
                f"GStreamer's cudaipcsrc reads GPU memory by descriptor, and the frames are in "
                f"memory of kind {kind.label}: {_WAYS_OUT[kind]}"
            )
        return cast("Backend", self)

    def attach_arena(self, parts: Sequence[Part], *, writable: bool) -> Arena:
        """Keep the descriptors."""
        del writable
        return cast("Arena", _Descriptors(parts))

    def planes(self, arena: Arena, offset: int, layout: FrameLayout) -> PlaneSource:
        """Return the `Slot`; nobody makes arrays of it."""
        slot = Slot(cast("_Descriptors", arena), offset, layout, next(self._numbers))
        self._slots.add(slot)
        return cast("PlaneSource", slot)

    def pending_releases(self, table: LeaseTable) -> int:
        """Return 0: nothing waits for a GPU."""
        del table
        return 0


class _Descriptors:
    """One or more allocations, one behind the other, that are not mapped."""

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts: list[tuple[OwnedFd, int]] = []
        for part in parts:
            fd = OwnedFd(part.descriptor().take())
            fd.let_drop()  # frames may end in a garbage cycle, in any order
            self._parts.append((fd, part.description.nbytes))

    def find(self, offset: int, nbytes: int) -> tuple[OwnedFd, int, int]:
        """Return descriptor and size of the allocation that has it all, and where that begins."""
        starts = itertools.accumulate((size for _, size in self._parts), initial=0)
        for (fd, size), start in zip(self._parts, starts, strict=False):
            if start <= offset and offset + nbytes <= start + size:
                if size > _LARGEST:
                    raise UnsupportedError(
                        f"GStreamer's protocol has room for allocations up to {_LARGEST} bytes, "
                        f"and this ring's has {size}: publish with a smaller ring_size"
                    )
                return fd, size, start
        raise UnsupportedError(
            "a frame of this stream lies across two allocations, and GStreamer's protocol has room "
            "for one descriptor a frame: publish with ownership='library'"
        )

    def close(self) -> None:
        for fd, _ in self._parts:
            fd.close()


def _one_pitch(layout: FrameLayout) -> int:
    pitches = {plane.pitch for plane in layout.planes}
    if len(pitches) > 1:
        raise UnsupportedError(
            f"GStreamer's protocol has one pitch for all planes, and this stream's have "
            f"{', '.join(map(str, sorted(pitches)))} bytes: publish with one"
        )
    return pitches.pop()
