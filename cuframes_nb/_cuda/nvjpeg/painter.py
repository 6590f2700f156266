"""Pictures painted as JPEG stores them: BT.601, full range, chroma of half the size (JFIF 1.02)."""

from __future__ import annotations

import functools
import struct
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cuframes_nb._cuda.nvjpeg.kernel import FORMATS, SOURCE, TASK
from cuframes_nb.color import LUMA_WEIGHTS, ColorSpec
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import PixelFormat

__all__ = ["Canvas", "Painter", "Picture", "matrix_of", "task_of"]

_BLOCK: Final = (32, 8)
"""Threads: a warp a row of chroma, so that its loads and stores are neighbours."""
_TASK: Final = np.dtype((np.void, struct.calcsize(TASK)))
_SHIFT: Final = 0.25
"""Of chroma's samples, by which they lie further left than JPEG has them, if something is scaled.

JPEG has a sample in the middle of its four pixels; H.264 that does not say otherwise, at the left.
Where nothing is scaled a sample stays with its four pixels. Both as ``frame.rgb()``.
"""
_ALIGNMENT: Final = 256
"""Of rows, in bytes: GPU warps read whole lines."""


class Picture(NamedTuple):
    """What is to be a JPEG: a rectangle of planes in GPU memory, at a size."""

    planes: Sequence[Any]  #: CuPy's, of the format's shapes; rows may lie any way apart
    format: PixelFormat
    color: ColorSpec
    crop: tuple[int, int, int, int]  #: x, y, width, height, in pixels of the planes
    size: tuple[int, int]  #: width, height
    is_queued: bool  #: whether CuPy's current stream may still have to write the planes


class Canvas(NamedTuple):
    """The planes of a JPEG in GPU memory: their addresses and bytes from row to row."""

    addresses: tuple[int, int, int]
    pitches: tuple[int, int, int]
    size: tuple[int, int]


class Painter:
    """Cuts, scales and remaps pictures with one kernel; for one thread, on one stream.

    Smaller pictures are made of means over what each pixel covers, larger ones are interpolated.

    Parameters
    ----------
    ordinal
        The GPU, which must be CuPy's current one in every call.
    stream
        CuPy's, on which all is queued.
    """

    def __init__(self, ordinal: int, stream: Any) -> None:
        self._ordinal = ordinal
        self._stream = stream
        self._memory: Any = None

    def paint(self, picture: Picture) -> Canvas:
        """Queue the painting of a picture, and return where it will be until the next call.

        Raises
        ------
        InvalidArgumentError
            If the pixels of a row do not follow each other.
        """
        width, height = picture.size
        canvas = self._canvas(width, height)
        task = task_of(picture, _places(picture.planes), canvas)
        grid = (-(-width // (2 * _BLOCK[0])), -(-height // (2 * _BLOCK[1])))
        kernel = _kernel(self._ordinal, picture.format)
        kernel(grid, _BLOCK, (np.frombuffer(task, _TASK),), stream=self._stream)
        return canvas

    def close(self) -> None:
        """Give the memory back, once; nothing may be queued that needs it."""
        self._memory = None

    def _canvas(self, width: int, height: int) -> Canvas:
        """Return room for a picture; it is kept, and grows as it must."""
        pitches = [-(-side // _ALIGNMENT) * _ALIGNMENT for side in (width, (width + 1) // 2)]
        luma, chroma = pitches[0] * height, pitches[1] * ((height + 1) // 2)
        needed = luma + 2 * chroma
        if self._memory is None or self._memory.size < needed:
            self._memory = None  # before there is more
            # Not of CuPy's pool: that keeps what a stream gave back for this stream, also when the
            # stream is gone.
            self._memory = _cupy().cuda.Memory(needed)
        start = int(self._memory.ptr)
        addresses = (start, start + luma, start + luma + chroma)
        return Canvas(addresses, (pitches[0], pitches[1], pitches[1]), (width, height))


def task_of(picture: Picture, places: Sequence[int], canvas: Canvas) -> bytes:
    """Return what the kernel is given, but for the picture's format.

    Parameters
    ----------
    picture
        What is painted.
    places
        Address and pitch of the first plane, and of the second, zeros without one.
    canvas
        Where.
    """
    is_scaled = picture.crop[2:] != picture.size
    return struct.pack(
        TASK, *places, *canvas.addresses, *canvas.pitches[:2], *picture.crop, *picture.size,
        _SHIFT if is_scaled else 0.0, *_weights(picture.format, picture.color),
    )  # fmt: skip


@functools.lru_cache(maxsize=64)
def _weights(fmt: PixelFormat, color: ColorSpec) -> tuple[float, ...]:
    return tuple(matrix_of(fmt, color).ravel().tolist())


def matrix_of(fmt: PixelFormat, color: ColorSpec) -> npt.NDArray[np.float64]:
    """Return the (3, 4) matrix from code values and 1 to the code values of JPEG.

    What comes in is Y, U, V, or R, G, B, or Y alone. JPEG's values are those of BT.601 with full
    range (JFIF 1.02, from Rec. ITU-R BT.601), at 8 bits.
    """
    encode = _encoding(*LUMA_WEIGHTS["bt601"])
    if not fmt.is_yuv:
        return np.column_stack([encode, [0.0, 128.0, 128.0]])
    step = 2.0 ** (fmt.bit_depth - 8)
    is_full = color.range == "full"
    spans = np.full(3, 256 * step - 1) if is_full else np.array([219.0, 224.0, 224.0]) * step
    zeros = np.array([0.0 if is_full else 16.0, 128.0, 128.0]) * step
    if fmt is PixelFormat.GRAY8:
        change = np.diag([1.0, 0.0, 0.0])
    else:
        change = encode @ np.linalg.inv(_encoding(*color.luma_weights))
        change[1:, 0] = 0.0  # but for rounding: grays are grays in both
    linear = change * (255 / spans)
    return np.column_stack([linear, np.array([0.0, 128.0, 128.0]) - linear @ zeros])


def _encoding(kr: float, kb: float) -> npt.NDArray[np.float64]:
    """Return the matrix from R, G, B to luma and the two colour differences: H.273, 8.3."""
    luma = np.array([kr, 1 - kr - kb, kb])
    blue = (np.array([0.0, 0.0, 1.0]) - luma) / (2 * (1 - kb))
    red = (np.array([1.0, 0.0, 0.0]) - luma) / (2 * (1 - kr))
    return np.stack([luma, blue, red])


def _places(planes: Sequence[Any]) -> list[int]:
    """Return address and pitch of two planes; zeros stand for a second one that is not there."""
    places: list[int] = []
    for index, plane in enumerate(planes):
        packed = plane.itemsize
        for extent, stride in zip(plane.shape[:0:-1], plane.strides[:0:-1], strict=True):
            if extent > 1 and stride != packed:
                raise InvalidArgumentError(
                    f"plane {index} has strides {plane.strides}; on a GPU the pixels of a row must "
                    f"follow each other, so pass a plane that was sliced by rows only, or a copy"
                )
            packed *= extent
        places += [int(plane.data.ptr), plane.strides[0]]
    return places + [0, 0] * (2 - len(planes))


def _cupy() -> Any:  # an untyped module
    import cupy

    return cupy


@functools.cache
def _kernel(ordinal: int, fmt: PixelFormat) -> Any:
    """Return the kernel for a format, compiled for a GPU, which must be the current one."""
    del ordinal
    options = ("--std=c++14", f"-DFORMAT={FORMATS[fmt]}")
    module = _cupy().RawModule(code=SOURCE, options=options)
    return module.get_function(
        "paint"
    ).kernel  # without what CuPy does for each call of a RawKernel
