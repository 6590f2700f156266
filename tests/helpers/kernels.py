"""The conversion kernels on the CPU: their very source, compiled as C++ and run thread by thread.

A GPU's words and functions are C++ here. Each lane of a warp is a context of its own that gives way
at ``__syncwarp``, so that what a kernel does between its lanes is done, too. An access outside the
memory it may touch, or one that is not aligned as a GPU wants it, is found and told.
"""

import ctypes
import mmap
import signal

import numpy as np

from cuframes_nb._core.gpu_planes import GpuPlanes
from cuframes_nb.convert._decode_kernel import KERNEL as DECODE
from cuframes_nb.convert._encode_kernel import KERNEL as ENCODE
from cuframes_nb.convert._kernel_parts import COMMON
from cuframes_nb.convert._launches import encode_launch, launches
from cuframes_nb.convert._outputs import Buffer
from tests.helpers.compiling import compiled

__all__ = ["POISON", "Guarded", "encode", "render"]

PROLOGUE = r"""
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static
#define BY_VALUE

struct Dim { int x, y, z; };
static Dim threadIdx, blockIdx;
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) uint4 { unsigned x, y, z, w; };

template <typename T> static T min(T a, T b) { return b < a ? b : a; }
template <typename T> static T max(T a, T b) { return a < b ? b : a; }

static unsigned __float_as_uint(float value)
{
    unsigned bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static int __float2int_rn(float value) { return (int)rintf(value); }

static unsigned to_byte(float value)
{
    return (unsigned)rintf(fminf(fmaxf(value, 0.0f), 255.0f));
}

// Nearest half, ties to even; of numbers that are not too large for one.
static unsigned short to_half(float value)
{
    float size = fabsf(value);
    int exponent;
    frexpf(size, &exponent);
    if (size == 0.0f || exponent < -13)
        exponent = -13;
    unsigned count = (unsigned)rintf(ldexpf(size, 11 - exponent));  // of the last place
    unsigned bits = (unsigned)(exponent + 13) * 1024 + count;
    return (unsigned short)((signbit(value) ? 0x8000 : 0) | bits);
}

static ucontext_t scheduler, lanes[32];
static bool done[32];
static int lane;

static void __syncwarp() { swapcontext(&lanes[lane], &scheduler); }
"""

EPILOGUE = r"""
static const PARAMETER* current;

static void enter()
{
    ENTRY(*current);
    done[lane] = true;
    swapcontext(&lanes[lane], &scheduler);
}

static void run_warp()
{
    static char stacks[32][65536];
    for (lane = 0; lane < 32; ++lane) {
        done[lane] = false;
        getcontext(&lanes[lane]);
        lanes[lane].uc_stack.ss_sp = stacks[lane];
        lanes[lane].uc_stack.ss_size = sizeof stacks[lane];
        lanes[lane].uc_link = 0;
        makecontext(&lanes[lane], enter, 0);
    }
    for (bool some = true; some;) {
        some = false;
        for (lane = 0; lane < 32; ++lane) {
            if (done[lane])
                continue;
            threadIdx.x = lane;
            swapcontext(&scheduler, &lanes[lane]);
            some = some || !done[lane];
        }
    }
}

extern "C" int parameter_bytes() { return sizeof(PARAMETER); }

static sigjmp_buf fault;

static void stop(int number) { siglongjmp(fault, number); }

static void run_all(int columns, int rows, int count)
{
    for (blockIdx.z = 0; blockIdx.z < count; ++blockIdx.z)
        for (blockIdx.y = 0; blockIdx.y < rows; ++blockIdx.y)
            for (blockIdx.x = 0; blockIdx.x < columns; ++blockIdx.x)
                for (threadIdx.y = 0; threadIdx.y < ROWS; ++threadIdx.y)
                    run_warp();
}

// Return 0, or the signal that ended it.
extern "C" int run(const PARAMETER* parameter, int columns, int rows, int count)
{
    const int numbers[] = {SIGSEGV, SIGBUS, SIGILL};
    struct sigaction action = {}, before[3];
    action.sa_handler = stop;
    action.sa_flags = SA_NODEFER;
    for (int i = 0; i < 3; ++i)
        sigaction(numbers[i], &action, &before[i]);
    current = parameter;
    int number = sigsetjmp(fault, 1);
    if (number == 0)
        run_all(columns, rows, count);
    for (int i = 0; i < 3; ++i)
        sigaction(numbers[i], &before[i], 0);
    return number;
}
"""

POISON = 0xA5
_LIBC = ctypes.CDLL(None, use_errno=True)
_OPTIONS = (
    *("-O0", "-std=c++17", "-w", "-pedantic-errors", "-fno-strict-aliasing"),
    *("-fsanitize=alignment", "-fsanitize-undefined-trap-on-error"),  # a trap is SIGILL
)


def _library(kernel, entry, parameter, macros):
    """Return a kernel for these macros, as a library."""
    defines = [f"-D{key}={value}" for key, value in macros]
    defines += [f"-DENTRY={entry}", f"-DPARAMETER={parameter}"]
    return compiled(PROLOGUE + COMMON + kernel + EPILOGUE, *_OPTIONS, *defines)


def _run(launch, kernel, entry, parameter):
    library = _library(kernel, entry, parameter, launch.macros)
    assert library.parameter_bytes() == len(launch.parameter) <= 4096
    number = library.run(launch.parameter, *launch.grid)
    assert not number, f"{signal.Signals(number).name} in {entry} for {dict(launch.macros)}"


def render(pictures, placements, pixels, out):
    """Do what ``cuda.render`` does, in main memory."""
    placed = [picture._replace(planes=_placed(picture.planes)) for picture in pictures]
    for launch in launches(placed, placements, pixels, _buffer(out)):
        _run(launch, DECODE, "convert", "Launch")


def encode(rgb, fmt, color, planes):
    """Do what ``cuda.from_rgb`` does, in main memory."""
    _run(
        encode_launch(_buffer(rgb), fmt, color, _placed(planes).addresses),
        ENCODE,
        "encode",
        "Encode",
    )


def _buffer(array):
    return Buffer(_address(array), array.shape, array.strides, array.dtype.name, None)


def _placed(planes):
    first, last = planes[0], planes[-1]
    return GpuPlanes(0, (_address(first), _address(last), first.strides[0], last.strides[0]))


def _address(array):
    return array.__array_interface__["data"][0]


class Guarded:
    """Memory for arrays that begin or end right beside a page that nobody may touch."""

    def __init__(self):
        self._kept = []

    def bytes(self, count, *, offset=0, at_end=True):
        """Return `count` bytes, `offset` bytes away from a page that may not be touched."""
        page = mmap.PAGESIZE
        inner = -(-(count + offset) // page) * page
        memory = mmap.mmap(-1, inner + 2 * page)
        address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for start in (address, address + page + inner):
            if _LIBC.mprotect(ctypes.c_void_p(start), ctypes.c_size_t(page), 0):
                raise OSError(ctypes.get_errno(), "mprotect")
        begin = page + (inner - count - offset if at_end else offset)
        self._kept.append(memory)
        return np.frombuffer(memory, np.uint8, count, begin)

    def array(self, shape, dtype, *, pitch=None, offset=0, at_end=True):
        """Return a poisoned array whose rows are `pitch` bytes apart, the last one without padding.

        Also return all of its bytes, padding included.
        """
        dtype = np.dtype(dtype)
        row = int(np.prod(shape[1:])) * dtype.itemsize
        pitch = row if pitch is None else pitch
        store = self.bytes((shape[0] - 1) * pitch + row, offset=offset, at_end=at_end)
        store[...] = POISON
        inner = np.cumprod([dtype.itemsize, *shape[:1:-1]])[::-1].tolist()
        return np.ndarray(shape, dtype, store.data, 0, (pitch, *inner)), store
