"""The test pattern on a GPU: one kernel draws a frame, and all that it needs to know it is told.

Importing this module does not import CuPy, which ships no types: its module is handed in.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._cuda.devices import activated
from cuframes_nb.sources._digits import PITCH, ROWS, bitmaps

__all__ = ["LONGEST", "SCENE", "SOURCE", "Canvas", "Moment"]

LONGEST: Final = 32
"""Characters of a caption."""

BLOCK: Final = (32, 8)
"""Threads: a warp a row of pixels, so that its loads and stores are neighbours."""

_PLANE: Final = np.dtype(
    [
        ("target", "u8"), ("bars", "u8"), ("pitch", "i8"),
        ("columns", "i4"), ("rows", "i4"), ("size", "i4"), ("white", "u4"),
    ],
    align=True,
)  # fmt: skip

SCENE: Final = np.dtype(
    [
        ("planes", _PLANE, 2), ("caption", "u8", LONGEST), ("length", "i4"), ("scale", "i4"),
        ("below", "i4"), ("number", "u4"), ("bits", "i4"), ("cell", "i4"),
        ("left", "i4"), ("top", "i4"), ("side", "i4"), ("black", "u4"),
    ],
    align=True,
)  # fmt: skip
"""The kernel's one argument, passed by value; ``Scene`` in the source."""

SOURCE: Final = (
    f"enum {{ LONGEST = {LONGEST}, PITCH = {PITCH}, ROWS = {ROWS} }};"
    r"""
// The argument is read where the launch put it, rather than copied by every thread.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
#define BY_VALUE const __grid_constant__
#else
#define BY_VALUE const
#endif

typedef unsigned char byte;

struct Plane {
    byte* target;
    const byte* bars;  // the background, without gaps between rows
    long long pitch;
    int columns, rows, size;  // size: bytes of a pixel, at most four
    unsigned white;           // a pixel, its first byte lowest
};

struct Scene {
    Plane planes[2];
    unsigned long long caption[LONGEST];  // characters, a bit a cell, the first row lowest
    int length, scale, below;             // pixels of a cell; rows above the caption
    unsigned number;
    int bits, cell;
    int left, top, side;  // the box
    unsigned black;       // in the first plane
};

__device__ bool in_box(const Scene& scene, int x, int y, int halved)
{
    int column = x - (scene.left >> halved), row = y - (scene.top >> halved);
    int side = scene.side >> halved;
    return column >= 0 && column < side && row >= 0 && row < side;
}

__device__ bool in_stamp(const Scene& scene, int x, int y)
{
    return y < scene.cell && x < scene.bits * scene.cell;
}

__device__ bool stamp_is_lit(const Scene& scene, int x)
{
    return scene.number >> (x / scene.cell) & 1;
}

__device__ bool in_caption(const Scene& scene, int x, int y)
{
    int row = y - scene.below;
    return row >= 0 && row < ROWS * scene.scale && x < scene.length * PITCH * scene.scale;
}

__device__ bool caption_is_lit(const Scene& scene, int x, int y)
{
    int column = x / scene.scale, row = (y - scene.below) / scene.scale;
    return scene.caption[column / PITCH] >> (row * PITCH + column % PITCH) & 1;
}

__device__ unsigned load(const byte* source, int size)
{
    unsigned pixel = 0;
    for (int i = 0; i < size; ++i)
        pixel |= (unsigned)source[i] << 8 * i;
    return pixel;
}

__device__ void store(byte* target, int size, unsigned pixel)
{
    for (int i = 0; i < size; ++i)
        target[i] = (byte)(pixel >> 8 * i);
}

// One thread for each pixel of each plane; planes lie behind each other in the grid.
extern "C" __global__ void draw(BY_VALUE Scene scene)
{
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
    int halved = blockIdx.z;
    const Plane& plane = scene.planes[halved];
    if (x >= plane.columns || y >= plane.rows)
        return;

    unsigned pixel;
    if (!halved && in_stamp(scene, x, y))
        pixel = stamp_is_lit(scene, x) ? plane.white : scene.black;
    else if (!halved && in_caption(scene, x, y))
        pixel = caption_is_lit(scene, x, y) ? plane.white : scene.black;
    else if (in_box(scene, x, y, halved))
        pixel = plane.white;
    else
        pixel = load(plane.bars + ((long long)y * plane.columns + x) * plane.size, plane.size);
    store(plane.target + y * plane.pitch + x * plane.size, plane.size, pixel);
}
"""
)
"""CUDA C++ for NVRTC without headers; plain C++ too, once it is told CUDA's words."""


class Moment(NamedTuple):
    """What differs from frame to frame."""

    number: int  #: what the stamp says
    left: int  #: where the box is, an even number
    top: int  #: the same
    caption: str  #: what is written below the stamp, at most `LONGEST` characters


class Canvas:
    """A pattern's background on one GPU, and the kernel that draws a frame.

    Parameters
    ----------
    xp
        CuPy.
    device
        CuPy's device.
    bars
        The planes of the background.
    white, black
        A pixel of each plane, and of the first.
    geometry
        Fields of the scene that are the same in every frame.
    """

    def __init__(
        self,
        xp: ModuleType,
        device: Any,
        bars: Sequence[NDArray[Any]],
        *,
        white: Sequence[NDArray[Any]],
        black: NDArray[Any],
        **geometry: int,
    ) -> None:
        with activated(device.id):
            # Not of the pool's memory, which others would get while the last frame is drawn yet:
            # the driver frees it once the GPU is done.
            with xp.cuda.using_allocator(None):
                self._bars = [xp.asarray(plane) for plane in bars]
            xp.cuda.get_current_stream().synchronize()  # frames may be drawn on other streams
            self._kernel = _kernel(xp, device.id)
        self._scene = np.zeros((), SCENE)
        for name, value in {**geometry, "black": _word(black)}.items():
            self._scene[name] = value
        self._describe(white)

    def draw(self, planes: Sequence[Any], moment: Moment) -> None:
        """Queue a frame on the current stream of the planes' device.

        Parameters
        ----------
        planes
            Arrays of CuPy of any pitch, whose pixels follow each other within a row.
        moment
            What to draw.
        """
        scene = self._scene.copy()
        scene["planes"]["target"][: len(planes)] = [plane.data.ptr for plane in planes]
        scene["planes"]["pitch"][: len(planes)] = [plane.strides[0] for plane in planes]
        scene["number"] = moment.number & 0xFFFFFFFF
        scene["left"], scene["top"] = moment.left, moment.top
        scene["length"] = len(moment.caption)
        scene["caption"][: len(moment.caption)] = bitmaps(moment.caption)
        rows, columns = planes[0].shape[:2]
        grid = (-(-columns // BLOCK[0]), -(-rows // BLOCK[1]), len(planes))
        with activated(planes[0].device.id):
            self._kernel(grid, (*BLOCK, 1), (scene,))

    def _describe(self, white: Sequence[NDArray[Any]]) -> None:
        """Fill in what is known of the planes before there are any."""
        for plane, bars, pixel in zip(self._scene["planes"], self._bars, white, strict=False):
            plane["bars"] = bars.data.ptr
            plane["rows"], plane["columns"] = bars.shape[:2]
            plane["size"], plane["white"] = pixel.nbytes, _word(pixel)


@functools.cache
def _kernel(xp: ModuleType, device: int) -> Any:
    """Return the kernel, compiled for the GPU of that number, which must be current."""
    del device
    return xp.RawModule(code=SOURCE, options=("--std=c++14",)).get_function("draw")


def _word(pixel: NDArray[Any]) -> int:
    """Return a pixel as a number, its first byte lowest."""
    return int.from_bytes(pixel.tobytes(), "little")
