"""The kernel that draws the test pattern, compiled for the CPU, and as much of CuPy as it takes."""

import contextlib
import ctypes
from types import ModuleType, SimpleNamespace

import numpy as np

from cuframes_nb.formats import FrameLayout
from cuframes_nb.sources import _pattern_kernel
from tests.helpers.compiling import compiled

__all__ = ["as_on_gpu", "fake_cupy", "rooms_and_planes"]

POISON = 0xA5

_WORDS_OF_CUDA = """
#define __device__ static inline
#define __global__
struct Dim { int x, y, z; };
static thread_local Dim blockIdx, threadIdx, blockDim;
"""

_LAUNCH = """
extern "C" int size_of_scene() { return sizeof(Scene); }

extern "C" void launch(const Dim* grid, const Dim* block, const Scene* scene)
{
    blockDim = *block;
    Dim &b = blockIdx, &t = threadIdx;
    for (b.z = 0; b.z < grid->z; ++b.z)
        for (b.y = 0; b.y < grid->y; ++b.y)
            for (b.x = 0; b.x < grid->x; ++b.x)
                for (t.y = 0; t.y < block->y; ++t.y)
                    for (t.x = 0; t.x < block->x; ++t.x)
                        draw(*scene);
}
"""

_FLAGS = ("-std=c++14", "-O2", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined",
          "-fno-sanitize-recover")  # fmt: skip


class _Array(np.ndarray):
    """A NumPy array that says where it is in CuPy's words."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    @property
    def device(self):
        return SimpleNamespace(id=0)


def as_on_gpu(array):
    """Return a view on an array that passes for one of CuPy."""
    return array.view(_Array)


class _RawModule:
    def __init__(self, code, options):
        assert options == ("--std=c++14",)
        self._library = compiled(_WORDS_OF_CUDA + code + _LAUNCH, *_FLAGS)

    def get_function(self, name):
        assert name == "draw"
        return self._launch

    def _launch(self, grid, block, arguments):
        (scene,) = arguments
        assert scene.nbytes == self._library.size_of_scene()
        sizes = [np.array(size, np.int32) for size in (grid, block)]
        self._library.launch(*(ctypes.c_void_p(a.ctypes.data) for a in (*sizes, scene)))


def fake_cupy(monkeypatch):
    """Return a module whose kernels run on the CPU, each thread after the other."""
    monkeypatch.setattr(_pattern_kernel, "activated", lambda _: contextlib.nullcontext())
    module = ModuleType("cupy")

    def asarray(array):
        return as_on_gpu(array.copy())

    module.asarray = asarray
    module.RawModule = _RawModule
    stream = SimpleNamespace(synchronize=lambda: None)
    module.cuda = SimpleNamespace(
        using_allocator=lambda _: contextlib.nullcontext(), get_current_stream=lambda: stream
    )
    return module


def rooms_and_planes(source, padding):
    """Return rooms of poisoned bytes, and a source's planes in them.

    Rows are `padding` bytes further apart than they need to be.
    """
    layout = FrameLayout.make(source.format, source.width, source.height)
    rooms, planes = [], []
    for plane in layout.planes:
        room = np.full((plane.rows, plane.row_bytes + padding), POISON, np.uint8)
        rooms.append(room)
        planes.append(room[:, : plane.row_bytes].view(layout.format.dtype).reshape(plane.shape))
    return rooms, planes
