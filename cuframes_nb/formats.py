"""Pixel formats and the geometry of one frame inside its slot: pure values.

A frame is one to three *planes*. A plane is described by its byte offset from the start of the
slot, its shape as an array, and its *pitch*: the number of bytes from one row to the next. Pitches
and offsets are data: they are carried from publisher to subscriber and never derived from the
height, because decoders and GPUs pad rows and planes as they like.
"""

from __future__ import annotations

import dataclasses
import enum
import operator
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Self

from cuframes_nb.errors import InvalidArgumentError

__all__ = ["MAX_DIMENSION", "FrameLayout", "PixelFormat", "PlaneLayout"]

MAX_DIMENSION: Final = 32768
"""Largest width or height in pixels; twice that of the largest H.265 level (8192x4320, Rec. H.265
Annex A) in each direction and more than any decoder gives."""

DEFAULT_PITCH_ALIGNMENT: Final = 256
"""Bytes. Rows that start at multiples of 256 let GPU warps and texture units read whole lines
(CUDA C++ Programming Guide, "Device Memory Accesses"; ``cudaMallocPitch`` gives 256 or 512)."""


class _PlaneRule(NamedTuple):
    """How one plane of a format follows from the frame's size."""

    subsample_x: int
    subsample_y: int
    components: int


class PixelFormat(enum.StrEnum):
    """How pixels lie in memory. Each member equals its name as a string.

    ``NV12``
        8-bit 4:2:0; a Y plane, then a plane of interleaved U, V (FFmpeg ``nv12``, V4L2 ``NV12``).
    ``P010``
        10-bit 4:2:0 as NV12 with 16-bit little-endian words, the value in the upper 10 bits
        (FFmpeg ``p010le``, Microsoft "10-bit and 16-bit YUV Video Formats").
    ``GRAY8``
        8-bit luma only.
    ``RGB24``, ``RGBA32``
        8-bit interleaved R, G, B and R, G, B, A.
    """

    NV12 = "nv12"
    P010 = "p010"
    GRAY8 = "gray8"
    RGB24 = "rgb24"
    RGBA32 = "rgba32"

    @classmethod
    def parse(cls, value: str) -> PixelFormat:
        """Return the member called `value`.

        Raises
        ------
        InvalidArgumentError
            If there is none; the message lists the names.
        """
        try:
            return cls(value)
        except ValueError:
            names = ", ".join(cls)
            raise InvalidArgumentError(
                f"pixel format {value!r} is not known; use one of {names}"
            ) from None

    @property
    def itemsize(self) -> int:
        """Bytes per component: 1, or 2 for ``P010``."""
        return 2 if self is PixelFormat.P010 else 1

    @property
    def dtype(self) -> str:
        """NumPy's name for a component: ``"uint8"`` or ``"uint16"``."""
        return "uint16" if self is PixelFormat.P010 else "uint8"

    @property
    def bit_depth(self) -> int:
        """Significant bits of a component: 8 or 10."""
        return 10 if self is PixelFormat.P010 else 8

    @property
    def is_yuv(self) -> bool:
        """Whether the samples are luma and chroma rather than red, green and blue."""
        return self in {PixelFormat.NV12, PixelFormat.P010, PixelFormat.GRAY8}

    @property
    def is_semiplanar(self) -> bool:
        """Whether there is a luma plane and one plane of interleaved chroma, 2x2 subsampled."""
        return self in {PixelFormat.NV12, PixelFormat.P010}

    def plane_shapes(self, width: int, height: int) -> tuple[tuple[int, ...], ...]:
        """Return each plane's array shape for a frame of `width` x `height` pixels.

        Subsampled sizes are rounded up, so that odd sizes keep their last column and row.
        """
        return tuple(
            (-(-height // rule.subsample_y), -(-width // rule.subsample_x))
            + ((rule.components,) if rule.components > 1 else ())
            for rule in _RULES[self]
        )


_RULES: Final[dict[PixelFormat, tuple[_PlaneRule, ...]]] = {
    PixelFormat.NV12: (_PlaneRule(1, 1, 1), _PlaneRule(2, 2, 2)),
    PixelFormat.P010: (_PlaneRule(1, 1, 1), _PlaneRule(2, 2, 2)),
    PixelFormat.GRAY8: (_PlaneRule(1, 1, 1),),
    PixelFormat.RGB24: (_PlaneRule(1, 1, 3),),
    PixelFormat.RGBA32: (_PlaneRule(1, 1, 4),),
}


@dataclasses.dataclass(frozen=True, slots=True)
class PlaneLayout:
    """Where one plane lies in its slot.

    Attributes
    ----------
    offset
        Bytes from the start of the slot to the plane's first row.
    pitch
        Bytes from one row to the next.
    shape
        ``(rows, columns)`` or ``(rows, columns, components)``.
    itemsize
        Bytes of one component.
    """

    offset: int
    pitch: int
    shape: tuple[int, ...]
    itemsize: int

    @property
    def rows(self) -> int:
        """Number of rows."""
        return self.shape[0]

    @property
    def row_bytes(self) -> int:
        """Bytes of one row that hold pixels, without padding."""
        count = self.itemsize
        for extent in self.shape[1:]:
            count *= extent
        return count

    @property
    def strides(self) -> tuple[int, ...]:
        """Byte strides for an array of `shape`."""
        if len(self.shape) == 2:
            return (self.pitch, self.itemsize)
        return (self.pitch, self.shape[2] * self.itemsize, self.itemsize)

    @property
    def end(self) -> int:
        """Bytes from the start of the slot to just behind the plane's last pixel."""
        return self.offset + (self.rows - 1) * self.pitch + self.row_bytes


@dataclasses.dataclass(frozen=True, slots=True)
class FrameLayout:
    """Geometry of one frame inside a slot.

    Attributes
    ----------
    format
        The pixel format.
    width, height
        Visible size in pixels; odd sizes are allowed.
    planes
        Where each plane lies.

    Raises
    ------
    InvalidArgumentError
        If a size is not within 1..:data:`MAX_DIMENSION`, a pitch is shorter than a row or not a
        multiple of the item size, planes have the wrong shape, or planes overlap.
    """

    format: PixelFormat
    width: int
    height: int
    planes: tuple[PlaneLayout, ...]

    def __post_init__(self) -> None:
        """Check that the planes fit the format and do not overlap."""
        _check_size(self.width, self.height)
        shapes = self.format.plane_shapes(self.width, self.height)
        if tuple(plane.shape for plane in self.planes) != shapes:
            found = [plane.shape for plane in self.planes]
            raise InvalidArgumentError(
                f"{self.format} at {self.width}x{self.height} has planes of shapes {list(shapes)}, "
                f"not {found}"
            )
        end = 0
        for index, plane in enumerate(self.planes):
            if plane.itemsize != self.format.itemsize:
                raise InvalidArgumentError(
                    f"plane {index} of {self.format} has items of {plane.itemsize} bytes, "
                    f"not {self.format.itemsize}"
                )
            if plane.pitch < plane.row_bytes or plane.pitch % plane.itemsize:
                raise InvalidArgumentError(
                    f"plane {index} has a pitch of {plane.pitch} bytes; a row takes "
                    f"{plane.row_bytes} bytes, and the pitch must be a multiple of "
                    f"{plane.itemsize}"
                )
            if plane.offset < end or plane.offset % plane.itemsize:
                raise InvalidArgumentError(
                    f"plane {index} starts at byte {plane.offset}, inside the plane before it "
                    f"(which ends at {end}) or not at a multiple of {plane.itemsize}"
                )
            end = plane.end

    @classmethod
    def make(
        cls,
        format: PixelFormat | str,  # noqa: A002  the field's word, as in PyAV
        width: int,
        height: int,
        *,
        pitch: int | Sequence[int] | None = None,
        offsets: Sequence[int] | None = None,
    ) -> Self:
        """Lay a frame out.

        Parameters
        ----------
        format
            Pixel format.
        width, height
            Size in pixels.
        pitch
            Bytes from row to row: one for all planes, or one a plane. By default the row length
            rounded up to 256 bytes.
        offsets
            Bytes from the slot's start to each plane; by default the planes follow each other.
        """
        format = PixelFormat.parse(format)  # noqa: A001
        _check_size(width, height)
        shapes = format.plane_shapes(width, height)
        pitches = _per_plane(pitch, len(shapes))
        if offsets is not None and len(offsets) != len(shapes):
            raise InvalidArgumentError(
                f"{format} has {len(shapes)} planes, but {len(offsets)} offsets were given"
            )
        planes: list[PlaneLayout] = []
        end = 0
        for index, shape in enumerate(shapes):
            bare = PlaneLayout(0, 0, shape, format.itemsize)
            row_pitch = pitches[index]
            if row_pitch is None:
                row_pitch = _round_up(bare.row_bytes, DEFAULT_PITCH_ALIGNMENT)
            offset = end if offsets is None else offsets[index]
            planes.append(dataclasses.replace(bare, offset=offset, pitch=row_pitch))
            end = offset + shape[0] * row_pitch
        return cls(format, width, height, tuple(planes))

    @property
    def nbytes(self) -> int:
        """Bytes from the start of the slot to just behind the last pixel, last row's padding in.

        A slot of this size can be read with whole rows of each plane's pitch.
        """
        return max(plane.offset + plane.rows * plane.pitch for plane in self.planes)

    @property
    def rows_shape(self) -> tuple[int, ...] | None:
        """Shape of the whole frame as one array with one pitch, or None where there is none.

        For NV12 and P010 that is ``(height + chroma rows, width)``; it needs an even width, equal
        pitches, and the chroma plane right below the luma plane.
        """
        first = self.planes[0]
        if len(self.planes) == 1:
            return first.shape
        chroma = self.planes[1]
        joined = chroma.offset == first.offset + first.rows * first.pitch
        if self.width % 2 or chroma.pitch != first.pitch or not joined:
            return None
        return (first.rows + chroma.rows, self.width)


def _check_size(width: Any, height: Any) -> None:
    for name, value in (("width", width), ("height", height)):
        if not isinstance(value, int) or isinstance(value, bool):
            raise InvalidArgumentError(f"{name} must be a whole number of pixels, not {value!r}")
        if not 1 <= value <= MAX_DIMENSION:
            raise InvalidArgumentError(
                f"{name} is {value} pixels; it must be between 1 and {MAX_DIMENSION}"
            )


def _per_plane(pitch: Any, count: int) -> Sequence[int | None]:
    if pitch is None:
        return [None] * count
    try:
        pitches = list(pitch) if isinstance(pitch, Sequence) else [pitch] * count
        numbers = [operator.index(value) for value in pitches if not isinstance(value, bool)]
    except TypeError:
        numbers = []
    if len(numbers) != count:
        raise InvalidArgumentError(
            f"the pitch is a whole number of bytes, or {count} of them for {count} planes, "
            f"not {pitch!r}"
        )
    return numbers


def _round_up(value: int, multiple: int) -> int:
    return -(-value // multiple) * multiple
