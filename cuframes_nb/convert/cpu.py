"""Conversion in main memory, with NumPy alone.

8-bit RGB is computed in fixed point on *packed pixels*: four int16 lanes R, G, B, unused in one
uint64. A table gives each luma code its packed pixel, two more give each U and V theirs, and one
addition of int16 does the matrix for all channels. Chroma is looked up once for its 2x2 block. The
lanes have 5 fractional bits: the largest sum, full V with full Y, stays below 1024. Each of the
three table entries is off by at most 1/64 of an 8-bit step, so that results are within one code
value of the exact ones, and mostly equal to them.

Work goes by bands of rows, so that temporaries stay in the caches. Pixels of even and of odd
columns lie apart, as NumPy is several times faster where one side of a copy is contiguous.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Sequence
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._encode import from_rgb
from cuframes_nb.convert._matrix import WORD_SHIFT, decode_matrix
from cuframes_nb.convert._outputs import bfloat16, buffer_of
from cuframes_nb.convert._pixels import Pixels
from cuframes_nb.convert._placing import Placement
from cuframes_nb.convert._sampled import as_stored, sample
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

__all__ = ["Target", "from_rgb", "new_target", "render", "target_of"]

FRACTION_BITS: Final = 5
BLACK: Final = np.int16(0)
WHITE: Final = np.int16((256 << FRACTION_BITS) - 1)
BAND_PIXELS: Final = 65536
"""Pixels at a time. Fewer pay more for each NumPy call, more leave the cache of a core."""

_Tables: TypeAlias = tuple[npt.NDArray[np.uint64], npt.NDArray[np.uint64], npt.NDArray[np.uint64]]


def _half_up(value: int) -> int:
    return (value + 1) >> 1


class Target(NamedTuple):
    """An array to write to."""

    array: npt.NDArray[Any]  #: bfloat16 as the uint16 of its bits
    shape: tuple[int, ...]
    dtype: str


def new_target(shape: tuple[int, ...], dtype: str, device: None) -> tuple[Any, Target]:
    """Return a new array in main memory, and where to write; there is no `device`."""
    del device
    if dtype != "bfloat16":
        array = np.empty(shape, dtype)
        return array, Target(array, shape, dtype)
    array = np.empty(shape, bfloat16())
    return array, Target(array.view(np.uint16), shape, dtype)


def target_of(out: Any, device: None) -> Target:
    """Return where to write into `out`, of any library, in main memory; there is no `device`."""
    del device
    if isinstance(out, np.ndarray):
        if not out.flags.writeable:
            raise InvalidArgumentError("out is read-only; pass an array that may be written")
        bits = out.view(np.uint16) if out.dtype.name == "bfloat16" else out
        return Target(bits, out.shape, out.dtype.name)
    buffer = buffer_of(out, None)
    if buffer.device is not None:
        raise InvalidArgumentError(
            f"out is on GPU {buffer.device}, but the frame is in host memory; pass all in one "
            "memory"
        )
    return Target(buffer.as_numpy(), buffer.shape, buffer.dtype)


def render(
    pictures: Sequence[Any], placements: Sequence[Placement], pixels: Pixels, target: Target
) -> None:
    """Write `pictures` into `target`. Arguments are taken to be right.

    Planes are arrays of the shapes that ``format.plane_shapes`` gives, of any strides.
    """
    axes = [pixels.layout.index(axis) for axis in "nhwc" if axis in pixels.layout]
    view = target.array.transpose(axes)
    frames = view if pixels.batched else view[None]
    for picture, placement, frame in zip(pictures, placements, frames, strict=True):
        left, top, width, height = placement.target
        if (width, height) != placement.size:
            border = np.array(pixels.border, np.float32)
            frame[...] = as_stored(border, pixels.dtype)
        _render(picture, placement, pixels, frame[top : top + height, left : left + width])


def _render(picture: Any, placement: Placement, pixels: Pixels, out: npt.NDArray[Any]) -> None:
    """Write one picture into `out` (height, width, channels)."""
    plain = pixels.dtype == "uint8" and pixels.channels != "gray" and not placement.resized
    if not plain:
        sample(picture, placement, pixels, out)
        return
    planes, fmt, color = picture
    out = out if pixels.channels == "rgb" else out[..., ::-1]
    if fmt.is_semiplanar:
        _semiplanar_to_rgb(planes, fmt, color, out, placement.source)
    else:
        x, y, width, height = placement.source
        _interleaved_to_rgb(planes[0][y : y + height, x : x + width], fmt, color, out)


def _semiplanar_to_rgb(
    planes: Sequence[npt.NDArray[Any]],
    fmt: PixelFormat,
    color: ColorSpec,
    out: npt.NDArray[np.uint8],
    crop: tuple[int, int, int, int],
) -> None:
    """Convert band by band; a band begins at an even row and column of the frame.

    Where the rectangle does not, its first row or column is computed with one more before it.
    """
    left, top, width, height = crop
    first, bottom = top & ~1, top + height
    columns, chroma_columns = (
        slice(left & ~1, left + width),
        slice(left >> 1, _half_up(left + width)),
    )
    luma, chroma = planes[0][:, columns], planes[1][:, chroma_columns]
    half = chroma.shape[1]
    band = min(max(2, BAND_PIXELS // (2 * half) & ~1), 2 * _half_up(bottom - first))
    scratch = _Scratch.make(band, half)
    tables = _packed_tables(fmt, color)
    shift = WORD_SHIFT.get(fmt, 0)
    for begin in range(first, bottom, band):
        end = min(begin + band, bottom)
        scratch.load(luma[begin:end], chroma[begin >> 1 : _half_up(end)], shift)
        even, odd = scratch.convert(tables)
        skip = max(top - begin, 0)
        rows = slice(skip, end - begin)
        _store(even[rows], odd[rows], out[begin + skip - top : end - top], left & 1)


@dataclasses.dataclass(frozen=True, slots=True)
class _Scratch:
    """Temporaries of one call, for a band of rows: even columns first, then odd ones.

    Bands at the edges may fill them in part; the rest holds codes of before, and nobody looks.
    """

    luma_codes: npt.NDArray[np.intp]  # (2, rows, half)
    chroma_codes: npt.NDArray[np.intp]  # (2, rows / 2, half): U, V
    pixels: npt.NDArray[np.uint64]  # (2, rows, half)
    chroma_pixels: npt.NDArray[np.uint64]  # (2, rows / 2, half)
    rgbx: npt.NDArray[np.uint8]  # (2, rows, half * 4)

    @classmethod
    def make(cls, rows: int, half: int) -> _Scratch:
        return cls(
            np.zeros((2, rows, half), np.intp),
            np.zeros((2, rows // 2, half), np.intp),
            np.empty((2, rows, half), np.uint64),
            np.empty((2, rows // 2, half), np.uint64),
            np.empty((2, rows, half * 4), np.uint8),
        )

    def load(self, luma: npt.NDArray[Any], chroma: npt.NDArray[Any], shift: int) -> None:
        """Take stored words of a band in and make code values of them."""
        rows, columns = luma.shape
        self.luma_codes[0, :rows] = luma[:, 0::2]
        self.luma_codes[1, :rows, : columns // 2] = luma[:, 1::2]
        for component in (0, 1):
            self.chroma_codes[component, : len(chroma)] = chroma[..., component]
        if shift:
            np.right_shift(self.luma_codes, shift, out=self.luma_codes)
            np.right_shift(self.chroma_codes, shift, out=self.chroma_codes)

    def convert(self, tables: _Tables) -> npt.NDArray[np.uint32]:
        """Return R, G, B, 0 in memory order as one word a pixel: (2, rows, half).

        Every code has an entry in its table: ``mode="wrap"`` only saves the check.
        """
        tables[0].take(self.luma_codes, out=self.pixels, mode="wrap")
        for table, codes, sums in zip(
            tables[1:], self.chroma_codes, self.chroma_pixels, strict=True
        ):
            table.take(codes, out=sums, mode="wrap")
        u, v = self.chroma_pixels.view(np.int16)
        u += v
        lanes = self.pixels.view(np.int16)
        blocks = lanes.reshape(2, len(u), 2, -1)
        blocks += u[:, None, :]
        lanes.clip(BLACK, WHITE, out=lanes)
        lanes >>= FRACTION_BITS
        np.copyto(self.rgbx, lanes, casting="unsafe")
        return self.rgbx.view(np.uint32)


@functools.lru_cache(maxsize=16)
def _packed_tables(fmt: PixelFormat, color: ColorSpec) -> _Tables:
    """Return packed pixels by luma, U and V code; half a step for rounding is in luma's."""
    matrix = decode_matrix(fmt, color)
    codes = np.arange(2**fmt.bit_depth)
    offsets = np.stack([matrix[:, 3] + 0.5, np.zeros(3), np.zeros(3)])
    middle = 2 ** (fmt.bit_depth - 1)
    offsets[0] += matrix[:, 1:3].sum(axis=1) * middle
    offsets[1:] -= matrix[:, 1:3].T * middle
    lanes = np.zeros((3, codes.size, 4), np.int16)
    exact = codes[:, None] * matrix[:, :3].T[:, None, :] + offsets[:, None, :]
    lanes[..., :3] = np.rint(exact * 2**FRACTION_BITS)
    luma, u, v = lanes.view(np.uint64)[..., 0]
    return luma, u, v


def _store(
    even: npt.NDArray[np.uint32],
    odd: npt.NDArray[np.uint32],
    out: npt.NDArray[np.uint8],
    skip: int,
) -> None:
    """Copy pixels of even and odd columns into (h, w, 3), leaving out the first `skip` (0 or 1).

    NumPy copies strided bytes one by one. Where pixels of `out` are packed, it is faster to make a
    word of four bytes and one of two of each pair of pixels: R G B R, G B.
    """
    if skip:
        _copy_channels(odd[:, :1], out[:, :1])
        even, odd, out = even[:, 1:], odd[:, 1:], out[:, 1:]
    pairs = out.shape[1] // 2
    if out.strides[1:] != (3, 1) or not pairs or sys.byteorder != "little":
        _copy_channels(even, out[:, 0::2])
        _copy_channels(odd, out[:, 1::2])
        return
    first, second = even[:, :pairs], odd[:, :pairs]
    blocks = out[:, : 2 * pairs].reshape(len(out), pairs, 6)
    blocks[..., :4].view(np.uint32)[..., 0] = first | (second << np.uint32(24))
    blocks[..., 4:].view(np.uint16)[..., 0] = (second >> np.uint32(8)).astype(np.uint16)
    if out.shape[1] % 2:
        _copy_channels(even[:, pairs:], out[:, 2 * pairs :])


def _copy_channels(words: npt.NDArray[np.uint32], out: npt.NDArray[np.uint8]) -> None:
    """Copy R, G, B out of words into (h, w, 3); further words are left out."""
    rgbx = words[:, : out.shape[1], None].view(np.uint8)
    for channel in range(3):
        out[..., channel] = rgbx[..., channel]


def _interleaved_to_rgb(
    plane: npt.NDArray[np.uint8], fmt: PixelFormat, color: ColorSpec, out: npt.NDArray[np.uint8]
) -> None:
    """Convert a frame of one plane: gray through a table, RGB as it is."""
    if fmt is PixelFormat.RGB24:
        out[...] = plane
        return
    band = max(1, BAND_PIXELS // plane.shape[1])
    for begin in range(0, len(plane), band):
        rows, target = plane[begin : begin + band], out[begin : begin + band]
        if fmt is PixelFormat.RGBA32:
            for channel in range(3):
                target[..., channel] = rows[..., channel]
            continue
        gray = _gray_table(color).take(rows.astype(np.intp), mode="wrap")
        for channel in range(3):
            target[..., channel] = gray


@functools.lru_cache(maxsize=8)
def _gray_table(color: ColorSpec) -> npt.NDArray[np.uint8]:
    """Return the gray level of each luma code."""
    scale, _, _, offset = decode_matrix(PixelFormat.GRAY8, color)[0]
    levels = np.rint(np.arange(256) * scale + offset).clip(0, 255)
    return np.asarray(levels, dtype=np.uint8)
