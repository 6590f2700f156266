"""Streams, GPUs and counters as tables."""

from __future__ import annotations

from collections.abc import Iterable

from cuframes_nb._api.devices import DeviceInfo
from cuframes_nb._api.info import StreamInfo
from cuframes_nb._api.streams import Unanswered
from cuframes_nb._core.stats import PublisherStats, SubscriberStats
from cuframes_nb._show.quantities import amount, bytes_text, counted, ns_text, rate_text
from cuframes_nb._show.tables import Column, Sheet, Table
from cuframes_nb.color import ColorSpec

__all__ = [
    "DeviceTable",
    "StreamTable",
    "UnansweredTable",
    "color_text",
    "info_sheet",
    "stats_sheet",
    "stats_table",
]


class StreamTable(Table):
    """The streams there are.

    Attributes
    ----------
    streams
        The values that the table shows.
    """

    def __init__(self, streams: Iterable[StreamInfo]) -> None:
        self.streams = tuple(streams)
        super().__init__(
            counted(len(self.streams), "stream", "No stream is published here"),
            [
                "key", "state", "frames", Column("fps", number=True), "memory",
                Column("age", number=True), Column("published", number=True),
                Column("dropped", number=True), "subscribers",
            ],
            map(_stream_row, self.streams),
        )  # fmt: skip


def _stream_row(info: StreamInfo) -> list[str]:
    return [
        info.key,
        info.state,
        f"{info.width}x{info.height} {info.format}",
        rate_text(info.fps),
        info.memory,
        ns_text(info.age_ns),
        f"{info.published:,}",
        f"{info.dropped:,}",
        _subscriber_names(info),
    ]


def _subscriber_names(info: StreamInfo) -> str:
    if info.subscribers is None:
        return "unknown"
    names = ", ".join(subscriber.name for subscriber in info.subscribers)
    return f"{len(info.subscribers)}: {names}" if names else "none"


class UnansweredTable(Table):
    """The sockets that tell of no stream, and why."""

    def __init__(self, sockets: Iterable[Unanswered]) -> None:
        rows = [[socket.key, socket.state, socket.reason] for socket in sockets]
        super().__init__(
            f"{amount(len(rows), 'socket')} without a stream",
            ["key", "state", "why"],
            rows,
        )


def stats_sheet(streams: Iterable[StreamInfo]) -> Sheet:
    """Return counters of streams, and who reads them."""
    streams = tuple(streams)
    counters = Table(
        counted(len(streams), "stream", "No stream is published here"),
        ["key", *(Column(head, number=True) for head in (
            "published", "dropped", "mean fps", "slots", "slots read", "epoch", "age", "up for",
        ))],
        map(_stats_row, streams),
    )  # fmt: skip
    return Sheet(counters, *(_subscriber_table(info) for info in streams if info.subscribers))


def _stats_row(info: StreamInfo) -> list[str]:
    seconds = (info.uptime_ns or 0) / 1e9
    return [
        info.key,
        f"{info.published:,}",
        f"{info.dropped:,}",
        rate_text(info.published / seconds if seconds else 0.0),
        str(info.slots),
        str(sum(subscriber.holds for subscriber in info.subscribers or ())),
        str(info.epoch),
        ns_text(info.age_ns),
        ns_text(info.uptime_ns),
    ]


def _subscriber_table(info: StreamInfo) -> Table:
    return Table(
        f"Who reads {info.key}",
        ["name", Column("process", number=True), Column("user", number=True), "mode",
         Column("holds", number=True)],
        (
            [s.name, str(s.pid or "elsewhere"), str(s.uid), s.mode, f"{s.holds} of {info.slots}"]
            for s in info.subscribers or ()
        ),
    )  # fmt: skip


def info_sheet(info: StreamInfo) -> Sheet:
    """Return all that is known about a stream."""
    facts = {
        "state": info.state,
        "frames": f"{info.width}x{info.height} {info.format}, {rate_text(info.fps)} fps",
        "colours": color_text(info.color),
        "memory": _with_reason(info.memory, info.memory_reason),
        "device": info.device or "the host",
        "completion": _with_reason(info.completion, info.completion_reason),
        "ring": f"{info.slots} slots, {info.policy}, epoch {info.epoch}",
        "row pitches": ", ".join(f"{pitch} bytes" for pitch in info.pitches),
        "published": f"{info.published:,}, {info.dropped:,} dropped",
        "last frame": "none yet" if info.age_ns is None else f"{ns_text(info.age_ns)} ago",
        "up for": ns_text(info.uptime_ns),
        "publisher": f"process {info.pid or 'elsewhere'}",
        "socket": str(info.path),
    }
    tables = [Table(f"Stream {info.key}", ["what", "value"], facts.items())]
    if info.subscribers:
        tables.append(_subscriber_table(info))
    return Sheet(*tables)


def stats_table(stats: PublisherStats | SubscriberStats) -> Table:
    """Return the counters of a publisher or subscriber."""
    whose = "publisher" if isinstance(stats, PublisherStats) else "subscriber"
    return Table(
        f"Counters of a {whose}",
        ["what", Column("count", number=True)],
        ((name.replace("_", " "), f"{count:,}") for name, count in stats._asdict().items()),
    )


class DeviceTable(Table):
    """The GPUs that this process sees.

    Attributes
    ----------
    devices
        The values that the table shows.
    """

    def __init__(self, devices: Iterable[DeviceInfo]) -> None:
        self.devices = tuple(devices)
        super().__init__(
            counted(len(self.devices), "GPU", "No GPU is seen here: frames are in host memory"),
            [Column("number", number=True), "name", Column("memory", number=True), "compute",
             "can share", "UUID", "PCI bus id"],
            map(_device_row, self.devices),
        )  # fmt: skip


def _device_row(gpu: DeviceInfo) -> list[str]:
    return [
        str(gpu.ordinal),
        gpu.name + (" (integrated)" if gpu.integrated else ""),
        bytes_text(gpu.total_bytes),
        "{}.{}".format(*gpu.compute_capability),
        "yes" if gpu.can_share else "no",
        gpu.uuid,
        gpu.pci_bus_id,
    ]


def color_text(color: ColorSpec) -> str:
    """Return what is known about a stream's colours."""
    parts = (color.matrix, color.range, color.primaries, color.transfer)
    return ", ".join(filter(None, parts)) + (" (assumed)" if color.assumed else "")


def _with_reason(what: str, reason: str) -> str:
    return f"{what} ({reason})" if reason else what
