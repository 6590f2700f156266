"""What GStreamer's ``cudaipcsink`` and its clients say to each other.

The protocol is GStreamer's own (elements ``cudaipcsink`` and ``cudaipcsrc``, since 1.24). It has no
version; a packet is a header and a payload, little-endian.
"""

from __future__ import annotations

import dataclasses
import enum
import struct
from typing import Final, TypeAlias

__all__ = [
    "HANDLE_NBYTES",
    "HEADER",
    "MAGIC",
    "MAX_PAYLOAD",
    "Config",
    "End",
    "Kind",
    "Message",
    "Offer",
    "Request",
]

MAGIC: Final = 0xC0DA10C0
HEADER: Final = struct.Struct("<BII")
"""Type, bytes of payload, magic."""

MAX_PAYLOAD: Final = 65536
"""Bytes. The protocol has no limit; real packets have some hundreds, of which most are caps."""

HANDLE_NBYTES: Final = 64
"""Of a legacy CUDA IPC handle (CU_IPC_HANDLE_SIZE, cuda.h)."""


class Kind(enum.IntEnum):
    """The type of a packet."""

    CONFIG = 1
    NEED_DATA = 2
    HAVE_DATA = 3
    READ_DONE = 4
    RELEASE_DATA = 5
    HAVE_MMAP_DATA = 6
    RELEASE_MMAP_DATA = 7
    EOS = 8
    FIN = 9


@dataclasses.dataclass(frozen=True, slots=True)
class Config:
    """The first packet of a connection; it comes with the first frame of the pipeline."""

    pid: int  #: the pipeline's process, in its own PID namespace
    is_mmap: bool  #: frames come as descriptors; else as legacy handles
    caps: str


@dataclasses.dataclass(frozen=True, slots=True)
class Offer:
    """A frame: the answer to "need data".

    Attributes
    ----------
    pts_ns
        When the sink was to show it, in nanoseconds of CLOCK_MONOTONIC.
    size
        Bytes of the frame.
    max_size
        Bytes of the allocation that it lies in.
    pitch
        Bytes from row to row, in every plane.
    offsets
        Bytes from the start of the allocation to each plane; always four, unused ones are 0.
    token
        What names the memory and is given back with the frame: a legacy handle, or the four bytes
        of the descriptor's number in the pipeline's process.
    is_mmap
        Whether a descriptor came with it.
    caps
        New caps, None where they are as before.
    """

    pts_ns: int
    size: int
    max_size: int
    pitch: int
    offsets: tuple[int, int, int, int]
    token: bytes
    is_mmap: bool
    caps: str | None


@dataclasses.dataclass(frozen=True, slots=True)
class End:
    """The sink stops; it waits for its frames, and then for the end of the connection."""


Message: TypeAlias = Config | Offer | End


@dataclasses.dataclass(frozen=True, slots=True)
class Request:
    """What a client says."""

    kind: Kind
    token: bytes = b""  #: of the frame that it gives back, else nothing
