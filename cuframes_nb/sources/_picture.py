"""A decoded frame: what it is, and its way into a slot."""

from __future__ import annotations

import dataclasses
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.slot import WritableSlot
from cuframes_nb.color import PRIMARIES_CODES, TRANSFER_CODES, ColorSpec
from cuframes_nb.sources._nvdec import Nvdec
from cuframes_nb.sources._planes import Writer, write_as_they_are, write_planar

__all__ = ["Picture", "stream_color"]

_DIRECT: Final[dict[str, tuple[str, Writer]]] = {
    "yuv420p": ("nv12", write_planar(0)),
    "yuvj420p": ("nv12", write_planar(0)),
    "yuv420p10le": ("p010", write_planar(6)),
    "nv12": ("nv12", write_as_they_are),
    "p010le": ("p010", write_as_they_are),
    "gray": ("gray8", write_as_they_are),
    "rgb24": ("rgb24", write_as_they_are),
    "rgba": ("rgba32", write_as_they_are),
}
"""What decoders give that goes into a slot with one copy: our format, and how."""

_AV_RANGES: Final = {1: "limited", 2: "full"}
"""FFmpeg's AVColorRange, which is not H.273's flag."""

_MATRICES: Final = {1: "bt709", 5: "bt601", 6: "bt601", 9: "bt2020"}
"""H.273 gives BT.601's matrix two code points."""

_PRIMARIES: Final = {code: name for name, code in PRIMARIES_CODES.items()}
_TRANSFERS: Final = {code: name for name, code in TRANSFER_CODES.items()}


@dataclasses.dataclass(frozen=True, slots=True)
class Picture:
    """A decoded frame that is upright once it is in a slot.

    Attributes
    ----------
    frame
        PyAV's.
    turns
        Quarters that it has to be turned by, anticlockwise.
    color
        What its code values mean, None if the stream does not say.
    nvdec
        What decoded it on a GPU, where it still is; None if it is in host memory.
    """

    frame: Any
    turns: int
    color: ColorSpec | None
    nvdec: Nvdec | None = None

    @classmethod
    def of(cls, frame: Any, nvdec: Nvdec | None = None) -> Self:
        """Return what a frame says about itself."""
        turns = round(frame.rotation / 90) % 4
        is_there = nvdec is not None and nvdec.has(frame)
        return cls(frame, turns, stream_color(frame), nvdec if is_there else None)

    @property
    def width(self) -> int:
        """In pixels, when it is upright."""
        width: int = self.frame.height if self.turns % 2 else self.frame.width
        return width

    @property
    def height(self) -> int:
        """In pixels, when it is upright."""
        height: int = self.frame.width if self.turns % 2 else self.frame.height
        return height

    @property
    def format(self) -> str:
        """The pixel format of the slot that it goes into."""
        if self.nvdec is not None:
            return self.nvdec.format_of(self.frame)
        return _DIRECT[_slot_name(self.frame.format)][0]

    def scaled(self, width: int, height: int) -> Self:
        """Return it in this size, in pixels when it is upright."""
        if (self.width, self.height) == (width, height):
            return self
        size = (height, width) if self.turns % 2 else (width, height)
        return dataclasses.replace(self, frame=self._as(_slot_name(self.frame.format), *size))

    def write(self, slot: WritableSlot) -> None:
        """Copy it into `slot`, once."""
        if self.nvdec is not None:
            self.nvdec.copy(slot, self.frame, self.turns)
            return
        name = _slot_name(self.frame.format)
        frame = self.frame if name == self.frame.format.name else self._as(name)
        _, write = _DIRECT[name]
        write(slot, [_rows(plane, frame) for plane in frame.planes], self.turns)

    def _as(self, name: str, width: int | None = None, height: int | None = None) -> Any:
        levels = 2 if _range(self.frame) == "full" else 1  # FFmpeg would make it limited
        return self.frame.reformat(
            width, height, name, src_color_range=levels, dst_color_range=levels
        )


def stream_color(frame: Any) -> ColorSpec | None:
    """Return what a decoded frame says about its colours, None if it says nothing.

    Parameters
    ----------
    frame
        A PyAV ``VideoFrame``. What only part of its tags say is completed by the usual assumption.
    """
    levels = _range(frame)
    matrix = _MATRICES.get(int(frame.colorspace))
    if frame.format.is_rgb or (matrix is None and levels is None):
        return None
    return ColorSpec(
        matrix or ColorSpec.assume(frame.height).matrix,
        levels or "limited",
        _PRIMARIES.get(int(frame.color_primaries)),
        _TRANSFERS.get(int(frame.color_trc)),
        assumed=matrix is None,
    )


def _range(frame: Any) -> str | None:
    if frame.format.name.startswith("yuvj"):
        return "full"  # J is for JPEG
    return _AV_RANGES.get(int(frame.color_range))


def _slot_name(format_: Any) -> str:
    """Return the decoder's format, or the one that FFmpeg is to convert it to."""
    if format_.name in _DIRECT:
        return str(format_.name)
    if format_.is_rgb or format_.has_palette:
        return "rgb24"
    return "p010le" if format_.components[0].bits > 8 else "nv12"


def _rows(plane: Any, frame: Any) -> NDArray[Any]:
    """Return the samples of a plane as rows, on the decoder's memory."""
    deep = frame.format.components[0].bits > 8
    flat = np.frombuffer(plane, np.uint16 if deep else np.uint8)
    pitch = plane.line_size // flat.itemsize
    return flat[: pitch * plane.height].reshape(plane.height, pitch)
