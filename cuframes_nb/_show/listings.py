"""Streams, GPUs and counters as tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from cuframes_nb._api.devices import DeviceInfo
from cuframes_nb._api.info import StreamInfo
from cuframes_nb._api.streams import Unanswered, name_of
from cuframes_nb._core.stats import PublisherStats, SubscriberStats
from cuframes_nb._show.quantities import amount, bytes_text, counted, ns_text, rate_text
from cuframes_nb._show.tables import Column, Sheet, Table
from cuframes_nb.color import ColorSpec

__all__ = [
    "DeviceTable",
    "StreamTable",
    "UnansweredTable",
    "color_text",
    "count_text",
    "info_sheet",
    "memory_text",
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
        name_of(info),
        info.state,
        f"{info.width}x{info.height} {info.format}",
        rate_text(info.fps),
        memory_text(info),
        ns_text(info.age_ns),
        count_text(info, info.published),
        count_text(info, info.dropped),
        _subscriber_names(info),
    ]


def memory_text(info: StreamInfo) -> str:
    """Return the kind of a stream's memory, and what is not as it is by default.

    That is memory which the stream itself made, and which subscribers map by descriptor.
    """
    if _is_pipeline(info):
        return info.memory  # says it all
    notes = [info.ownership] if info.ownership != "library" else []
    if info.sharing != "descriptor":
        notes.append(info.sharing)
    return f"{info.memory} ({', '.join(notes)})" if notes else info.memory


def count_text(info: StreamInfo, count: int) -> str:
    """Return a count, or a dash where the publisher does not tell any."""
    return "–" if _is_pipeline(info) and not count else f"{count:,}"


def _is_pipeline(info: StreamInfo) -> bool:
    return info.memory.startswith("gst")


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
        name_of(info),
        count_text(info, info.published),
        count_text(info, info.dropped),
        rate_text(info.published / seconds if seconds else 0.0),
        count_text(info, info.slots),
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


_OWNERS: Final = {
    "library": "the stream's own",
    "external": "made by somebody else than the stream",
}
_WAYS: Final = {
    "descriptor": "by descriptor",
    "legacy handle": "by legacy handle: mapped for writing, too, and gone when its owner frees it",
    "copied": "who reads it copies each frame, once",
    "peer": "by descriptor, mapped into another GPU than the one that holds it",
}


def _no_device(info: StreamInfo) -> str:
    # Vulkan's memory without one is a software driver's.
    on_host = info.memory in {"host", "vulkan"}
    return "the host" if on_host else "a GPU; which one, a subscriber is told"


def _ring_text(info: StreamInfo) -> str:
    if _is_pipeline(info):
        return "none: the pipeline makes as many buffers as are held"
    return f"{info.slots} slots, {info.policy}, epoch {info.epoch}"


def info_sheet(info: StreamInfo) -> Sheet:
    """Return all that is known about a stream."""
    facts = {
        "state": info.state,
        "frames": f"{info.width}x{info.height} {info.format}, {rate_text(info.fps)} fps",
        "colours": color_text(info.color),
        "memory": _with_reason(info.memory, info.memory_reason),
        "whose memory": _OWNERS.get(info.ownership, info.ownership),
        "shared": _WAYS.get(info.sharing, info.sharing),
        "device": info.device or _no_device(info),
        "completion": _with_reason(info.completion, info.completion_reason),
        "ring": _ring_text(info),
        "row pitches": ", ".join(f"{pitch} bytes" for pitch in info.pitches),
        "published": f"{count_text(info, info.published)}, "
        f"{count_text(info, info.dropped)} dropped",
        "last frame": "none yet" if info.age_ns is None else f"{ns_text(info.age_ns)} ago",
        "up for": ns_text(info.uptime_ns),
        "publisher": f"process {info.pid or 'elsewhere'}",
        "socket": str(info.path),
    }
    tables = [Table(f"Stream {name_of(info)}", ["what", "value"], facts.items())]
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


class DeviceTable(Sheet):
    """The GPUs there are: what they are, how they are named, what they can do, what hides them.

    Attributes
    ----------
    devices
        The values that the tables show.
    """

    def __init__(self, devices: Iterable[DeviceInfo]) -> None:
        self.devices = tuple(devices)
        hidden = [gpu for gpu in self.devices if gpu.ordinal is None]
        seen = len(self.devices) - len(hidden)
        caption = counted(seen, "GPU", "No GPU is seen here: frames are in host memory")
        versions = {f", driver {gpu.driver}, CUDA {gpu.cuda}" for gpu in self.devices if gpu.cuda}
        tables = [
            Table(
                caption + "".join(sorted(versions)),
                [Column("number", number=True), "name", Column("memory", number=True),
                 Column("free", number=True), "compute", "screen"],
                map(_device_row, self.devices),
            ),
            Table(
                "How they are named",
                [Column("number", number=True), "UUID", "PCI bus id"],
                ([_number(gpu), gpu.uuid, gpu.pci_bus_id] for gpu in self.devices),
            ),
            Table(
                "What they can do",
                [Column("number", number=True), "shares memory", "encodes", "decoders", "reaches"],
                map(_ability_row, self.devices),
            ),
            Table(
                f"{amount(len(hidden), 'GPU')} hidden from this process",
                ["PCI bus id", "hidden by"],
                ([gpu.pci_bus_id, gpu.hidden_by] for gpu in hidden),
            ),
        ]  # fmt: skip
        super().__init__(tables[0], *(table for table in tables[1:] if len(table)))


def _number(gpu: DeviceInfo) -> str:
    return "–" if gpu.ordinal is None else str(gpu.ordinal)


def _device_row(gpu: DeviceInfo) -> list[str]:
    return [
        _number(gpu),
        gpu.name + (" (integrated)" if gpu.integrated else ""),
        bytes_text(gpu.total_bytes) if gpu.total_bytes else "–",
        "–" if gpu.free_bytes is None else bytes_text(gpu.free_bytes),
        "{}.{}".format(*gpu.compute_capability) if any(gpu.compute_capability) else "–",
        _yes(gpu.display),
    ]


def _ability_row(gpu: DeviceInfo) -> list[str]:
    engines = {"video": gpu.decoders, "JPEG": gpu.jpeg_decoders}
    nvlink = set(gpu.nvlink_peers)
    reached = [f"{uuid} by {'NVLink' if uuid in nvlink else 'PCIe'}" for uuid in gpu.peers]
    return [
        _number(gpu),
        _yes(gpu.can_share),
        "unknown" if gpu.encodes is None else ", ".join(gpu.encodes) or "nothing",
        ", ".join(f"{count} for {what}" for what, count in engines.items() if count is not None)
        or "unknown",
        ", ".join(reached) or "no other",
    ]


def _yes(answer: bool | None) -> str:  # noqa: FBT001  a value, not a flag
    return "unknown" if answer is None else "yes" if answer else "no"


def color_text(color: ColorSpec) -> str:
    """Return what is known about a stream's colours."""
    parts = (color.matrix, color.range, color.primaries, color.transfer)
    return ", ".join(filter(None, parts)) + (" (assumed)" if color.assumed else "")


def _with_reason(what: str, reason: str) -> str:
    return f"{what} ({reason})" if reason else what
