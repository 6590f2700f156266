"""The kernel that paints a JPEG's planes, compiled for the CPU and run thread by thread."""

import ctypes
import functools
import struct

import numpy as np

from cuframes_nb._cuda.nvjpeg.kernel import FORMATS, SOURCE, TASK
from cuframes_nb._cuda.nvjpeg.painter import Canvas, Picture, task_of
from tests.helpers.compiling import compiled

__all__ = ["paint"]

_WORDS_OF_CUDA = """
#define __device__
#define __global__
struct Dim { int x, y; };
static Dim blockIdx, threadIdx, blockDim;
"""

_GRID = """
extern "C" void run(const Task* task)
{
    blockDim = Dim{1, 1};
    for (blockIdx.y = 0; blockIdx.y < (task->height + 1) / 2 + 1; ++blockIdx.y)
        for (blockIdx.x = 0; blockIdx.x < (task->width + 1) / 2 + 1; ++blockIdx.x)
            paint(*task);
}
extern "C" int size() { return sizeof(Task); }
"""


_OPTIONS = ("-std=c++14", "-O1", "-Wall", "-Werror", "-fsanitize=undefined")


@functools.cache
def _library(fmt):
    source = _WORDS_OF_CUDA + SOURCE + _GRID
    loaded = compiled(source, *_OPTIONS, f"-DFORMAT={FORMATS[fmt]}")
    assert loaded.size() == struct.calcsize(TASK)
    loaded.run.argtypes, loaded.run.restype = [ctypes.c_char_p], None
    return loaded.run


def paint(planes, fmt, color, crop, size):
    """Return the three planes that the kernel makes of NumPy planes; it writes nothing else."""
    width, height = size
    half = ((height + 1) // 2, (width + 1) // 2)
    rooms = [np.full((h + 2, w + 3), 7, np.uint8) for h, w in ((height, width), half, half)]
    places = [number for plane in planes for number in (plane.ctypes.data, plane.strides[0])]
    canvas = Canvas(
        tuple(room.ctypes.data for room in rooms), tuple(room.strides[0] for room in rooms), size
    )
    picture = Picture(planes, fmt, color, crop, size, is_queued=False)
    _library(fmt)(task_of(picture, [*places, 0, 0][:4], canvas))
    made = []
    for room, (h, w) in zip(rooms, ((height, width), half, half), strict=True):
        made.append(room[:h, :w].copy())
        room[:h, :w] = 7
        assert (room == 7).all(), "the kernel wrote beside a plane"
    return made
