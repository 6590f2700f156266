"""What a page may say, and what it is told."""

import dataclasses
import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb._viewer import messages
from cuframes_nb._viewer.messages import (
    Ack,
    Bye,
    Hello,
    Histogram,
    Key,
    PageMessage,
    Part,
    Pause,
    Play,
    Probe,
    Record,
    Roi,
    Size,
    Snapshot,
    Solo,
    Step,
    Visible,
    parse,
)
from tests.helpers.children import ROOT

VIEW = "aZ09_-" * 4
ACK = {
    "n": 7, "painted": 6, "missed": 1, "held_us": 900, "bytes": 160_000, "span_us": 33_000,
    "decode_us": 4_000,
}  # fmt: skip
SAID = {
    "hello": ({"w": 640, "h": 360}, Hello(VIEW, 640, 360)),
    "size": ({"w": 1, "h": 16384}, Size(VIEW, 1, 16384)),
    "visible": ({"on": False}, Visible(VIEW, on=False)),
    "ack": (ACK, Ack(VIEW, **ACK)),
    "bye": ({}, Bye(VIEW)),
    "play": ({}, Play(VIEW)),
    "pause": ({}, Pause(VIEW)),
    "step": ({"by": -64}, Step(VIEW, -64)),
    "solo": ({"cam": 3}, Solo(VIEW, 3)),
    "roi": ({"cam": 1, "roi": [0, 2, 30, 40]}, Roi(VIEW, 1, (0, 2, 30, 40))),
    "probe": ({"cam": 0, "x": 5, "y": 6, "id": -3}, Probe(VIEW, 0, 5, 6, -3)),
    "histogram": ({"cam": 2, "on": True}, Histogram(VIEW, 2, on=True)),
    "snapshot": ({"cam": 0, "download": True}, Snapshot(VIEW, 0, download=True)),
    "record": ({"on": True}, Record(VIEW, on=True)),
    "key": ({"key": "a", "mods": ["Shift", "Alt"]}, Key(VIEW, "a", ("Alt", "Shift"))),
}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.sampled_from([2**53, 2**53 + 1, -(2**53), 10**400, 16384, 16385])
    | st.floats()
    | st.text(max_size=80)
    | st.sampled_from([VIEW, *SAID, "Alt", "x" * 100_000]),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=12,
)


def said(kind, **changes):
    return {"t": kind, "view": VIEW} | SAID[kind][0] | changes


@st.composite
def almost(draw):
    """Draw a message of which some values are something else, or missing."""
    content = said(draw(st.sampled_from(list(SAID))))
    for key in draw(st.lists(st.sampled_from(list(content)), max_size=3)):
        content[key] = draw(JSON)
    for key in draw(st.lists(st.sampled_from(list(content)), max_size=1)):
        del content[key]
    return content


@pytest.mark.parametrize("kind", SAID)
def test_what_is_said_comes_through(kind):
    assert parse(said(kind)) == SAID[kind][1]


@pytest.mark.parametrize("kind", SAID)
def test_unknown_keys_are_ignored_and_missing_ones_are_not(kind):
    assert parse(said(kind, more=[{}])) == SAID[kind][1]
    for key in said(kind):
        assert parse({name: value for name, value in said(kind).items() if name != key}) is None


@pytest.mark.parametrize(
    ("kind", "key", "value"),
    [
        ("play", "view", "short"),
        ("play", "view", "a" * 65),
        ("play", "view", "a" * 16 + "\n"),
        ("play", "view", "é" * 16),
        ("play", "view", ["a" * 16]),
        ("play", "t", "dance"),
        ("play", "t", ["play"]),
        ("play", "t", None),
        ("hello", "w", 0),
        ("hello", "w", 16385),
        ("hello", "h", True),
        ("hello", "h", "360"),
        ("hello", "h", float("nan")),
        ("hello", "h", float("inf")),
        ("hello", "h", None),
        ("hello", "h", [360]),
        ("ack", "n", -1),
        ("ack", "n", 2**53 + 1),
        ("ack", "held_us", 1e300),
        ("ack", "held_us", 10**300),
        ("ack", "decode_us", None),
        ("visible", "on", 1),
        ("visible", "on", "true"),
        ("step", "by", 65),
        ("step", "by", False),
        ("solo", "cam", 256),
        ("solo", "cam", True),
        ("roi", "roi", [0, 0, 10]),
        ("roi", "roi", [0, 0, 10, 0]),
        ("roi", "roi", [-1, 0, 10, 10]),
        ("roi", "roi", [0, 0, 10, [10]]),
        ("roi", "roi", {"0": 0}),
        ("roi", "cam", 256),
        ("key", "key", ""),
        ("key", "key", "x" * 33),
        ("key", "key", 65),
        ("key", "mods", None),
        ("key", "mods", ["Hyper"]),
        ("key", "mods", [["Alt"]]),
        ("key", "mods", ["Alt"] * 5),
        ("snapshot", "download", None),
    ],
)
def test_what_is_wrong_is_ignored_as_a_whole(kind, key, value):
    assert parse(said(kind, **{key: value})) is None


@pytest.mark.parametrize("content", [None, 1, "hello", [], {}, {"t": "hello"}, {"view": VIEW}])
def test_what_is_no_message_is_ignored(content):
    assert parse(content) is None


def test_floats_are_rounded_before_they_are_judged():
    assert parse(said("hello", w=0.6, h=16384.4)) == Hello(VIEW, 1, 16384)
    assert parse(said("hello", w=0.4)) is None
    assert type(parse(said("ack", held_us=900.0)).held_us) is int


def test_all_of_a_camera_is_a_rectangle_of_null():
    assert parse(said("roi", roi=None)) == Roi(VIEW, 1, None)
    assert parse(said("solo", cam=None)) == Solo(VIEW, None)


def test_deep_nesting_does_no_harm():
    deep = []
    for _ in range(100_000):
        deep = [deep]
    for key in said("roi"):
        assert parse(said("roi", **{key: deep})) is None


@given(JSON | almost())
def test_nothing_at_all_makes_it_raise(content):
    message = parse(content)
    assert message is None or isinstance(message, PageMessage)


@given(almost())
def test_what_comes_through_is_within_bounds(content):
    message = parse(content)
    if message is None:
        return
    assert re.fullmatch("[A-Za-z0-9_-]{16,64}", message.view)
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        assert isinstance(value, int | str | tuple | None)
        assert not isinstance(value, int) or -(2**53) <= value <= 2**53
        assert not isinstance(value, str) or len(value) <= 64
    assert parse(json.loads(json.dumps(content))) == message


def test_the_design_lists_the_same_messages():
    text = (ROOT / "docs/design/viewer.md").read_text(encoding="utf-8")
    table = text.partition("### From the page")[2].partition("\n## ")[0]
    rows = [row.split("|")[1:3] for row in table.splitlines() if row.startswith("| `")][1:]
    listed = {
        kind: set(re.findall(r"`(\w+)`", keys))
        for kinds, keys in rows
        for kind in re.findall(r"`(\w+)`", kinds)
    }
    assert listed == {kind: set(keys) for kind, (keys, _) in SAID.items()}


# --- From the kernel ------------------------------------------------------------------------------


def part(**changes):
    values = {
        "cam": 0, "seq": 9, "w": 320, "h": 180, "roi": (0, 0, 640, 360), "mime": "image/jpeg",
        "age_us": 1500,
    }  # fmt: skip
    return Part(**values | changes)


def test_frames_have_their_parts_and_sometimes_a_status():
    header = messages.frames(3, ack=True, parts=[part()])
    assert header == {
        "t": "frames",
        "n": 3,
        "ack": True,
        "parts": [
            {
                "cam": 0, "seq": 9, "w": 320, "h": 180, "roi": [0, 0, 640, 360],
                "mime": "image/jpeg", "still": False, "age_us": 1500,
            }
        ],
    }  # fmt: skip
    assert messages.frames(3, ack=True, parts=[part()], status={"fps": 30})["status"] == {"fps": 30}


def test_a_part_says_only_what_there_is_to_say():
    assert part(shapes=[{"kind": "box"}]).header()["shapes"] == [{"kind": "box"}]
    assert part(shapes=()).header()["shapes"] == []
    inline = part(data="AAAA", still=True, mime="image/png").header()
    assert (inline["b64"], inline["data"], inline["still"]) == (True, "AAAA", True)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (messages.status({"fps": 1}), {"t": "status", "status": {"fps": 1}}),
        (
            messages.probe(Probe(VIEW, 1, 5, 6, 4), seq=9, yuv=None, rgb=(1, 2, 3)),
            {"t": "probe", "id": 4, "cam": 1, "x": 5, "y": 6, "seq": 9, "yuv": None,
             "rgb": [1, 2, 3]},
        ),
        (
            messages.histogram(1, 9, y=(1,), r=(2,), g=(3,), b=(4,)),
            {"t": "histogram", "cam": 1, "seq": 9, "y": [1], "r": [2], "g": [3], "b": [4]},
        ),
        (
            messages.saved("a.png", "/x/a.png", "image/png"),
            {"t": "saved", "name": "a.png", "path": "/x/a.png", "mime": "image/png"},
        ),
        (messages.told("hm"), {"t": "told", "text": "hm", "level": "info"}),
        (messages.told("no", error=True), {"t": "told", "text": "no", "level": "error"}),
        (messages.bye("closed"), {"t": "bye", "text": "closed"}),
    ],
)  # fmt: skip
def test_what_the_page_is_told(message, expected):
    assert message == expected
    assert json.loads(json.dumps(message)) == expected
