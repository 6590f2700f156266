"""The page that describes the protocol says what the code does.

A table or block of ``docs/protocol.md`` behind a comment ``<!-- check … -->`` is compared here.
"""

import re
import struct

import pytest

from cuframes_nb import color, formats
from cuframes_nb._os import locks, packets
from cuframes_nb._wire import codec, control, messages
from cuframes_nb._wire.codec import decode, encode
from cuframes_nb._wire.link import TRANSITIONS
from cuframes_nb.color import ColorSpec
from cuframes_nb.formats import FrameLayout
from tests.helpers.children import ROOT

TEXT = (ROOT / "docs/protocol.md").read_text(encoding="utf-8")
MARKED = re.compile(r"^<!-- check (?P<what>[\w ]+) -->\n(?P<lines>(?:.+\n)+)", re.MULTILINE)
BLOCKS = [(match["what"], match["lines"]) for match in MARKED.finditer(TEXT)]
CODES = {"u8": "B", "u16": "H", "u32": "I", "u64": "Q", "i64": "q", "f64": "d"}
STRUCTS = [what.split()[1] for what, _ in BLOCKS if what.startswith("struct ")]
ENUMS = [what.split()[1] for what, _ in BLOCKS if what.startswith("enum ")]

HELLO = messages.Hello(4242, messages.ReadMode.STRICT, "viewer")
EPOCH = messages.Epoch(
    1,
    8192,
    messages.RingDescription(
        FrameLayout.make("nv12", 640, 480, pitch=768),
        ColorSpec("bt601", "limited", assumed=True),
        30.0,
        messages.Policy.DROP_OLDEST,
        messages.Completion.HOST,
        (messages.ArenaDescription(messages.MemoryKind.HOST, 1105920),),
        (messages.SlotPlace(0, 0), messages.SlotPlace(0, 552960)),
    ),
)


def marked(what):
    """Return the rows of each table, or the lines of each block, that is marked so."""
    found = [lines.splitlines() for name, lines in BLOCKS if name == what]
    assert found, f"nothing on the page is marked {what!r}"
    return found


def rows(what):
    """Return the cells of each row of the one table that is marked so, without its head."""
    (lines,) = marked(what)
    return [cells(line) for line in lines[2:]]


def cells(line):
    return [cell.strip() for cell in line.strip("|").split("|")]


def code_of(kind):
    """Return `struct`'s letter for a type of fixed size, else None."""
    if size := re.fullmatch(r"bytes\[(\d+)\]", kind):
        return f"{size[1]}s"
    return CODES.get(kind)


def fixed_part(table):
    """Return the format of the rows before the first without a fixed size, and its offsets."""
    layout, offsets = "<", []
    for offset, kind, *_ in table:
        offsets.append(int(offset))
        letter = code_of(kind)
        if letter is None:
            break
        layout += letter
    return layout, offsets


def constant(name):
    for module in (codec, messages, control, packets, formats, locks):
        for attribute in (name, f"_{name}"):
            if hasattr(module, attribute):
                return getattr(module, attribute)
    raise LookupError(name)


@pytest.mark.parametrize("name", STRUCTS)
def test_a_struct_is_as_described(name):
    expected = getattr(codec, name, None) or getattr(codec, f"_{name}")
    layout, offsets = fixed_part(rows(f"struct {name}"))
    assert layout == expected.format
    sizes = [struct.calcsize(f"<{letter}") for letter in re.findall(r"\d*\w", layout)]
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size)
    assert offsets == ends[: len(offsets)]
    assert len(offsets) >= len(sizes)


def test_every_struct_is_described():
    known = {
        name.lstrip("_") for name, value in vars(codec).items() if isinstance(value, struct.Struct)
    }
    assert set(STRUCTS) == known - {"COUNT"}
    assert codec._COUNT.format == "<H"


def test_every_message_is_described_under_its_number():
    headings = re.findall(r"^### (\w+) \((\d+)\)$", TEXT, re.MULTILINE)
    assert headings == [(kind.__name__, str(kind.code)) for kind in messages.MESSAGE_TYPES]


@pytest.mark.parametrize("name", ENUMS)
def test_an_enum_is_as_described(name):
    kind = getattr(messages, name, None) or getattr(control, name)
    described = [(int(value), label) for value, label, *_ in rows(f"enum {name}")]
    assert described == [(member.value, member.name) for member in kind]


def test_every_enum_is_described():
    assert set(ENUMS) == {
        "Completion", "MemoryKind", "Policy", "ReadMode", "RingState", "Tiling",
    }  # fmt: skip


def test_pixel_formats_are_as_described():
    described = {label: int(value) for value, label, _ in rows("formats")}
    assert described == {str(fmt): code for fmt, code in codec.FORMAT_CODES.items()}


def test_colour_codes_are_as_described():
    tables = [
        color.MATRIX_CODES, color.RANGE_CODES, color.PRIMARIES_CODES, color.TRANSFER_CODES,
    ]  # fmt: skip
    for (_, _, name, meaning), table in zip(rows("struct COLOR")[:4], tables, strict=True):
        described = {int(code) for code in re.findall(r"(?:^|, )(\d+) [A-Za-z]", meaning)}
        assert described == set(table.values()), name
    assert color.UNSPECIFIED == 2


def test_constants_are_as_described():
    described = [cells(line) for lines in marked("constants") for line in lines[2:]]
    assert len(described) > 10
    for name, value, _ in described:
        assert constant(name) == int(value), name


def test_seals_are_as_described():
    from cuframes_nb._os import memfd

    described = dict(re.findall(r"^\| `(F_SEAL_\w+)` \| (0x\w+) \|", TEXT, re.MULTILINE))
    assert {int(value, 16) for value in described.values()} == {1, 2, 4, 16}
    assert sum(int(value, 16) for value in described.values()) == memfd._OURS
    for name, value in described.items():
        assert getattr(memfd, f"_{name}") == int(value, 16)


def test_transitions_are_as_described():
    described = {(phase, who, says): then for phase, who, says, then in rows("transitions")}
    assert described == {
        (phase.value, side.value, kind.__name__): then.value
        for (phase, side, kind), then in TRANSITIONS.items()
    }


def test_the_control_block_is_as_described():
    found = {field: int(offset) for offset, _, field, _ in rows("control")}
    words = ["magic", "epoch", "state", "published", "dropped", "last_publish_ns"]
    indices = [
        control._W_MAGIC, control._W_EPOCH, control._W_STATE, control._W_PUBLISHED,
        control._W_DROPPED, control._W_LAST_NS,
    ]  # fmt: skip
    assert found == {
        **{name: 8 * index for name, index in zip(words, indices, strict=True)},
        "seqs": control.SEQS_OFFSET,
        "completions": control.COMPLETIONS_OFFSET,
        "records": control.RECORDS_OFFSET,
    }
    assert control.RECORDS_OFFSET + messages.MAX_SLOTS * control.RECORD_NBYTES == 6144
    assert control.MAGIC.to_bytes(8, "little") == b"CFNBCTL1"
    assert f"{control.CONTROL_NBYTES} bytes" in TEXT


def test_a_record_is_as_described():
    layout, offsets = fixed_part(rows("record"))
    assert (layout, offsets) == ("<QqQ", [0, 8, 16])
    assert [field for _, _, field, _ in rows("record")] == list(control.Record._fields)
    memory = bytearray(control.CONTROL_NBYTES)
    writer = control.ControlWriter(memoryview(memory), 1)
    writer.write_record(5, control.Record(7, -8, 9))
    at = control.RECORDS_OFFSET + 5 * control.RECORD_NBYTES
    assert struct.unpack_from(layout.replace("<", "="), memory, at) == (7, -8, 9)


@pytest.mark.parametrize(("name", "message"), [("hello", HELLO), ("epoch", EPOCH)])
def test_the_hexdump_is_the_message(name, message):
    (lines,) = marked(f"hexdump {name}")
    assert (lines[0], lines[-1]) == ("```text", "```")
    packet = b""
    for line in lines[1:-1]:
        offset, _, data = line.partition("  ")
        assert int(offset, 16) == len(packet)
        packet += bytes.fromhex(data)
    assert packet == encode(message)
    assert decode(packet, message.fd_count) == message


def test_the_bytes_that_are_explained_are_those_of_the_hexdump():
    packet = encode(EPOCH)
    explained = re.findall(r"^\| (0x\w\w) \| ([^|]*) \|", TEXT, re.MULTILINE)
    assert len(explained) > 15
    for at, data in explained:
        first = re.match(r"`((?:[0-9a-f]{2} ?)+)", data)
        if first:
            start = bytes.fromhex(first[1])
            assert packet[int(at, 16) :].startswith(start), at


def test_the_version_is_the_one_described():
    assert f"**{codec.VERSION[0]}.{codec.VERSION[1]}**" in TEXT
    assert codec.MAGIC == b"CFNB"
