"""A kernel that holds a stream until it is let go: order is tested with it, not with luck."""

import functools
import gc
import os

import cupy as cp
import numpy as np

__all__ = ["Latch", "check", "fill", "memory_in_use", "wrong_pixels"]

# The wait ends by itself after about 10 s (at 2 GHz), so that a failing test cannot hang the GPU.
_SOURCE = r"""
extern "C" __global__ void hold(volatile unsigned int *flag) {
    long long start = clock64();
    while (*flag == 0 && clock64() - start < 20000000000LL) { }
}
extern "C" __global__ void count_wrong(
    const volatile unsigned char *p, long long pitch, int rows, int width, unsigned int want,
    unsigned int *wrong, int repeat
) {
    int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= width || y >= rows) return;
    for (int i = 0; i < repeat; i++)
        if (p[y * pitch + x] != (unsigned char)want) atomicAdd(wrong, 1);
}
"""


@functools.cache
def _module():
    return cp.RawModule(code=_SOURCE)


def memory_in_use():
    """Return the bytes of the first GPU that this process has, whatever others do meanwhile."""
    import pynvml

    pynvml.nvmlInit()
    try:
        gpu = pynvml.nvmlDeviceGetHandleByIndex(0)
        running = pynvml.nvmlDeviceGetComputeRunningProcesses(gpu)
    finally:
        pynvml.nvmlShutdown()  # it has descriptors open
    (used,) = (process.usedGpuMemory for process in running if process.pid == os.getpid())
    return used


class Latch:
    """Holds `stream` from here on until `open`."""

    def __init__(self, stream):
        gc.collect()  # what unmaps memory waits for the whole GPU
        self._memory = cp.cuda.alloc_pinned_memory(64)
        self._flag = np.frombuffer(self._memory, np.uint32, 1)
        self._flag[0] = 0
        with stream:  # pinned memory has one address, for the GPU too
            _module().get_function("hold")((1,), (1,), (np.uint64(self._memory.ptr),))

    def open(self):
        """Let the stream go on."""
        self._flag[0] = 1


def fill(slot):
    """Write the slot's sequence number into every pixel, on the current stream."""
    for plane in slot.planes:
        plane.fill(slot.seq & 0xFF)


def check(frame, repeat=1):
    """Return how many bytes are not the frame's sequence number (a device array of one)."""
    wrong = cp.zeros(1, cp.uint32)
    for plane in frame.planes:
        width = plane.nbytes // plane.shape[0]
        _module().get_function("count_wrong")(
            (-(-width // 256), plane.shape[0]),
            (256,),
            (
                np.uint64(plane.data.ptr),
                np.int64(plane.strides[0]),
                np.int32(plane.shape[0]),
                np.int32(width),
                np.uint32(frame.seq & 0xFF),
                wrong,
                np.int32(repeat),
            ),
        )
    return wrong


def wrong_pixels(frame):
    """Return the same as a number, having waited."""
    return int(check(frame)[0])
