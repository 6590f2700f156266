"""GStreamer's caps, of which only what a frame needs. Pure."""

from __future__ import annotations

import dataclasses
import fractions
import re
from typing import Final

from cuframes_nb.bridges.gst.messages import Offer
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import InvalidArgumentError, RemoteProtocolError, UnsupportedError
from cuframes_nb.formats import MAX_DIMENSION, FrameLayout, PixelFormat

__all__ = ["Caps", "caps_text", "layout_of", "parse_caps"]

_FORMATS: Final = {
    "NV12": PixelFormat.NV12,
    "P010_10LE": PixelFormat.P010,
    "RGB": PixelFormat.RGB24,
    "RGBA": PixelFormat.RGBA32,
}
"""By the names of GStreamer's video formats."""

_NAMES: Final = {format_: name for name, format_ in _FORMATS.items()}

_LARGEST_DENOMINATOR: Final = 1001
"""Of a rate as a fraction: 30000/1001 is the usual one that is no whole number."""

_MOST: Final = 4096
"""Characters of caps; real ones have some hundreds."""

_FIELD: Final = re.compile(r',\s*([a-z][\w-]*)=\((\w+)\)("(?:\\.|[^"\\])*"|[^,;"]*)')

_RANGES: Final = {1: "full", 2: "limited"}
_MATRICES: Final = {1: "rgb", 3: "bt709", 4: "bt601", 6: "bt2020"}
_TRANSFERS: Final = {
    1: "linear", 5: "bt709", 7: "srgb", 11: "bt2020-10", 13: "bt2020-10", 14: "pq", 15: "hlg",
    16: "smpte170m",
}  # fmt: skip
_PRIMARIES: Final = {1: "bt709", 3: "bt470bg", 4: "smpte170m", 7: "bt2020", 11: "smpte432"}
"""By the numbers of GstVideoColorRange, …Matrix, …TransferFunction and …Primaries."""

_NAMED: Final = {
    "bt601": (2, 4, 16, 4),
    "bt709": (2, 3, 5, 1),
    "sRGB": (1, 1, 7, 1),
    "bt2020": (2, 6, 11, 7),
    "bt2020-10": (2, 6, 13, 7),
    "bt2100-pq": (2, 6, 14, 7),
    "bt2100-hlg": (2, 6, 15, 7),
}
"""GStreamer's short names for range, matrix, transfer and primaries."""


@dataclasses.dataclass(frozen=True, slots=True)
class Caps:
    """What frames are."""

    format: PixelFormat
    width: int
    height: int
    fps: float  #: 0 where it varies or is not said
    color: ColorSpec


def parse_caps(text: str) -> Caps:
    """Take caps apart.

    Raises
    ------
    RemoteProtocolError
        If they are no caps of video.
    UnsupportedError
        If the frames are of a format that is not known here.
    """
    if not text.startswith("video/x-raw") or len(text) > _MOST:
        raise RemoteProtocolError(f"the caps {_short(text)!r} are not those of raw video")
    fields = {name: _unquoted(value) for name, _, value in _FIELD.findall(text)}
    name = fields.get("format", "")
    if name not in _FORMATS:
        raise UnsupportedError(
            f"the pipeline's frames have the format {_short(name)!r}, and {', '.join(_FORMATS)} "
            f"can be read: put 'cudaconvert ! video/x-raw(memory:CUDAMemory),format=NV12' before "
            f"its cudaipcsink"
        )
    width, height = (_dimension(fields, side) for side in ("width", "height"))
    format_ = _FORMATS[name]
    color = _color(fields.get("colorimetry", ""), format_, height)
    return Caps(format_, width, height, _rate(fields.get("framerate", "")), color)


def layout_of(caps: Caps, offer: Offer) -> FrameLayout:
    """Return where the planes of a frame lie in its allocation.

    Raises
    ------
    RemoteProtocolError
        If they do not lie inside of it.
    """
    count = len(caps.format.plane_shapes(caps.width, caps.height))
    try:
        layout = FrameLayout.make(
            caps.format,
            caps.width,
            caps.height,
            pitch=offer.pitch,
            offsets=offer.offsets[:count],
        )
    except InvalidArgumentError as error:
        raise RemoteProtocolError(f"the pipeline sent a frame that cannot be: {error}") from error
    end = layout.planes[-1].end
    if not end <= offer.size <= offer.max_size:
        raise RemoteProtocolError(
            f"a frame of {caps.width}x{caps.height} {caps.format} ends at byte {end}, but the "
            f"pipeline says that it has {offer.size} bytes in an allocation of {offer.max_size}"
        )
    return layout


def caps_text(caps: Caps) -> str:
    """Return caps as a sink writes them.

    Raises
    ------
    UnsupportedError
        If GStreamer's elements for CUDA memory do not know the format.
    """
    if caps.format not in _NAMES:
        raise UnsupportedError(
            f"GStreamer's elements for GPU memory know no format {caps.format}; publish one of "
            f"{', '.join(_NAMES)}"
        )
    rate = fractions.Fraction(caps.fps).limit_denominator(_LARGEST_DENOMINATOR)
    text = (
        f"video/x-raw(memory:CUDAMemory), format=(string){_NAMES[caps.format]}, "
        f"width=(int){caps.width}, height=(int){caps.height}, "
        f"framerate=(fraction){rate.numerator}/{rate.denominator}, "
        f"pixel-aspect-ratio=(fraction)1/1"
    )
    if caps.color.assumed:
        return text  # the pipeline assumes for itself
    return f"{text}, colorimetry=(string){_colorimetry(caps.color)}"


def _colorimetry(color: ColorSpec) -> str:
    numbers = (
        _number(_RANGES, color.range),
        _number(_MATRICES, color.matrix),
        _number(_TRANSFERS, color.transfer),
        _number(_PRIMARIES, color.primaries),
    )
    names = {named: name for name, named in _NAMED.items()}
    return names.get(numbers) or ":".join(map(str, numbers))


def _number(table: dict[int, str], name: str | None) -> int:
    """Return the number of a name, the last where several mean it, 0 for unknown."""
    return next((number for number in reversed(table) if table[number] == name), 0)


def _dimension(fields: dict[str, str], side: str) -> int:
    value = fields.get(side, "")
    if not re.fullmatch(r"[0-9]{1,6}", value) or not 1 <= int(value) <= MAX_DIMENSION:
        raise RemoteProtocolError(f"the caps have the {side} {_short(value)!r}")
    return int(value)


def _rate(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,9})/([0-9]{1,9})", text)
    if match is None or not int(match[2]):
        return 0.0
    return int(match[1]) / int(match[2])


def _color(text: str, format_: PixelFormat, height: int) -> ColorSpec:
    """Return what a colorimetry means; what it leaves open is assumed, as for untagged video."""
    assumed = ColorSpec.assume(height, yuv=format_.is_yuv)
    if re.fullmatch(r"[0-9]{1,2}(:[0-9]{1,2}){3}", text):
        range_, matrix, transfer, primaries = map(int, text.split(":"))
    else:
        range_, matrix, transfer, primaries = _NAMED.get(text, (0, 0, 0, 0))
    known = _MATRICES.get(matrix)
    if known is None or (known == "rgb") is format_.is_yuv:
        known = None
    return ColorSpec(
        known or assumed.matrix,
        _RANGES.get(range_, assumed.range),
        _PRIMARIES.get(primaries),
        _TRANSFERS.get(transfer),
        assumed=known is None or range_ not in _RANGES,
    )


def _unquoted(value: str) -> str:
    value = value.strip()
    return re.sub(r"\\(.)", r"\1", value[1:-1]) if value.startswith('"') else value


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:80]}…"
