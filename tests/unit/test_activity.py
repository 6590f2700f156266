"""Rates between two looks at streams; no clock, no socket."""

import dataclasses
import json
from pathlib import Path

import pytest

from cuframes_nb._api.info import StreamInfo, SubscriberInfo
from cuframes_nb._api.streams import Unanswered
from cuframes_nb._show.activity import ActivityTable, Meter, activity_document, ring_bytes
from cuframes_nb._show.documents import as_json
from cuframes_nb._show.listings import info_sheet, memory_text
from cuframes_nb.color import ColorSpec
from cuframes_nb.formats import PixelFormat

S = 1_000_000_000
INFO = StreamInfo(
    key="cam", path=Path("/r/cam.sock"), state="live", pid=7, format=PixelFormat.NV12, width=64,
    height=48, fps=25.0, color=ColorSpec(), pitches=(256, 256), memory="host", memory_reason="",
    device=None, completion="host", completion_reason="", policy="drop-oldest", slots=4, epoch=1,
    published=100, dropped=3, age_ns=10_000_000, uptime_ns=10 * S, subscribers=(),
)  # fmt: skip


def later(seconds, published, dropped=0, **changes):
    return dataclasses.replace(
        INFO, uptime_ns=INFO.uptime_ns + int(seconds * S), published=INFO.published + published,
        dropped=INFO.dropped + dropped, **changes,
    )  # fmt: skip


def rates(*looks):
    """Return ``(fps, drops)`` of the only stream at the last look."""
    meter = Meter()
    for look in looks:
        found = meter.look(look)
    (activity,) = found
    return activity.fps, activity.drops


def test_the_first_look_measures_nothing():
    assert rates([INFO]) == (None, None)


def test_rates_are_those_since_the_look_before():
    assert rates([INFO], [later(2, 50, 4)]) == (25.0, 2.0)
    assert rates([INFO], [later(2, 50)], [later(3, 50)]) == (0.0, 0.0)


def test_the_time_is_the_streams_own():
    # However long the look took because of another stream.
    assert rates([INFO], [later(0.5, 15)]) == (30.0, 0.0)


@pytest.mark.parametrize(
    "now",
    [
        later(2, 50, pid=8),  # another process took the name over
        later(2, -50),  # or the same process, anew
        later(-5, 50),
        later(2, 50, -1),
        later(0, 0),  # the same answer twice
        dataclasses.replace(INFO, uptime_ns=None),
    ],
)
def test_what_cannot_be_compared_is_not(now):
    assert rates([INFO], [now]) == (None, None)


def test_a_stream_that_was_away_is_new():
    meter = Meter()
    meter.look([INFO])
    assert meter.look([]) == []
    (again,) = meter.look([later(2, 50)])
    assert again.fps is None


def test_streams_of_one_key_in_two_directories_are_two():
    other = dataclasses.replace(INFO, path=Path("/x/cam.sock"), published=1000)
    meter = Meter()
    meter.look([INFO, other])
    moved = dataclasses.replace(other, published=1010, uptime_ns=11 * S)
    assert [one.fps for one in meter.look([later(1, 25), moved])] == [25.0, 10.0]


def test_the_memory_is_that_of_all_slots():
    assert ring_bytes(INFO) == 4 * 256 * (48 + 24)


READERS = (
    SubscriberInfo("idle", 1, 0, "newest", 0),
    SubscriberInfo("[red]x\x1b[31m", 2, 0, "newest", 2),
)


def test_a_table_has_streams_and_sockets():
    meter = Meter()
    meter.look([INFO])
    activities = meter.look([later(2, 50, 2, subscribers=READERS)])
    silent = Unanswered("off", Path("/r/off.sock"), "silent", "it does not answer")
    lines = ActivityTable(activities, [silent], "12:00:00").text().split("\n")
    assert lines[0] == "12:00:00  1 stream, 2 subscribers"
    assert lines[2].split() == [
        "cam", "live", "25", "10", "ms", "1", "5", "72", "KiB", "host", "[red]x\ufffd[31m", "2/4,",
        "idle", "0/4",
    ]  # fmt: skip
    assert lines[3].split() == ["off", "silent", *"––––––"]


def test_nothing_measured_and_nothing_published_are_two_things():
    meter = Meter()
    first = ActivityTable(meter.look([INFO])).text().split()
    second = ActivityTable(meter.look([later(1, 0)])).text().split()
    assert first[first.index("live") + 1] == "–"
    assert second[second.index("live") + 1] == "0"


def test_a_document_has_all_about_a_stream():
    meter = Meter()
    meter.look([INFO])
    (stream,) = json.loads(as_json(activity_document(meter.look([later(2, 50)]))))
    assert stream["path"] == "/r/cam.sock"
    assert stream["format"] == "nv12"
    assert stream["color"]["matrix"] == "bt709"
    assert (stream["fps"], stream["measured_fps"], stream["drops_per_second"]) == (25.0, 25.0, 0.0)
    assert stream["ring_bytes"] == ring_bytes(INFO)


@pytest.mark.parametrize(
    ("memory", "ownership", "sharing", "text"),
    [
        ("host", "library", "descriptor", "host"),
        ("cuda-vmm", "library", "descriptor", "cuda-vmm"),
        ("cuda-vmm", "external", "descriptor", "cuda-vmm (external)"),
        ("cuda-ipc", "external", "legacy handle", "cuda-ipc (external, legacy handle)"),
        ("vulkan", "external", "copied", "vulkan (external, copied)"),
        ("cuda-vmm", "library", "peer", "cuda-vmm (peer)"),
        ("gst (legacy)", "external", "legacy handle", "gst (legacy)"),
    ],
)
def test_what_is_not_as_usual_is_told(memory, ownership, sharing, text):
    info = dataclasses.replace(INFO, memory=memory, ownership=ownership, sharing=sharing)
    assert memory_text(info) == text
    (row,) = ActivityTable(Meter().look([info])).rows
    assert row[7] == text
    sheet = info_sheet(info).text()
    assert ("somebody else" in sheet) == (ownership == "external")
    assert ("copies each frame" in sheet) == (sharing == "copied")
    assert ("mapped into another GPU" in sheet) == (sharing == "peer")
    assert ("mapped for writing" in sheet) == (sharing == "legacy handle")
