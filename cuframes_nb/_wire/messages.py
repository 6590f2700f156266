"""What the two ends of a control connection can say."""

from __future__ import annotations

import dataclasses
import enum
from typing import ClassVar, Final

from cuframes_nb.color import ColorSpec
from cuframes_nb.formats import FrameLayout

__all__ = [
    "MAX_ARENAS",
    "MAX_SLOTS",
    "MAX_SUBSCRIBERS",
    "MESSAGE_TYPES",
    "ArenaDescription",
    "Completion",
    "Epoch",
    "Goodbye",
    "Hello",
    "MemoryKind",
    "Message",
    "Passed",
    "Policy",
    "Query",
    "ReadMode",
    "Refuse",
    "RingDescription",
    "SlotPlace",
    "Status",
    "SubscriberStatus",
    "Tiling",
    "Welcome",
]

MAX_SLOTS: Final = 64
"""Slots of one ring; the control block has room for as many."""

MAX_ARENAS: Final = MAX_SLOTS
"""Arenas of one ring: at most one a slot."""

MAX_SUBSCRIBERS: Final = 256
"""Subscribers of one stream: each slot has that many lock bytes."""


class MemoryKind(enum.IntEnum):
    """How an arena is shared."""

    HOST = 1  #: a sealed memfd
    CUDA_VMM = 2  #: a POSIX descriptor of a CUDA allocation (cuMemExportToShareableHandle)
    CUDA_IPC = 3  #: a legacy CUDA IPC handle in ``handle``
    VULKAN = 4  #: an opaque descriptor of Vulkan memory

    @property
    def label(self) -> str:
        """The name that people see, e.g. ``cuda-vmm``."""
        return self.name.lower().replace("_", "-")


class Tiling(enum.IntEnum):
    """How pixels are ordered in an arena."""

    LINEAR = 0  #: rows of ``pitch`` bytes
    OPTIMAL = 1  #: the driver's own order; readable only through the driver


class Completion(enum.IntEnum):
    """Who writes the completion word of a slot."""

    HOST = 1  #: the publisher's CPU, after the pixels are complete
    GPU = 2  #: the GPU, behind the work that writes the pixels


class Policy(enum.IntEnum):
    """What the publisher does when every slot is in use."""

    DROP_OLDEST = 1  #: drop the frame and go on
    STRICT_WAIT = 2  #: wait for the strict subscribers


class ReadMode(enum.IntEnum):
    """Which frames a subscriber wants."""

    NEWEST = 1  #: the newest only
    STRICT = 2  #: each one in order


@dataclasses.dataclass(frozen=True, slots=True)
class ArenaDescription:
    """One shareable memory allocation.

    Attributes
    ----------
    kind
        How it is shared.
    nbytes
        Size of the allocation.
    has_fd
        Whether a descriptor for it travels with the message.
    device_uuid
        The 16 bytes of the GPU's UUID; zeros for host memory.
    tiling
        Order of the pixels.
    data_offset
        Bytes from the start of the allocation to what slot offsets count from.
    handle
        Kind-specific bytes, e.g. a legacy IPC handle; at most 512.
    external
        Whether the memory was made by somebody else than the stream, e.g. a decoder: other things
        may lie in it.
    continues
        Whether it lies right behind the arena before, as one range of addresses: a slot of that
        one may reach into it, and none begins in it.
    """

    kind: MemoryKind
    nbytes: int
    has_fd: bool = True
    device_uuid: bytes = bytes(16)
    tiling: Tiling = Tiling.LINEAR
    data_offset: int = 0
    handle: bytes = b""
    external: bool = False
    continues: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class SlotPlace:
    """Where a slot lies: which arena, and how many bytes from its data offset."""

    arena: int
    offset: int


@dataclasses.dataclass(frozen=True, slots=True)
class RingDescription:
    """One configuration of a ring."""

    layout: FrameLayout
    color: ColorSpec
    fps: float
    policy: Policy
    completion: Completion
    arenas: tuple[ArenaDescription, ...]
    slots: tuple[SlotPlace, ...]

    def run(self, arena: int) -> range:
        """Return the numbers of `arena` and of those that continue it."""
        end = arena + 1
        while end < len(self.arenas) and self.arenas[end].continues:
            end += 1
        return range(arena, end)


class Message:
    """Base of all messages; `code` is the number on the wire."""

    __slots__ = ()
    code: ClassVar[int]

    @property
    def fd_count(self) -> int:
        """How many descriptors travel with this message."""
        return 0


@dataclasses.dataclass(frozen=True, slots=True)
class Hello(Message):
    """A subscriber introduces itself."""

    code: ClassVar[int] = 1
    pid: int
    mode: ReadMode
    name: str  #: for people; at most 64 bytes of UTF-8


@dataclasses.dataclass(frozen=True, slots=True)
class Welcome(Message):
    """The publisher takes a subscriber in; carries its end of the wake-up sockets."""

    code: ClassVar[int] = 2
    key: str
    pid: int
    index: int  #: the subscriber's lock byte in each slot
    start_seq: int  #: a strict subscriber gets the frames after this one

    @property
    def fd_count(self) -> int:
        """One: the wake-up socket."""
        return 1


@dataclasses.dataclass(frozen=True, slots=True)
class Epoch(Message):
    """A (new) configuration; carries the control block and each arena's descriptor, in order."""

    code: ClassVar[int] = 3
    epoch: int
    control_nbytes: int
    ring: RingDescription

    @property
    def fd_count(self) -> int:
        """One for the control block, and one for each arena that has one."""
        return 1 + sum(arena.has_fd for arena in self.ring.arenas)


@dataclasses.dataclass(frozen=True, slots=True)
class Passed(Message):
    """A strict subscriber holds, or has done with, every frame up to `seq`."""

    code: ClassVar[int] = 4
    seq: int


@dataclasses.dataclass(frozen=True, slots=True)
class Refuse(Message):
    """The publisher does not take a connection. Its bytes are the same in every version."""

    code: ClassVar[int] = 5
    reason: str  #: an error's ``code``
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Goodbye(Message):
    """The publisher ends the stream."""

    code: ClassVar[int] = 6
    text: str


@dataclasses.dataclass(frozen=True, slots=True)
class Query(Message):
    """Somebody only wants to know about the stream."""

    code: ClassVar[int] = 7


@dataclasses.dataclass(frozen=True, slots=True)
class SubscriberStatus:
    """One subscriber as the publisher sees it."""

    index: int
    pid: int
    uid: int
    mode: ReadMode
    holds: int  #: slots it holds a lease on
    name: str


@dataclasses.dataclass(frozen=True, slots=True)
class Status(Message):
    """The answer to a query."""

    code: ClassVar[int] = 8
    key: str
    pid: int
    epoch: int
    started_ns: int  #: CLOCK_MONOTONIC
    published: int
    dropped: int
    last_publish_ns: int  #: CLOCK_MONOTONIC; 0 before the first frame
    ring: RingDescription
    subscribers: tuple[SubscriberStatus, ...]


MESSAGE_TYPES: Final[tuple[type[Message], ...]] = (
    Hello, Welcome, Epoch, Passed, Refuse, Goodbye, Query, Status,
)  # fmt: skip
