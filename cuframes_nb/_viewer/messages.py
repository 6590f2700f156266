"""What the page may say, checked, and what it is told.

Anyone who can open the notebook can say anything, so :func:`parse` takes any object at all and
believes nothing. Keys that are not known are ignored.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final

from cuframes_nb._viewer import checks
from cuframes_nb._viewer.checks import Check, Rect, WrongError
from cuframes_nb.formats import MAX_DIMENSION

__all__ = [
    "Ack",
    "Bye",
    "Hello",
    "Histogram",
    "Key",
    "PageMessage",
    "Part",
    "Pause",
    "Play",
    "Probe",
    "Record",
    "Rect",
    "Roi",
    "Size",
    "Snapshot",
    "Solo",
    "Step",
    "Visible",
    "bye",
    "frames",
    "histogram",
    "parse",
    "probe",
    "saved",
    "status",
    "told",
]

_MAX_COUNT: Final = 2**53
"""Above, a browser's numbers skip whole ones."""
_MAX_STEP: Final = 64


# --- From the page --------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class PageMessage:
    """Something that a page said; `view` is the place on the page that said it."""

    view: str


@dataclasses.dataclass(frozen=True, slots=True)
class Hello(PageMessage):
    """A view came up, or is still there.

    Attributes
    ----------
    w, h
        Device pixels for the picture.
    b64
        Whether pictures have to come in base64, because buffers get lost on the way.
    """

    w: int
    h: int
    b64: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Size(PageMessage):
    """The view's device pixels changed."""

    w: int
    h: int


@dataclasses.dataclass(frozen=True, slots=True)
class Visible(PageMessage):
    """The view can be seen now, or cannot any more."""

    on: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Ack(PageMessage):
    """How far the view has come.

    Attributes
    ----------
    n
        The last `frames` message that it received.
    painted
        The last one that it painted.
    missed
        Pictures since the last acknowledgement that were never painted.
    held_us
        From receiving `n` until this was sent.
    bytes
        What it received since the last acknowledgement.
    span_us
        From the receipt before the first of them to the receipt of the last.
    decode_us
        Median time to decode a picture.
    """

    n: int
    painted: int
    missed: int
    held_us: int
    bytes: int
    span_us: int
    decode_us: int


@dataclasses.dataclass(frozen=True, slots=True)
class Solo(PageMessage):
    """The view shows this camera of a grid alone, or with None all of them."""

    cam: int | None


@dataclasses.dataclass(frozen=True, slots=True)
class Bye(PageMessage):
    """The view is gone."""


@dataclasses.dataclass(frozen=True, slots=True)
class Play(PageMessage):
    """Go on."""


@dataclasses.dataclass(frozen=True, slots=True)
class Pause(PageMessage):
    """Hold the picture."""


@dataclasses.dataclass(frozen=True, slots=True)
class Step(PageMessage):
    """Go `by` frames through the ring, back if it is negative, and pause."""

    by: int


@dataclasses.dataclass(frozen=True, slots=True)
class Roi(PageMessage):
    """Show this rectangle of a camera, or all of it."""

    cam: int
    roi: Rect | None


@dataclasses.dataclass(frozen=True, slots=True)
class Probe(PageMessage):
    """Tell the values of one pixel; the answer has the same `id`."""

    cam: int
    x: int
    y: int
    id: int


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram(PageMessage):
    """Send histograms of a camera, or stop."""

    cam: int
    on: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Snapshot(PageMessage):
    """Save the picture; with `download`, send the file too."""

    cam: int
    download: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Record(PageMessage):
    """Begin a recording, or end it."""

    on: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Key(PageMessage):
    """A key was pressed, with these of Alt, Control, Meta and Shift, in that order."""

    key: str
    mods: tuple[str, ...]


def parse(content: object) -> PageMessage | None:
    """Return what the page said, or None if it is not exactly as it should be. Never raises.

    Parameters
    ----------
    content
        The content of a custom message, as it came out of JSON.
    """
    if not isinstance(content, dict):
        return None
    kind = content.get("t")
    form = _FORMS.get(kind) if isinstance(kind, str) else None
    if form is None:
        return None
    cls, wanted = form
    try:
        values: dict[str, Any] = {name: check(content[name]) for name, check in wanted.items()}
        values |= {
            name: check(content[name])
            for name, check in _OPTIONAL.get(str(kind), {}).items()
            if name in content
        }
        return cls(checks.view(content["view"]), **values)
    except (KeyError, WrongError):
        return None


_count: Final = checks.whole(0, _MAX_COUNT)
_side: Final = checks.whole(1, 16384)
_coordinate: Final = checks.whole(0, MAX_DIMENSION)
_cam: Final = checks.whole(0, 255)
_ack: Final = dict.fromkeys(
    ("n", "painted", "missed", "held_us", "bytes", "span_us", "decode_us"), _count
)
_id: Final = checks.whole(-_MAX_COUNT, _MAX_COUNT)

_FORMS: Final[Mapping[str, tuple[type[PageMessage], Mapping[str, Check]]]] = {
    "hello": (Hello, {"w": _side, "h": _side}),
    "size": (Size, {"w": _side, "h": _side}),
    "visible": (Visible, {"on": checks.flag}),
    "ack": (Ack, _ack),
    "solo": (Solo, {"cam": checks.optional(_cam)}),
    "bye": (Bye, {}),
    "play": (Play, {}),
    "pause": (Pause, {}),
    "step": (Step, {"by": checks.whole(-_MAX_STEP, _MAX_STEP)}),
    "roi": (Roi, {"cam": _cam, "roi": checks.rect}),
    "probe": (Probe, {"cam": _cam, "x": _coordinate, "y": _coordinate, "id": _id}),
    "histogram": (Histogram, {"cam": _cam, "on": checks.flag}),
    "snapshot": (Snapshot, {"cam": _cam, "download": checks.flag}),
    "record": (Record, {"on": checks.flag}),
    "key": (Key, {"key": checks.key_name, "mods": checks.mods}),
}


_OPTIONAL: Final[Mapping[str, Mapping[str, Check]]] = {"hello": {"b64": checks.flag}}


# --- From the kernel ------------------------------------------------------------------------------


@dataclasses.dataclass(frozen=True, slots=True)
class Part:
    """One picture of a `frames` message.

    Attributes
    ----------
    cam
        0, or the position in a grid.
    seq
        The frame's number.
    w, h
        Size of the picture.
    roi
        What it shows of the source.
    mime
        ``image/jpeg`` or ``image/png``.
    age_us
        Since the frame was published, when sent.
    still
        Whether it is lossless.
    shapes
        What to draw over it; None for nothing.
    data
        The picture in base64, for front ends that lose buffers; None if the buffer has it.
    """

    cam: int
    seq: int
    w: int
    h: int
    roi: Rect
    mime: str
    age_us: int
    still: bool = False
    shapes: Sequence[Mapping[str, Any]] | None = None
    data: str | None = None

    def header(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        header: dict[str, Any] = {
            "cam": self.cam, "seq": self.seq, "w": self.w, "h": self.h, "roi": list(self.roi),
            "mime": self.mime, "still": self.still, "age_us": self.age_us,
        }  # fmt: skip
        if self.shapes is not None:
            header["shapes"] = list(self.shapes)
        if self.data is not None:
            header |= {"b64": True, "data": self.data}
        return header


def frames(
    n: int, *, ack: bool, parts: Sequence[Part], status: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the message with pictures of one instant; each part's buffer goes with it."""
    header = {"t": "frames", "n": n, "ack": ack, "parts": [part.header() for part in parts]}
    return header if status is None else header | {"status": dict(status)}


def status(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message for the read-out, for when no frames flow."""
    return {"t": "status", "status": dict(values)}


def probe(
    asked: Probe, *, seq: int, yuv: Sequence[int] | None, rgb: Sequence[int]
) -> dict[str, Any]:
    """Return the answer to a probe; `yuv` is None where the frame has no code values."""
    return {
        "t": "probe", "id": asked.id, "cam": asked.cam, "x": asked.x, "y": asked.y, "seq": seq,
        "yuv": None if yuv is None else list(yuv), "rgb": list(rgb),
    }  # fmt: skip


def histogram(
    cam: int, seq: int, *, y: Sequence[int], r: Sequence[int], g: Sequence[int], b: Sequence[int]
) -> dict[str, Any]:
    """Return the message with 256 counts each of luma, red, green and blue."""
    counts = {"y": list(y), "r": list(r), "g": list(g), "b": list(b)}
    return {"t": "histogram", "cam": cam, "seq": seq} | counts


def saved(name: str, path: str, mime: str) -> dict[str, Any]:
    """Return the message that a file was written; its buffer, if any, goes with it."""
    return {"t": "saved", "name": name, "path": path, "mime": mime}


def told(text: str, *, error: bool = False) -> dict[str, Any]:
    """Return the message that says `text` to people."""
    return {"t": "told", "text": text, "level": "error" if error else "info"}


def bye(text: str) -> dict[str, Any]:
    """Return the message that the widget was closed."""
    return {"t": "bye", "text": text}
