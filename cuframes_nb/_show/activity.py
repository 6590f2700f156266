"""What streams do: rates between two looks at them, and the table of ``cuframes-nb top``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from cuframes_nb._api.info import StreamInfo
from cuframes_nb._api.streams import Unanswered, name_of
from cuframes_nb._show.documents import document
from cuframes_nb._show.listings import count_text, memory_text
from cuframes_nb._show.quantities import amount, bytes_text, ns_text, rate_text
from cuframes_nb._show.tables import Column, Table
from cuframes_nb.formats import FrameLayout

__all__ = ["Activity", "ActivityTable", "Meter", "activity_document", "ring_bytes"]


class Activity(NamedTuple):
    """A stream, and what it did since the look before."""

    info: StreamInfo
    fps: float | None  #: frames published a second; None where there is nothing to compare with
    drops: float | None  #: frames dropped a second


class Meter:
    """Measures streams from look to look.

    It has no clock. A publisher says with its counters how long it has been up, so the time between
    two looks is that stream's own, also where another one made the look take long.
    """

    def __init__(self) -> None:
        self._before: dict[Path, StreamInfo] = {}

    def look(self, streams: Iterable[StreamInfo]) -> list[Activity]:
        """Return what each stream did since it was seen last.

        A publisher that took the name over is a new one, and has not been seen.
        """
        streams = list(streams)
        found = [_activity(self._before.get(info.path), info) for info in streams]
        self._before = {info.path: info for info in streams}
        return found


def _activity(before: StreamInfo | None, now: StreamInfo) -> Activity:
    if before is None or before.pid != now.pid or before.uptime_ns is None or now.uptime_ns is None:
        return Activity(now, None, None)
    seconds = (now.uptime_ns - before.uptime_ns) / 1e9
    published = now.published - before.published
    dropped = now.dropped - before.dropped
    if seconds <= 0 or published < 0 or dropped < 0:
        return Activity(now, None, None)
    return Activity(now, published / seconds, dropped / seconds)


def ring_bytes(info: StreamInfo) -> int:
    """Return how much memory a stream's frames take: all slots of its ring."""
    layout = FrameLayout.make(info.format, info.width, info.height, pitch=info.pitches)
    return info.slots * layout.nbytes


class ActivityTable(Table):
    """Streams at work, and the sockets that tell of none."""

    def __init__(
        self, activities: Sequence[Activity], unanswered: Sequence[Unanswered] = (), when: str = ""
    ) -> None:
        readers = sum(len(one.info.subscribers or ()) for one in activities)
        streams = f"{amount(len(activities), 'stream')}, {amount(readers, 'subscriber')}"
        super().__init__(
            f"{when}  {streams}".lstrip(),
            ["key", "state", *(Column(head, number=True) for head in (
                "fps", "age", "drops/s", "drops", "memory",
            )), "in", "subscribers and the slots they hold"],
            [*map(_row, activities), *map(_row_without, unanswered)],
        )  # fmt: skip


def _row(activity: Activity) -> list[str]:
    info = activity.info
    return [
        name_of(info),
        info.state,
        _rate(activity.fps),
        ns_text(info.age_ns),
        _rate(activity.drops),
        count_text(info, info.dropped),
        bytes_text(ring_bytes(info)) if info.slots else "–",
        memory_text(info),
        _holders(info),
    ]


def _row_without(socket: Unanswered) -> list[str]:
    return [socket.key, socket.state, *"––––––", ""]


def _rate(per_second: float | None) -> str:
    """Return a rate; one of zero is known, unlike none."""
    return "–" if per_second is None else rate_text(per_second) if per_second else "0"


def _holders(info: StreamInfo) -> str:
    """Return who reads, those that hold most first: they are what one looks for."""
    if info.subscribers is None:
        return "unknown"
    readers = sorted(info.subscribers or (), key=lambda reader: -reader.holds)
    return ", ".join(f"{reader.name} {reader.holds}/{info.slots}" for reader in readers) or "none"


def activity_document(activities: Iterable[Activity]) -> list[dict[str, Any]]:
    """Return all that is known about each stream, and its rates, for a program."""
    return [
        {
            **document(one.info),
            "measured_fps": one.fps,
            "drops_per_second": one.drops,
            "ring_bytes": ring_bytes(one.info),
        }
        for one in activities
    ]
