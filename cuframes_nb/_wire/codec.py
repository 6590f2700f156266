"""Messages to bytes and back. Little-endian; every message has magic, version, type and length."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeVar

from cuframes_nb import color as colors
from cuframes_nb._wire.messages import (
    MAX_ARENAS,
    MAX_SLOTS,
    MAX_SUBSCRIBERS,
    ArenaDescription,
    Completion,
    Epoch,
    Goodbye,
    Hello,
    MemoryKind,
    Message,
    Passed,
    Policy,
    Query,
    ReadMode,
    Refuse,
    RingDescription,
    SlotPlace,
    Status,
    SubscriberStatus,
    Tiling,
    Welcome,
)
from cuframes_nb._wire.vulkan import check as check_vulkan
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import (
    InvalidArgumentError,
    LocalProtocolError,
    RemoteProtocolError,
    VersionMismatchError,
)
from cuframes_nb.formats import FrameLayout, PixelFormat

__all__ = ["MAGIC", "VERSION", "decode", "encode"]

MAGIC: Final = b"CFNB"
VERSION: Final = (1, 0)
"""Major and minor. Another major is refused; a minor only adds fields at a message's end, which may
be ignored."""

HEADER: Final = struct.Struct("<4sBBHIHH")
"""magic, major, minor, type, length of the whole packet, descriptors, 0."""

FORMAT_CODES: Final = {
    PixelFormat.NV12: 1, PixelFormat.P010: 2, PixelFormat.GRAY8: 3,
    PixelFormat.RGB24: 4, PixelFormat.RGBA32: 5,
}  # fmt: skip

_MAX_KEY: Final = 64
_MAX_TEXT: Final = 4096
_MAX_HANDLE: Final = 512
_HAS_FD: Final = 1
_EXTERNAL: Final = 2
_CONTINUES: Final = 4

_COLOR: Final = struct.Struct("<BBBBB")
_RING: Final = struct.Struct("<IIIdBB")
_PLANE: Final = struct.Struct("<QI")
_ARENA: Final = struct.Struct("<HHQ16sIQ")
_SLOT: Final = struct.Struct("<HQ")
_SUBSCRIBER: Final = struct.Struct("<HIIBH")
_COUNT: Final = struct.Struct("<H")
_HELLO: Final = struct.Struct("<IB")
_WELCOME: Final = struct.Struct("<IHQ")
_EPOCH: Final = struct.Struct("<QI")
_PASSED: Final = struct.Struct("<Q")
_STATUS: Final = struct.Struct("<IQQQQQ")

_E = TypeVar("_E")


class _Writer:
    """Collects a message's body."""

    def __init__(self) -> None:
        self.body = bytearray()

    def pack(self, layout: struct.Struct, *values: Any) -> None:
        self.body += layout.pack(*values)

    def text(self, value: str, limit: int) -> None:
        self.blob(value.encode(), limit)

    def blob(self, value: bytes, limit: int) -> None:
        if len(value) > limit:
            raise LocalProtocolError(f"{len(value)} bytes where at most {limit} fit")
        self.pack(_COUNT, len(value))
        self.body += value


class _Reader:
    """Takes a message's body apart; anything that does not fit is the sender's fault."""

    def __init__(self, body: memoryview) -> None:
        self._body = body
        self._at = 0

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        return layout.unpack(self._take(layout.size))

    def count(self, limit: int, what: str) -> int:
        (count,) = self.unpack(_COUNT)
        if count > limit:
            raise RemoteProtocolError(
                f"the message has {count} {what}; at most {limit} are allowed"
            )
        return int(count)

    def blob(self, limit: int, what: str) -> bytes:
        return bytes(self._take(self.count(limit, f"bytes of {what}")))

    def text(self, limit: int, what: str) -> str:
        try:
            return self.blob(limit, what).decode()
        except UnicodeDecodeError:
            raise RemoteProtocolError(f"the message's {what} is not UTF-8") from None

    def finish(self) -> None:
        rest = len(self._body) - self._at
        if rest:
            raise RemoteProtocolError(f"the message has {rest} bytes too many")

    def _take(self, size: int) -> memoryview:
        end = self._at + size
        if end > len(self._body):
            raise RemoteProtocolError(
                f"the message ends at byte {len(self._body)} of its body, inside a field that ends "
                f"at {end}"
            )
        taken, self._at = self._body[self._at : end], end
        return taken


def encode(message: Message) -> bytes:
    """Return `message` as one packet."""
    writer = _Writer()
    _ENCODERS[type(message)](writer, message)
    head = HEADER.pack(
        MAGIC, *VERSION, message.code, HEADER.size + len(writer.body), message.fd_count, 0
    )
    return head + bytes(writer.body)


def decode(packet: bytes, fd_count: int) -> Message:
    """Return the message in `packet`, which came with `fd_count` descriptors.

    Raises
    ------
    VersionMismatchError
        If the sender speaks another major version.
    RemoteProtocolError
        If anything else is wrong; no other exception comes out.
    """
    if len(packet) < HEADER.size:
        raise RemoteProtocolError(f"a packet of {len(packet)} bytes is shorter than a header")
    magic, major, minor, code, length, fds, _ = HEADER.unpack_from(packet)
    if magic != MAGIC:
        raise RemoteProtocolError(
            f"a packet begins with {magic!r} and not {MAGIC!r}: the other side is no cuframes_nb"
        )
    if major != VERSION[0] and code != Refuse.code:
        raise VersionMismatchError(
            f"the other side speaks protocol {major}.{minor} and this one {VERSION[0]}."
            f"{VERSION[1]}: install the same major version on both"
        )
    if length != len(packet):
        raise RemoteProtocolError(f"a packet of {len(packet)} bytes says that it has {length}")
    decoder = _DECODERS.get(code)
    if decoder is None:
        raise RemoteProtocolError(f"message type {code} does not exist in version {VERSION[0]}")
    reader = _Reader(memoryview(packet)[HEADER.size :])
    message = decoder(reader)
    if minor <= VERSION[1]:  # a later minor version may have added fields behind those we know
        reader.finish()
    if not fd_count == fds == message.fd_count:
        raise RemoteProtocolError(
            f"{type(message).__name__} came with {fd_count} descriptors, says {fds} and needs "
            f"{message.fd_count}"
        )
    return message


# --- Each message ---------------------------------------------------------------------------------


def _put_hello(writer: _Writer, hello: Hello) -> None:
    writer.pack(_HELLO, hello.pid, hello.mode)
    writer.text(hello.name, _MAX_KEY)


def _get_hello(reader: _Reader) -> Hello:
    pid, mode = reader.unpack(_HELLO)
    return Hello(pid, _member(ReadMode, mode), reader.text(_MAX_KEY, "name"))


def _put_welcome(writer: _Writer, welcome: Welcome) -> None:
    writer.pack(_WELCOME, welcome.pid, welcome.index, welcome.start_seq)
    writer.text(welcome.key, _MAX_KEY)


def _get_welcome(reader: _Reader) -> Welcome:
    pid, index, start_seq = reader.unpack(_WELCOME)
    if index >= MAX_SUBSCRIBERS:
        raise RemoteProtocolError(f"subscriber index {index} is above {MAX_SUBSCRIBERS - 1}")
    return Welcome(reader.text(_MAX_KEY, "key"), pid, index, start_seq)


def _put_epoch(writer: _Writer, epoch: Epoch) -> None:
    writer.pack(_EPOCH, epoch.epoch, epoch.control_nbytes)
    _put_ring(writer, epoch.ring)


def _get_epoch(reader: _Reader) -> Epoch:
    epoch, control_nbytes = reader.unpack(_EPOCH)
    return Epoch(epoch, control_nbytes, _get_ring(reader))


def _put_passed(writer: _Writer, passed: Passed) -> None:
    writer.pack(_PASSED, passed.seq)


def _get_passed(reader: _Reader) -> Passed:
    return Passed(*reader.unpack(_PASSED))


def _put_refuse(writer: _Writer, refuse: Refuse) -> None:
    writer.text(refuse.reason, _MAX_KEY)
    writer.text(refuse.text[: _MAX_TEXT // 4], _MAX_TEXT)


def _get_refuse(reader: _Reader) -> Refuse:
    return Refuse(reader.text(_MAX_KEY, "reason"), reader.text(_MAX_TEXT, "text"))


def _put_goodbye(writer: _Writer, goodbye: Goodbye) -> None:
    writer.text(goodbye.text[: _MAX_TEXT // 4], _MAX_TEXT)


def _get_goodbye(reader: _Reader) -> Goodbye:
    return Goodbye(reader.text(_MAX_TEXT, "text"))


def _put_query(writer: _Writer, query: Query) -> None:
    del writer, query  # nothing more to say


def _get_query(reader: _Reader) -> Query:
    del reader
    return Query()


def _put_status(writer: _Writer, status: Status) -> None:
    writer.pack(
        _STATUS, status.pid, status.epoch, status.started_ns, status.published, status.dropped,
        status.last_publish_ns,
    )  # fmt: skip
    writer.text(status.key, _MAX_KEY)
    _put_ring(writer, status.ring)
    writer.pack(_COUNT, len(status.subscribers))
    for peer in status.subscribers:
        writer.pack(_SUBSCRIBER, peer.index, peer.pid, peer.uid, peer.mode, peer.holds)
        writer.text(peer.name, _MAX_KEY)


def _get_status(reader: _Reader) -> Status:
    pid, epoch, started_ns, published, dropped, last_publish_ns = reader.unpack(_STATUS)
    key = reader.text(_MAX_KEY, "key")
    ring = _get_ring(reader)
    peers = []
    for _ in range(reader.count(MAX_SUBSCRIBERS, "subscribers")):
        index, peer_pid, uid, mode, holds = reader.unpack(_SUBSCRIBER)
        name = reader.text(_MAX_KEY, "name")
        peers.append(SubscriberStatus(index, peer_pid, uid, _member(ReadMode, mode), holds, name))
    return Status(
        key, pid, epoch, started_ns, published, dropped, last_publish_ns, ring, tuple(peers)
    )


# --- A ring's description -------------------------------------------------------------------------


def _put_ring(writer: _Writer, ring: RingDescription) -> None:
    layout = ring.layout
    writer.pack(
        _RING, FORMAT_CODES[layout.format], layout.width, layout.height, ring.fps, ring.policy,
        ring.completion,
    )  # fmt: skip
    _put_color(writer, ring.color)
    writer.pack(_COUNT, len(layout.planes))
    for plane in layout.planes:
        writer.pack(_PLANE, plane.offset, plane.pitch)
    writer.pack(_COUNT, len(ring.arenas))
    for arena in ring.arenas:
        _put_arena(writer, arena)
    writer.pack(_COUNT, len(ring.slots))
    for slot in ring.slots:
        writer.pack(_SLOT, slot.arena, slot.offset)


def _get_ring(reader: _Reader) -> RingDescription:
    code, width, height, fps, policy, completion = reader.unpack(_RING)
    if not 0 <= fps < 1e6:
        raise RemoteProtocolError(f"a rate of {fps} frames per second cannot be")
    color = _get_color(reader)
    planes = [reader.unpack(_PLANE) for _ in range(reader.count(4, "planes"))]
    layout = _layout(_format(code), width, height, planes)
    arenas = tuple(_get_arena(reader) for _ in range(reader.count(MAX_ARENAS, "arenas")))
    slots = tuple(SlotPlace(*reader.unpack(_SLOT)) for _ in range(reader.count(MAX_SLOTS, "slots")))
    _check_continued(arenas)
    ring = RingDescription(
        layout, color, fps, _member(Policy, policy), _member(Completion, completion), arenas, slots
    )
    _check_extents(ring)
    return ring


def _put_arena(writer: _Writer, arena: ArenaDescription) -> None:
    flags = _HAS_FD * arena.has_fd | _EXTERNAL * arena.external | _CONTINUES * arena.continues
    writer.pack(
        _ARENA, arena.kind, flags, arena.nbytes, arena.device_uuid, arena.tiling, arena.data_offset
    )
    writer.blob(arena.handle, _MAX_HANDLE)


def _get_arena(reader: _Reader) -> ArenaDescription:
    kind, flags, nbytes, uuid, tiling, data_offset = reader.unpack(_ARENA)
    if flags & ~(_HAS_FD | _EXTERNAL | _CONTINUES):
        raise RemoteProtocolError(f"arena flags {flags:#x} are not known")
    arena = ArenaDescription(
        _member(MemoryKind, kind), nbytes, bool(flags & _HAS_FD), uuid, _member(Tiling, tiling),
        data_offset, reader.blob(_MAX_HANDLE, "handle"), bool(flags & _EXTERNAL),
        bool(flags & _CONTINUES),
    )  # fmt: skip
    if not arena.nbytes:
        raise RemoteProtocolError("an arena of 0 bytes cannot be")
    # Whoever maps bytes counts on the check of the extents, which this tiling goes without.
    if arena.tiling is Tiling.OPTIMAL and arena.kind is not MemoryKind.VULKAN:
        raise RemoteProtocolError(
            f"memory of kind {arena.kind.label} has rows of bytes and cannot be tiled"
        )
    return arena


def _put_color(writer: _Writer, color: ColorSpec) -> None:
    writer.pack(
        _COLOR,
        colors.MATRIX_CODES[color.matrix],
        colors.RANGE_CODES[color.range],
        colors.PRIMARIES_CODES[color.primaries] if color.primaries else colors.UNSPECIFIED,
        colors.TRANSFER_CODES[color.transfer] if color.transfer else colors.UNSPECIFIED,
        color.assumed,
    )


def _get_color(reader: _Reader) -> ColorSpec:
    matrix, range_, primaries, transfer, assumed = reader.unpack(_COLOR)
    return ColorSpec(
        _name(colors.MATRIX_CODES, matrix, "matrix"),
        _name(colors.RANGE_CODES, range_, "range"),
        _optional_name(colors.PRIMARIES_CODES, primaries, "primaries"),
        _optional_name(colors.TRANSFER_CODES, transfer, "transfer"),
        assumed=bool(assumed),
    )


def _layout(
    format_: PixelFormat, width: int, height: int, planes: list[tuple[Any, ...]]
) -> FrameLayout:
    try:
        return FrameLayout.make(
            format_,
            width,
            height,
            pitch=[pitch for _, pitch in planes],
            offsets=[offset for offset, _ in planes],
        )
    except InvalidArgumentError as error:
        raise RemoteProtocolError(f"the frame's layout cannot be: {error}") from None


def _check_continued(arenas: Sequence[ArenaDescription]) -> None:
    """Check that whatever continues an arena can lie behind it."""
    before: ArenaDescription | None = None
    for number, arena in enumerate(arenas):
        if arena.continues and (
            before is None
            or arena.kind is not MemoryKind.CUDA_VMM
            or before.kind is not MemoryKind.CUDA_VMM
            or arena.device_uuid != before.device_uuid
            or arena.data_offset
        ):
            raise RemoteProtocolError(
                f"arena {number} says that it continues the one before; only memory of kind "
                f"{MemoryKind.CUDA_VMM.label} on one GPU can, without an offset of its own"
            )
        before = arena


def _check_extents(ring: RingDescription) -> None:
    """Check that every slot lies within its arena, and where its components can be addressed."""
    if not ring.arenas or not ring.slots:
        raise RemoteProtocolError("a ring needs at least one arena and one slot")
    need = max(plane.end for plane in ring.layout.planes)
    itemsize = ring.layout.format.itemsize
    for number, slot in enumerate(ring.slots):
        if slot.arena >= len(ring.arenas):
            raise RemoteProtocolError(
                f"slot {number} lies in arena {slot.arena} of {len(ring.arenas)}"
            )
        arena = ring.arenas[slot.arena]
        if arena.continues:
            raise RemoteProtocolError(
                f"slot {number} begins in arena {slot.arena}, which continues another"
            )
        if arena.kind is MemoryKind.VULKAN:
            check_vulkan(arena, ring.layout)
        if arena.tiling is not Tiling.LINEAR:
            continue
        start = arena.data_offset + slot.offset
        nbytes = sum(ring.arenas[part].nbytes for part in ring.run(slot.arena))
        if start + need > nbytes:
            raise RemoteProtocolError(
                f"slot {number} ends at byte {start + need} of an arena of {nbytes} bytes"
            )
        if start % itemsize:
            raise RemoteProtocolError(
                f"slot {number} begins at byte {start}, and {ring.layout.format} needs a multiple "
                f"of {itemsize}"
            )


def _format(code: int) -> PixelFormat:
    for format_, number in FORMAT_CODES.items():
        if number == code:
            return format_
    raise RemoteProtocolError(f"pixel format {code} is not known")


def _name(table: dict[str, int], code: int, what: str) -> str:
    for name, number in table.items():
        if number == code:
            return name
    raise RemoteProtocolError(f"colour {what} {code} is not known")


def _optional_name(table: dict[str, int], code: int, what: str) -> str | None:
    return None if code == colors.UNSPECIFIED else _name(table, code, what)


def _member(kind: Callable[[int], _E], value: int) -> _E:
    try:
        return kind(value)
    except ValueError as error:
        raise RemoteProtocolError(str(error)) from None


_ENCODERS: Final[dict[type[Message], Callable[[_Writer, Any], None]]] = {
    Hello: _put_hello, Welcome: _put_welcome, Epoch: _put_epoch, Passed: _put_passed,
    Refuse: _put_refuse, Goodbye: _put_goodbye, Query: _put_query, Status: _put_status,
}  # fmt: skip

_DECODERS: Final[dict[int, Callable[[_Reader], Message]]] = {
    Hello.code: _get_hello, Welcome.code: _get_welcome, Epoch.code: _get_epoch,
    Passed.code: _get_passed, Refuse.code: _get_refuse, Goodbye.code: _get_goodbye,
    Query.code: _get_query, Status.code: _get_status,
}  # fmt: skip
