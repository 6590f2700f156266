"""Messages survive the way to bytes and back; whatever else arrives is refused, and no more."""

import dataclasses
import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cuframes_nb._os.packets import MAX_FDS, MAX_PACKET
from cuframes_nb._wire import codec
from cuframes_nb._wire.codec import HEADER, MAGIC, VERSION, decode, encode
from cuframes_nb._wire.messages import (
    MAX_ARENAS,
    MAX_SLOTS,
    MAX_SUBSCRIBERS,
    MESSAGE_TYPES,
    ArenaDescription,
    Completion,
    Epoch,
    Goodbye,
    Hello,
    MemoryKind,
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
from cuframes_nb._wire.vulkan import DISJOINT, FORMATS, ImageDescription, VulkanMemory, pack
from cuframes_nb.color import (
    MATRIX_CODES,
    PRIMARIES_CODES,
    RANGE_CODES,
    TRANSFER_CODES,
    ColorSpec,
)
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError, VersionMismatchError
from cuframes_nb.formats import MAX_DIMENSION, FrameLayout, PixelFormat

U8 = st.integers(0, 2**8 - 1)
U16 = st.integers(0, 2**16 - 1)
U32 = st.integers(0, 2**32 - 1)
U64 = st.integers(0, 2**64 - 1)
NAMES = st.text(max_size=16)
"""At most 64 bytes of UTF-8."""


@st.composite
def layouts(draw):
    """Draw any layout that may be: odd sizes, rows and planes padded, each in its own way."""
    fmt = draw(st.sampled_from(PixelFormat))
    size = st.integers(1, 70) | st.integers(1, MAX_DIMENSION)
    width, height = draw(size), draw(size)
    tight = FrameLayout.make(fmt, width, height)
    pitches, offsets, end = [], [], 0
    for plane in tight.planes:
        pitch = plane.row_bytes + draw(st.integers(0, 600)) * plane.itemsize
        offset = end + draw(st.integers(0, 5000)) * plane.itemsize
        pitches.append(pitch)
        offsets.append(offset)
        end = offset + plane.rows * pitch
    return FrameLayout.make(fmt, width, height, pitch=pitches, offsets=offsets)


def vulkan_handle(arena, layout):
    """Return what describes such memory, as it has to be."""
    sizes = [plane.rows * plane.row_bytes for plane in layout.planes]
    disjoint = DISJOINT if len(sizes) > 1 else 0
    image = ImageDescription(
        FORMATS[layout.format][0], layout.width, layout.height, disjoint, 1, (0, *sizes[:-1])
    )
    host = not any(arena.device_uuid)
    begin = arena.data_offset if host else 0
    tiled = image if arena.tiling is Tiling.OPTIMAL else None
    memory = VulkanMemory(
        arena.nbytes - begin, 3, bytes(range(16)), bytes(16), disjoint == 0, host, begin, tiled
    )
    return pack(memory)


@st.composite
def arenas(draw, least, step, layout):
    """Draw an arena with at least `least` bytes behind its data offset, a multiple of `step`."""
    kind = draw(st.sampled_from(MemoryKind))
    tilings = Tiling if kind is MemoryKind.VULKAN else [Tiling.LINEAR]
    data_offset = draw(st.integers(0, 2**20 // step)) * step
    arena = ArenaDescription(
        kind,
        data_offset + least + draw(st.integers(0, 10) | st.integers(0, 2**40)),
        draw(st.booleans()),
        draw(st.binary(min_size=16, max_size=16) | st.just(bytes(16))),
        draw(st.sampled_from(tilings)),
        data_offset,
        draw(st.binary(max_size=64) | st.binary(min_size=512, max_size=512)),
        draw(st.booleans()),
    )
    if kind is not MemoryKind.VULKAN:
        return arena
    return dataclasses.replace(arena, handle=vulkan_handle(arena, layout))


@st.composite
def rings(draw):
    layout = draw(layouts())
    need = max(plane.end for plane in layout.planes)
    count = draw(st.integers(1, 3) | st.integers(1, MAX_ARENAS))
    step = layout.format.itemsize
    offsets = st.integers(0, 2**36 // step).map(lambda n: n * step)
    places = st.builds(SlotPlace, st.integers(0, count - 1), offsets)
    slots = tuple(draw(st.lists(places, min_size=1, max_size=MAX_SLOTS)))
    least = [max((s.offset for s in slots if s.arena == n), default=0) + need for n in range(count)]
    return RingDescription(
        layout,
        draw(COLORS),
        draw(st.floats(0, 1e6, exclude_max=True)),
        draw(st.sampled_from(Policy)),
        draw(st.sampled_from(Completion)),
        tuple(draw(arenas(nbytes, step, layout)) for nbytes in least),
        slots,
    )


COLORS = st.builds(
    ColorSpec,
    st.sampled_from(sorted(MATRIX_CODES)),
    st.sampled_from(sorted(RANGE_CODES)),
    st.none() | st.sampled_from(sorted(PRIMARIES_CODES)),
    st.none() | st.sampled_from(sorted(TRANSFER_CODES)),
    st.booleans(),
)
MODES = st.sampled_from(ReadMode)
SUBSCRIBERS = st.builds(SubscriberStatus, U16, U32, U32, MODES, U16, NAMES)
MESSAGES = st.one_of(
    st.builds(Hello, U32, MODES, NAMES),
    st.builds(Welcome, NAMES, U32, st.integers(0, MAX_SUBSCRIBERS - 1), U64),
    st.builds(Epoch, U64, U32, rings()),
    st.builds(Passed, U64),
    st.builds(Refuse, NAMES, st.text(max_size=1024)),
    st.builds(Goodbye, st.text(max_size=1024)),
    st.just(Query()),
    st.builds(
        Status, NAMES, U32, U64, U64, U64, U64, U64, rings(), st.lists(SUBSCRIBERS).map(tuple)
    ),
)

RING = RingDescription(
    FrameLayout.make("nv12", 63, 37),
    ColorSpec("bt601", "full", "bt470bg", "srgb", assumed=True),
    29.97,
    Policy.STRICT_WAIT,
    Completion.GPU,
    (
        ArenaDescription(MemoryKind.CUDA_VMM, 2**21, device_uuid=bytes(range(16))),
        ArenaDescription(MemoryKind.CUDA_IPC, 2**20, has_fd=False, data_offset=4096, handle=b"ab"),
    ),
    (SlotPlace(0, 0), SlotPlace(0, 65536), SlotPlace(1, 8192)),
)
ONE_OF_EACH = [
    Hello(1234, ReadMode.STRICT, "viewer é"),
    Welcome("cam1", 99, 255, 2**64 - 1),
    Epoch(7, 8192, RING),
    Passed(12),
    Refuse("permission", "no"),
    Goodbye("closed"),
    Query(),
    Status(
        "cam1", 1, 2, 3, 4, 5, 6, RING,
        (SubscriberStatus(0, 8, 1000, ReadMode.NEWEST, 1, "a"),
         SubscriberStatus(3, 9, 0, ReadMode.STRICT, 0, "")),
    ),
]  # fmt: skip
EPOCH = next(message for message in ONE_OF_EACH if isinstance(message, Epoch))


def names(messages):
    return [type(message).__name__ for message in messages]


def packet_of(code, body, *, fds=0, version=VERSION, length=None, magic=MAGIC):
    """Return a packet with a header of our own making."""
    nbytes = HEADER.size + len(body) if length is None else length
    return HEADER.pack(magic, *version, code, nbytes, fds, 0) + body


def decoded(packet, fd_count):
    """Return the message, or None if it is refused; any other exception goes through."""
    try:
        return decode(packet, fd_count)
    except RemoteProtocolError:
        return None


def epoch_with(**changes):
    """Return the packet of `EPOCH` with a changed ring, which `encode` does not check."""
    message = dataclasses.replace(EPOCH, ring=dataclasses.replace(RING, **changes))
    return encode(message), message.fd_count


def arena_with(**changes):
    return (dataclasses.replace(RING.arenas[0], **changes), RING.arenas[1])


# --- There and back -------------------------------------------------------------------------------


def test_there_is_an_example_of_each_type():
    assert tuple(type(message) for message in ONE_OF_EACH) == MESSAGE_TYPES
    assert len({message.code for message in ONE_OF_EACH}) == len(MESSAGE_TYPES)


@given(MESSAGES)
@example(ONE_OF_EACH[2])
@example(ONE_OF_EACH[7])
def test_a_message_survives(message):
    packet = encode(message)
    assert decode(packet, message.fd_count) == message


@given(COLORS)
def test_a_colour_survives_with_its_assumption(color):
    packet, fds = epoch_with(color=color)
    found = decode(packet, fds).ring.color
    assert (found, found.assumed) == (color, color.assumed)


@pytest.mark.parametrize("fmt", PixelFormat)
@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 2), (63, 37), (64, 37), (63, 38)])
def test_each_format_survives_at_each_parity(fmt, width, height):
    layout = FrameLayout.make(fmt, width, height)
    packet, fds = epoch_with(layout=layout)
    assert decode(packet, fds).ring.layout == layout


def test_a_long_text_is_cut_and_a_long_name_is_our_mistake():
    text = "é" * 5000
    assert decode(encode(Refuse("timeout", text)), 0) == Refuse("timeout", text[:1024])
    assert decode(encode(Goodbye(text)), 0) == Goodbye(text[:1024])
    with pytest.raises(LocalProtocolError, match="at most 64"):
        encode(Hello(1, ReadMode.NEWEST, "é" * 33))


def test_the_largest_messages_fit_a_packet():
    arena = ArenaDescription(MemoryKind.HOST, 2**30, handle=bytes(512))
    ring = dataclasses.replace(
        RING,
        arenas=(arena,) * MAX_ARENAS,
        slots=tuple(SlotPlace(n, 0) for n in range(MAX_SLOTS)),
    )
    epoch = Epoch(1, 8192, ring)
    peers = [
        SubscriberStatus(n, n, n, ReadMode.NEWEST, 1, "x" * 64) for n in range(MAX_SUBSCRIBERS)
    ]
    status = dataclasses.replace(ONE_OF_EACH[7], ring=ring, subscribers=tuple(peers), key="k" * 64)
    assert epoch.fd_count <= MAX_FDS
    for message in (epoch, status):
        packet = encode(message)
        assert len(packet) <= MAX_PACKET
        assert decode(packet, message.fd_count) == message


# --- Whatever arrives -----------------------------------------------------------------------------


@given(st.binary(max_size=400), st.integers(0, 3))
@example(b"", 0)
def test_noise_is_refused(packet, fd_count):
    assert decoded(packet, fd_count) is None


@given(st.sampled_from(MESSAGE_TYPES), st.binary(max_size=300), st.integers(0, 3))
def test_noise_behind_a_good_header_is_a_message_or_refused(kind, body, fds):
    decoded(packet_of(kind.code, body, fds=fds), fds)


@given(MESSAGES, st.data())
def test_a_damaged_packet_is_a_message_or_refused(message, data):
    packet = bytearray(encode(message))
    for _ in range(data.draw(st.integers(1, 4), "bytes to change")):
        packet[data.draw(st.integers(0, len(packet) - 1), "at")] = data.draw(U8, "to")
    found = decoded(bytes(packet), message.fd_count)
    if found is not None:
        assert decode(encode(found), found.fd_count) == found


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=names(ONE_OF_EACH))
def test_each_byte_may_be_damaged(message):
    packet = encode(message)
    for at in range(len(packet)):
        for value in (0, 1, 2, 0x7F, 0x80, 0xFF, packet[at] ^ 1):
            decoded(packet[:at] + bytes([value]) + packet[at + 1 :], message.fd_count)


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=names(ONE_OF_EACH))
def test_a_cut_packet_is_refused_wherever_it_is_cut(message):
    packet = encode(message)
    body = packet[HEADER.size :]
    for end in range(len(packet)):
        assert decoded(packet[:end], message.fd_count) is None
    for end in range(len(body)):  # and when its header was made to fit
        cut = packet_of(message.code, body[:end], fds=message.fd_count)
        assert decoded(cut, message.fd_count) is None


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=names(ONE_OF_EACH))
def test_a_longer_packet_is_refused(message):
    packet = encode(message) + b"\0"
    with pytest.raises(RemoteProtocolError, match="says that it has"):
        decode(packet, message.fd_count)
    honest = packet_of(message.code, packet[HEADER.size :], fds=message.fd_count)
    with pytest.raises(RemoteProtocolError, match="1 bytes too many"):
        decode(honest, message.fd_count)


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=names(ONE_OF_EACH))
def test_a_later_minor_version_may_add_fields(message):
    later = (VERSION[0], VERSION[1] + 1)
    body = encode(message)[HEADER.size :] + b"something new"
    packet = packet_of(message.code, body, fds=message.fd_count, version=later)
    assert decode(packet, message.fd_count) == message


# --- The header -----------------------------------------------------------------------------------


def test_another_magic_is_refused():
    with pytest.raises(RemoteProtocolError, match="no cuframes_nb"):
        decode(packet_of(Query.code, b"", magic=b"HTTP"), 0)


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=names(ONE_OF_EACH))
def test_another_major_version_is_named_and_only_a_refusal_is_read(message):
    version = (VERSION[0] + 1, 3)
    body = encode(message)[HEADER.size :]
    packet = packet_of(message.code, body, fds=message.fd_count, version=version)
    if isinstance(message, Refuse):
        assert decode(packet, 0) == message
        return
    with pytest.raises(VersionMismatchError) as caught:
        decode(packet, message.fd_count)
    assert f"{version[0]}.{version[1]}" in str(caught.value)
    assert f"{VERSION[0]}.{VERSION[1]}" in str(caught.value)


def test_the_version_is_told_before_anything_that_another_version_may_do_otherwise():
    packet = packet_of(999, b"?", version=(VERSION[0] + 1, 0), length=3, fds=9)
    with pytest.raises(VersionMismatchError):
        decode(packet, 0)


@pytest.mark.parametrize("code", [0, 9, 65535])
def test_an_unknown_type_is_refused(code):
    with pytest.raises(RemoteProtocolError, match=f"type {code} does not exist"):
        decode(packet_of(code, b""), 0)


@pytest.mark.parametrize("message", ONE_OF_EACH, ids=names(ONE_OF_EACH))
def test_each_type_needs_its_number_of_descriptors(message):
    packet, right = encode(message), message.fd_count
    for wrong in {0, 1, right - 1, right + 1} - {right, -1}:
        with pytest.raises(RemoteProtocolError, match=f"came with {wrong} descriptors"):
            decode(packet, wrong)
        lying = packet_of(message.code, packet[HEADER.size :], fds=wrong)
        for really in (right, wrong):
            with pytest.raises(RemoteProtocolError, match=f"needs {right}"):
                decode(lying, really)


def test_an_epoch_carries_its_control_block_and_the_arenas_that_have_a_descriptor():
    assert [message.fd_count for message in ONE_OF_EACH] == [0, 1, 2, 0, 0, 0, 0, 0]


# --- A ring's numbers -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("slot", "words"),
    [
        (SlotPlace(0, 2**21), "slot 1 ends at byte"),
        (SlotPlace(0, 2**64 - 1), "slot 1 ends at byte"),
        (SlotPlace(1, 2**20 - 8192), "slot 1 ends at byte"),
        (SlotPlace(2, 0), "arena 2 of 2"),
        (SlotPlace(65535, 0), "arena 65535 of 2"),
    ],
)
def test_a_slot_outside_its_arena_is_refused(slot, words):
    with pytest.raises(RemoteProtocolError, match=words):
        decode(*epoch_with(slots=(RING.slots[0], slot)))


def test_a_slot_may_end_with_its_arena_and_not_a_byte_later():
    need = max(plane.end for plane in RING.layout.planes)
    for nbytes in (need, need + 100):
        arena = ArenaDescription(MemoryKind.HOST, nbytes, data_offset=nbytes - need)
        packet, fds = epoch_with(arenas=(arena,), slots=(SlotPlace(0, 0),))
        assert decode(packet, fds).ring.arenas == (arena,)
        packet, fds = epoch_with(arenas=(arena,), slots=(SlotPlace(0, 1),))
        assert decoded(packet, fds) is None


@pytest.mark.parametrize(("data_offset", "offset"), [(1, 0), (0, 1), (64, 8193)])
def test_a_slot_of_16_bit_components_at_an_odd_byte_is_refused(data_offset, offset):
    layout = FrameLayout.make(PixelFormat.P010, 64, 32)
    arena = ArenaDescription(MemoryKind.HOST, 2**20, data_offset=data_offset)
    changes = {"arenas": (arena,), "slots": (SlotPlace(0, offset),)}
    decode(*epoch_with(layout=FrameLayout.make(PixelFormat.NV12, 64, 32), **changes))
    with pytest.raises(RemoteProtocolError, match=r"slot 0 begins at byte .* a multiple of 2"):
        decode(*epoch_with(layout=layout, **changes))


def test_what_adds_up_to_an_even_byte_is_accepted():
    arena = ArenaDescription(MemoryKind.HOST, 2**20, data_offset=1)
    layout = FrameLayout.make(PixelFormat.P010, 64, 32)
    decode(*epoch_with(layout=layout, arenas=(arena,), slots=(SlotPlace(0, 1),)))


def test_only_vulkan_memory_may_be_tiled():
    # The order of its pixels is the driver's business: that they have room is all that is checked.
    tiled = {"tiling": Tiling.OPTIMAL, "nbytes": 2**20}
    vulkan = arena_with(kind=MemoryKind.VULKAN, device_uuid=bytes(range(16)), **tiled)[0]
    vulkan = dataclasses.replace(vulkan, handle=vulkan_handle(vulkan, RING.layout))
    decode(*epoch_with(arenas=(vulkan, RING.arenas[1])))
    for kind in set(MemoryKind) - {MemoryKind.VULKAN}:
        with pytest.raises(RemoteProtocolError, match="cannot be tiled"):
            decode(*epoch_with(arenas=arena_with(kind=kind, **tiled)))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"arenas": (), "slots": ()}, "at least one arena"),
        ({"slots": ()}, "one slot"),
        ({"slots": RING.slots[:1] * (MAX_SLOTS + 1)}, "65 slots"),
        ({"arenas": RING.arenas[1:] * (MAX_ARENAS + 1)}, "65 arenas"),
        ({"arenas": arena_with(nbytes=0)}, "0 bytes"),
        ({"fps": float("nan")}, "rate"),
        ({"fps": float("inf")}, "rate"),
        ({"fps": -1.0}, "rate"),
        ({"fps": 1e6}, "rate"),
        ({"policy": 0}, "Policy"),
        ({"completion": 3}, "Completion"),
        ({"arenas": arena_with(kind=9)}, "MemoryKind"),
        ({"arenas": arena_with(tiling=2)}, "Tiling"),
    ],
)
def test_what_no_ring_can_be_is_refused(changes, words):
    with pytest.raises(RemoteProtocolError, match=words):
        decode(*epoch_with(**changes))


def test_a_count_is_checked_before_what_it_counts_is_read():
    for message, what in ((Refuse("", ""), "bytes of reason"), (Goodbye(""), "bytes of text")):
        packet = bytearray(encode(message))
        packet[HEADER.size : HEADER.size + 2] = b"\xff\xff"
        with pytest.raises(RemoteProtocolError, match=f"65535 {what}"):
            decode(bytes(packet), 0)


def ring_body(fmt=1, width=64, height=32, planes=((0, 64), (2048, 64)), color=(1, 0, 2, 2, 0)):
    """Return an Epoch's body of one host arena and one slot, from plain numbers."""
    body = struct.pack("<QI", 1, 8192)
    body += struct.pack("<IIIdBB", fmt, width, height, 30.0, 1, 1)
    body += struct.pack("<BBBBB", *color)
    body += struct.pack("<H", len(planes)) + b"".join(struct.pack("<QI", *p) for p in planes)
    body += struct.pack("<HHHQ16sIQH", 1, 1, 1, 4096, bytes(16), 0, 0, 0)
    return body + struct.pack("<HHQ", 1, 0, 0)


def test_a_body_written_by_hand_is_read():
    message = decode(packet_of(Epoch.code, ring_body(), fds=2), 2)
    assert message.ring.layout == FrameLayout.make("nv12", 64, 32, pitch=64)
    assert message.ring.color == ColorSpec()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"fmt": 0}, "pixel format 0"),
        ({"fmt": 6}, "pixel format 6"),
        ({"width": 0}, "width is 0"),
        ({"height": MAX_DIMENSION + 1}, "height is 32769"),
        ({"width": 2**32 - 1}, "width is 4294967295"),
        ({"planes": ()}, "2 planes"),
        ({"planes": ((0, 64),)}, "2 planes"),
        ({"planes": ((0, 64),) * 5}, "5 planes"),
        ({"planes": ((0, 63), (2048, 64))}, "pitch of 63"),
        ({"planes": ((0, 64), (2047, 64))}, "inside the plane before"),
        ({"planes": ((2048, 64), (0, 64))}, "inside the plane before"),
        ({"planes": ((0, 64), (2**64 - 1, 64))}, "ends at byte"),
        ({"planes": ((0, 64), (2048, 2**32 - 1))}, "ends at byte"),
        ({"fmt": 2, "planes": ((0, 129), (8192, 128))}, "multiple of 2"),
        ({"fmt": 2, "planes": ((0, 128), (4097, 128))}, "multiple of 2"),
        ({"color": (2, 0, 2, 2, 0)}, "colour matrix 2"),
        ({"color": (1, 2, 2, 2, 0)}, "colour range 2"),
        ({"color": (1, 0, 3, 2, 0)}, "colour primaries 3"),
        ({"color": (1, 0, 2, 255, 0)}, "colour transfer 255"),
    ],
)
def test_what_no_frame_can_be_is_refused(changes, words):
    with pytest.raises(RemoteProtocolError, match=words):
        decode(packet_of(Epoch.code, ring_body(**changes), fds=2), 2)


def joined(*arenas, offset=0, arena=0):
    """Return an Epoch of one frame of 64x32 NV12, which takes 3072 bytes, in joined arenas."""
    return Epoch(
        1,
        8192,
        RingDescription(
            FrameLayout.make("nv12", 64, 32, pitch=64), ColorSpec(), 0.0, Policy.DROP_OLDEST,
            Completion.GPU, arenas, (SlotPlace(arena, offset),),
        ),
    )  # fmt: skip


def vmm(nbytes, *, continues=False, **changes):
    return ArenaDescription(MemoryKind.CUDA_VMM, nbytes, continues=continues, **changes)


def test_a_frame_may_reach_into_arenas_that_continue_its_own():
    run = (vmm(2048), vmm(1000, continues=True), vmm(1000, continues=True), vmm(4096))
    for offset in (0, 500, 976):
        message = joined(*run, offset=offset)
        assert decode(encode(message), 5) == message
        assert message.ring.run(0) == range(3)
    assert message.ring.run(3) == range(3, 4)
    for offset in (977, 4048):
        with pytest.raises(RemoteProtocolError, match="an arena of 4048 bytes"):
            decode(encode(joined(*run, offset=offset)), 5)
    with pytest.raises(RemoteProtocolError, match="slot 0 begins in arena 1, which continues"):
        decode(encode(joined(*run, arena=1)), 5)


@pytest.mark.parametrize(
    "arenas",
    [
        (vmm(8192, continues=True),),
        (ArenaDescription(MemoryKind.HOST, 8192), vmm(8192, continues=True)),
        (vmm(8192), ArenaDescription(MemoryKind.HOST, 8192, continues=True)),
        (vmm(8192), vmm(8192, continues=True, device_uuid=b"u" * 16)),
        (vmm(8192), vmm(8192, continues=True, data_offset=64)),
    ],
)
def test_what_cannot_continue_an_arena_is_refused(arenas):
    with pytest.raises(RemoteProtocolError, match="says that it continues the one before"):
        decode(encode(joined(*arenas)), 1 + len(arenas))


def test_unknown_arena_flags_are_refused():
    body = bytearray(ring_body())
    at = len(body) - 12 - 42 + 2  # the arena and, behind it, the slots
    assert body[at : at + 2] == b"\x01\x00"
    body[at] = 9
    with pytest.raises(RemoteProtocolError, match="arena flags 0x9"):
        decode(packet_of(Epoch.code, bytes(body), fds=2), 2)


def test_text_that_is_not_utf8_is_refused():
    body = struct.pack("<IBH", 1, 1, 2) + b"\xff\xfe"
    with pytest.raises(RemoteProtocolError, match="not UTF-8"):
        decode(packet_of(Hello.code, body), 0)


def test_a_read_mode_and_an_index_out_of_range_are_refused():
    with pytest.raises(RemoteProtocolError, match="ReadMode"):
        decode(packet_of(Hello.code, struct.pack("<IBH", 1, 3, 0)), 0)
    with pytest.raises(RemoteProtocolError, match="index 256"):
        decode(encode(Welcome("k", 1, MAX_SUBSCRIBERS, 0)), 1)


def test_every_type_has_a_coder_for_each_way():
    assert set(codec._ENCODERS) == set(MESSAGE_TYPES)
    assert set(codec._DECODERS) == {kind.code for kind in MESSAGE_TYPES}
    assert set(codec.FORMAT_CODES) == set(PixelFormat)
