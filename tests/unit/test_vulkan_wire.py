"""What a publisher says of its Vulkan memory, and how it may not lie."""

import dataclasses
import re
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb._wire import vulkan as wire
from cuframes_nb._wire.codec import decode, encode
from cuframes_nb._wire.messages import (
    ArenaDescription,
    Completion,
    Epoch,
    MemoryKind,
    Policy,
    RingDescription,
    SlotPlace,
    Tiling,
)
from cuframes_nb._wire.vulkan import DISJOINT, ImageDescription, VulkanMemory, pack, unpack
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError
from cuframes_nb.formats import FrameLayout
from tests.helpers.children import ROOT

GPU, DRIVER = bytes(range(16)), bytes(range(16, 32))
BUFFER = VulkanMemory(1 << 20, 7, GPU, DRIVER)
FILE = VulkanMemory(1 << 20, 0, GPU, DRIVER, host=True, memory_offset=4096)
IMAGE = ImageDescription(37, 640, 400, 0, 0x3, (0,))
TILED = VulkanMemory(1 << 20, 7, GPU, DRIVER, dedicated=True, image=IMAGE)
NV12 = ImageDescription(1000156003, 640, 400, DISJOINT, 0x3, (0, 640 * 400))


def arena_of(memory, **changes):
    """Return the arena that a publisher makes of `memory`."""
    arena = ArenaDescription(
        MemoryKind.VULKAN,
        memory.memory_offset + memory.allocation_nbytes,
        device_uuid=bytes(16) if memory.host else GPU,
        tiling=Tiling.OPTIMAL if memory.image else Tiling.LINEAR,
        data_offset=memory.memory_offset,
        handle=pack(memory),
        external=True,
    )
    return dataclasses.replace(arena, **changes)


def image_of(**changes):
    return dataclasses.replace(TILED, image=dataclasses.replace(IMAGE, **changes))


def sent(arena, layout):
    """Send an epoch with frames in `arena`, and take it in."""
    ring = RingDescription(
        layout, ColorSpec("bt709", "full"), 0.0, Policy.DROP_OLDEST, Completion.HOST, (arena,),
        (SlotPlace(0, 0),),
    )  # fmt: skip
    return decode(encode(Epoch(1, 8192, ring)), 2)


@pytest.mark.parametrize(
    "memory",
    [BUFFER, FILE, TILED, dataclasses.replace(TILED, dedicated=False, image=NV12)],
    ids=["buffer", "memory file", "image", "disjoint image"],
)
def test_what_is_packed_is_unpacked(memory):
    handle = pack(memory)
    assert len(handle) <= 512
    assert unpack(arena_of(memory)) == memory


def test_an_epoch_with_vulkan_memory_arrives():
    arena = arena_of(TILED)
    message = sent(arena, FrameLayout.make("rgba32", 640, 400))
    assert message.ring.arenas == (arena,)


def test_other_memory_has_no_such_handle():
    with pytest.raises(LocalProtocolError, match="none of Vulkan's"):
        unpack(ArenaDescription(MemoryKind.HOST, 4096, handle=pack(BUFFER)))


@pytest.mark.parametrize(
    ("arena", "says"),
    [
        (arena_of(BUFFER, handle=b""), "has 0 bytes"),
        (arena_of(BUFFER, handle=pack(BUFFER)[:-1]), "needs 56 or more"),
        (arena_of(BUFFER, handle=b"\2" + pack(BUFFER)[1:]), "version 2"),
        (arena_of(BUFFER, handle=pack(BUFFER)[:3] + b"\1" + pack(BUFFER)[4:]), "flags 0x100"),
        (arena_of(BUFFER, handle=pack(BUFFER) + b"\0"), "1 bytes too many"),
        (arena_of(BUFFER, tiling=Tiling.OPTIMAL), "tiling OPTIMAL"),
        (arena_of(TILED, tiling=Tiling.LINEAR), "tiling LINEAR"),
        (arena_of(TILED, handle=pack(TILED)[:-9]), "ends inside"),
        (arena_of(TILED, handle=pack(TILED)[:-1]), "for an image of 1 planes"),
        (arena_of(TILED, handle=pack(TILED) + b"\0"), "for an image of 1 planes"),
        (arena_of(dataclasses.replace(BUFFER, memory_type=32)), "memory type 32"),
        (arena_of(dataclasses.replace(BUFFER, memory_offset=4096)), "no memory file"),
        (arena_of(FILE, device_uuid=GPU), "a GPU's"),
        (arena_of(BUFFER, device_uuid=bytes(16)), "a GPU's"),
        (arena_of(dataclasses.replace(BUFFER, allocation_nbytes=0), nbytes=1), "0 bytes of"),
        (arena_of(BUFFER, nbytes=(1 << 20) - 1), "of 1048575"),
        (arena_of(BUFFER, nbytes=(1 << 20) + 1), "of 1048577"),
        (arena_of(FILE, nbytes=1 << 20), "from byte 4096 of 1048576"),
        (arena_of(FILE, data_offset=4095), "begins at byte 4095"),
        (arena_of(BUFFER, data_offset=1 << 20), "begins at byte 1048576"),
        (arena_of(image_of(planes=())), "has 0 planes"),
        (arena_of(image_of(planes=(0, 4))), "has 2 planes with create flags 0x0"),
        (arena_of(image_of(create_flags=DISJOINT)), "has 1 planes with create flags 0x200"),
        (arena_of(image_of(create_flags=1)), "create flags 0x1"),
        (arena_of(image_of(usage=0)), "usage 0x0"),
        (arena_of(image_of(usage=0x101)), "usage 0x101"),
    ],
)
def test_a_description_that_cannot_be_is_refused(arena, says):
    with pytest.raises(RemoteProtocolError, match=re.escape(says)):
        unpack(arena)


@pytest.mark.parametrize(
    ("memory", "layout", "says"),
    [
        (TILED, ("rgba32", 640, 401), "640x400 for frames of 640x401"),
        (TILED, ("nv12", 640, 400), "VkFormat 37 for frames of nv12"),
        (image_of(width=2048, height=2048), ("rgba32", 2048, 2048), "has 16777216 bytes of pixels"),
        (image_of(planes=(1 << 19,)), ("rgba32", 640, 400), "from byte 524288 on"),
        (
            dataclasses.replace(TILED, image=dataclasses.replace(NV12, planes=(0, 4096))),
            ("nv12", 640, 400),
            "room up to byte 4096",
        ),
        (
            dataclasses.replace(TILED, image=dataclasses.replace(NV12, planes=(0, 1 << 20))),
            ("nv12", 640, 400),
            "from byte 1048576 on",
        ),
        (
            dataclasses.replace(TILED, image=dataclasses.replace(NV12, planes=(0, 1, 2))),
            ("nv12", 640, 400),
            "has 3 planes",
        ),
    ],
)
def test_an_image_that_is_not_that_of_the_frames_is_refused(memory, layout, says):
    with pytest.raises(RemoteProtocolError, match=re.escape(says)):
        sent(arena_of(memory), FrameLayout.make(*layout))


def test_an_image_has_no_more_room_than_the_memory_that_the_file_holds():
    image = dataclasses.replace(FILE, allocation_nbytes=640 * 400 * 4, image=IMAGE)
    sent(arena_of(image, nbytes=1 << 22), FrameLayout.make("rgba32", 640, 400))
    less = dataclasses.replace(image, allocation_nbytes=640 * 400 * 4 - 1)
    with pytest.raises(RemoteProtocolError, match="room up to byte 1023999"):
        sent(arena_of(less, nbytes=1 << 22), FrameLayout.make("rgba32", 640, 400))


def test_rows_that_do_not_fit_the_memory_are_refused():
    with pytest.raises(RemoteProtocolError, match="of an arena of"):
        sent(arena_of(BUFFER), FrameLayout.make("rgba32", 640, 500))


@given(st.binary(max_size=120), st.sampled_from(Tiling))
def test_any_bytes_are_refused_or_make_sense(handle, tiling):
    arena = arena_of(BUFFER, handle=handle, tiling=tiling)
    try:
        memory = unpack(arena)
    except RemoteProtocolError:
        return
    assert memory.allocation_nbytes <= arena.nbytes


@given(st.integers(0, 85), st.integers(0, 255))
def test_a_wrong_byte_is_refused_or_makes_sense(at, value):
    handle = bytearray(pack(TILED))
    handle[at] = value
    try:
        sent(arena_of(TILED, handle=bytes(handle)), FrameLayout.make("rgba32", 640, 400))
    except RemoteProtocolError:
        return
    # What passed has an image of that very size in memory of that very size.
    memory = unpack(arena_of(TILED, handle=bytes(handle)))
    assert (memory.image.width, memory.image.height) == (640, 400)
    assert 640 * 400 * 4 <= memory.allocation_nbytes <= 1 << 20


# --- The page that describes it -------------------------------------------------------------------

CODES = {"u16": "H", "u32": "I", "u64": "Q", "bytes[16]": "16s"}


def table(name):
    """Return the cells of the table of ``docs/protocol.md`` that is marked so."""
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    (lines,) = re.findall(rf"^<!-- vulkan struct {name} -->\n((?:.+\n)+)", text, re.MULTILINE)
    return [[c.strip() for c in line.strip("|").split("|")] for line in lines.splitlines()[2:]]


@pytest.mark.parametrize("name", ["HEAD", "IMAGE"])
def test_the_page_has_the_structure(name):
    rows = [row for row in table(name) if row[1] in CODES]
    layout = "<" + "".join(CODES[row[1]] for row in rows)
    assert struct.Struct(layout).size == getattr(wire, name).size
    assert layout == getattr(wire, name).format
    fields = re.findall(r"\d*\w", layout[1:])
    offsets = [struct.calcsize("<" + "".join(fields[:i])) for i in range(len(fields))]
    assert [int(row[0]) for row in rows] == offsets


def test_the_page_names_the_formats():
    text = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
    for pixels, numbers in wire.FORMATS.items():
        line = next(line for line in text.splitlines() if line.startswith(f"| {pixels} | VK"))
        assert [int(number) for number in re.findall(r"\((\d+)\)", line)] == list(numbers)
