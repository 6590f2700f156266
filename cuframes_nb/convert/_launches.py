"""Launches of the kernels: which one, which grid, and its only parameter. Pure.

A parameter has the layout of the structure in the kernel's source. What follows from options alone
is packed once and looked up after that.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cuframes_nb._core.gpu_planes import Addresses
from cuframes_nb.color import ColorSpec
from cuframes_nb.convert._decode_kernel import MIXED, SAMPLINGS, TYPES
from cuframes_nb.convert._kernel_parts import BLOCK, FORMATS
from cuframes_nb.convert._matrix import encode_matrix
from cuframes_nb.convert._outputs import Buffer
from cuframes_nb.convert._pixels import SITINGS, Pixels
from cuframes_nb.convert._placing import Placement
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

__all__ = ["Launch", "Macros", "encode_launch", "launches"]

CAPACITY: Final = 29
"""Frames that fit the 4 KiB which the parameters of a kernel may have on every GPU."""

COPY_PIXELS: Final = {"uint8": 16, "float16": 8, "bfloat16": 8, "float32": 8}
RESIZE_PIXELS: Final = 2
"""Pixels that a thread makes: more of them make fewer instructions, fewer make more threads."""

Macros: TypeAlias = tuple[tuple[str, int], ...]

_ADDRESS: Final = struct.Struct("<Q")
_FRAME: Final = struct.Struct("<QQ4i")
_ITEMSIZES: Final = {"uint8": 1, "float16": 2, "bfloat16": 2, "float32": 4}
_COPY: Final = 1
_RESIZE: Final = 2


class Launch(NamedTuple):
    """One launch."""

    macros: Macros
    grid: tuple[int, int, int]
    parameter: bytes


def launches(
    pictures: Sequence[Any],
    placements: Sequence[Placement],
    pixels: Pixels,
    target: Buffer,
) -> Iterator[Launch]:
    """Return the launches that write `pictures` into `target`: as few as hold them all.

    Raises
    ------
    InvalidArgumentError
        If items of `target` are not aligned.
    """
    form = _form(pixels, target.strides, placements[0].size)
    if target.address % form.itemsize:
        raise InvalidArgumentError(f"items of out are not aligned, as those of {target.dtype} are")
    capacity = 1 if len(pictures) == 1 else CAPACITY
    for begin in range(0, len(pictures), capacity):
        end = min(begin + capacity, len(pictures))
        parts = [_ADDRESS.pack(target.address + begin * form.stride), form.constants]
        paths, formats = 0, set()
        for index in range(begin, end):
            (_, addresses), fmt, color = pictures[index]
            frame = _frame(fmt, color, placements[index], pixels)
            paths |= frame.path
            formats.add(frame.format)
            paired = not (addresses[1] | addresses[3]) % frame.pair
            parts += (_FRAME.pack(*addresses, frame.format, paired), frame.constants)
        parts.append(_padding(pixels, capacity - (end - begin)))
        number = formats.pop() if len(formats) == 1 else MIXED
        macros, wide = _variant(pixels, number, form.planar, paths, capacity)
        width, height = placements[0].size
        yield Launch(
            macros, (-(-width // wide), -(-height // BLOCK[1]), end - begin), b"".join(parts)
        )


class _Form(NamedTuple):
    """What a launch knows of the result, but for its address."""

    itemsize: int
    stride: int  #: bytes from frame to frame
    planar: bool  #: whether channels lie apart
    constants: bytes  #: all of ``Launch`` between its address and its frames


@functools.lru_cache(maxsize=256)
def _form(pixels: Pixels, strides: tuple[int, ...], size: tuple[int, int]) -> _Form:
    by_axis = {"n": 0, **dict(zip(pixels.layout, strides, strict=True))}
    frames, rows, columns, channels = (by_axis[axis] for axis in "nhwc")
    itemsize, count = _ITEMSIZES[pixels.dtype], len(pixels.scale)
    if (rows | columns | channels) % itemsize:
        raise InvalidArgumentError(f"items of out are not aligned, as those of {pixels.dtype} are")
    if max(abs(rows), abs(columns)) >= 2**31:
        raise InvalidArgumentError("rows or pixels of out are 2 GiB or more apart")
    planar = count == 1 or (columns, channels) != (count * itemsize, itemsize)
    packed = not planar or columns == itemsize
    shifts = (int(shift * 2**32) for shift in SITINGS[pixels.siting])
    bounds = (
        value
        for values in (pixels.low, pixels.high, pixels.border)
        for value in (*values, 0.0, 0.0)[:3]
    )
    head = struct.pack("<4q5i9f", frames, channels, *shifts, rows, columns, *size, packed, *bounds)
    return _Form(itemsize, frames, planar, head)


@functools.lru_cache(maxsize=256)
def _variant(
    pixels: Pixels,
    number: int,
    planar: bool,  # noqa: FBT001
    paths: int,
    capacity: int,
) -> tuple[Macros, int]:
    """Return the kernel's macros, and how many pixels of a row a warp of it makes."""
    each = RESIZE_PIXELS if paths == _RESIZE else COPY_PIXELS[pixels.dtype]
    sampling = SAMPLINGS[pixels.interpolation] if paths & _RESIZE else 0
    macros = {
        "FORMAT": number,
        "TYPE": TYPES[pixels.dtype],
        "CHANNELS": len(pixels.scale),
        "PLANAR": int(planar),
        "PATHS": paths,
        "SAMPLING": sampling,
        "PIXELS": each,
        "CAPACITY": capacity,
    }
    return tuple(macros.items()), 32 * each


class _Frame(NamedTuple):
    """What a launch knows of a frame, but for its addresses."""

    format: int
    path: int
    pair: int  #: bytes of U and V
    constants: bytes  #: all of ``Frame`` behind ``paired``


@functools.lru_cache(maxsize=1024)
def _frame(fmt: PixelFormat, color: ColorSpec, placement: Placement, pixels: Pixels) -> _Frame:
    _, _, width, height = source = placement.source
    left, top, columns, rows = placement.target
    matrix = pixels.matrix(fmt, color).ravel().tolist()
    constants = struct.pack(
        f"<qq4i4ii{len(matrix) + 1}f",
        # Rounded up, so that a position that is whole stays whole.
        -(-(width << 31) // columns),
        -(-(height << 31) // rows),
        *source,
        *(left, top, left + columns, top + rows),
        placement.resized,
        columns * rows / (width * height),
        *matrix,
    )
    path = _RESIZE if placement.resized else _COPY
    return _Frame(FORMATS[fmt], path, 2 * fmt.itemsize, constants)


@functools.lru_cache(maxsize=128)
def _padding(pixels: Pixels, count: int) -> bytes:
    """Return what stands for `count` frames that are not there."""
    return bytes(count * (88 + 16 * len(pixels.scale)))


def encode_launch(rgb: Buffer, fmt: PixelFormat, color: ColorSpec, addresses: Addresses) -> Launch:
    """Return the launch that writes `rgb`, (height, width, 3 or 4), into the planes of a frame."""
    height, width = rgb.shape[:2]
    step = rgb.strides[1] if rgb.strides[1] in {3, 4} and rgb.strides[2] == 1 else 0
    luma, chroma, *pitches = addresses
    parameter = struct.pack(
        "<3Q3q4i", rgb.address, luma, chroma, *rgb.strides, *pitches, width, height
    )
    macros = (("FORMAT", FORMATS[fmt]), ("STEP", step))
    grid = (-(-width // (8 * BLOCK[0])), -(-height // (2 * BLOCK[1])), 1)
    return Launch(macros, grid, parameter + _encode_constants(fmt, color))


@functools.lru_cache(maxsize=32)
def _encode_constants(fmt: PixelFormat, color: ColorSpec) -> bytes:
    return encode_matrix(fmt, color).astype("<f4").tobytes()
