"""CUDA C++ source of the kernel from frames to pixels, to go behind ``_kernel_parts.COMMON``.

One source, many kernels: macros say what is known when one is compiled.

========== =========================================================================================
FORMAT     format of the frames, a number of ``_kernel_parts.FORMATS``; 5 where they differ
TYPE       type of the result, a number of ``TYPES``
CHANNELS   1 or 3
PLANAR     1 if each channel of the result lies apart, 0 if pixels do
PATHS      1 if pixels are copied, 2 if frames are resized, 3 if a launch has both
SAMPLING   how to resize, a number of ``SAMPLINGS``
PIXELS     pixels a thread makes
CAPACITY   frames of a launch, at most
========== =========================================================================================

A warp makes ``32 * PIXELS`` pixels of one row in shared memory, laid out as in the result, and then
writes them out together: in this way each store covers whole sectors, whatever the layout.
Positions in a frame have 32 fractional bits: one 64-bit product each, and exact where a division
would be.
"""

from typing import Final

from cuframes_nb.convert._decode_reading import READING

__all__ = ["KERNEL", "MIXED", "SAMPLINGS", "TYPES"]

MIXED: Final = 5
TYPES: Final = {"uint8": 0, "float16": 1, "bfloat16": 2, "float32": 3}
SAMPLINGS: Final = {"nearest": 0, "bilinear": 1, "area": 2}

KERNEL: Final = (
    READING
    + r"""
// --- What a pixel becomes ------------------------------------------------------------------------

DEVICE Element element(const Launch& launch, int channel, float value)
{
#if TYPE == UINT8
    return (byte)to_byte(value);
#else
    value = fminf(fmaxf(value, launch.low[channel]), launch.high[channel]);
#if TYPE == FLOAT32
    return value;
#elif TYPE == FLOAT16
    return to_half(value);
#else
    unsigned bits = __float_as_uint(value);  // rounded half to even; there is no NaN
    return (word)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
#endif
#endif
}

DEVICE unsigned as_bits(Element value)
{
#if TYPE == FLOAT32
    return __float_as_uint(value);
#else
    return value;
#endif
}

template <int F>
DEVICE Element make(const Launch& launch, const Frame& frame, int channel, const float* values)
{
    const float* row = frame.matrix[channel];
    float rest = row[3];
    if constexpr (has_three(F))
        rest = row[1] * values[1] + (row[2] * values[2] + rest);
    return element(launch, channel, row[0] * values[0] + rest);
}

// --- Rows in shared memory -----------------------------------------------------------------------

DEVICE void stage_one(byte* stage, int index, int channel, Element value)
{
    int place = PLANAR ? channel * WIDE + index : index * CHANNELS + channel;
    reinterpret_cast<Element*>(stage)[place] = value;
}

DEVICE void stage_fill(const Launch& launch, byte* stage, int index)
{
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        stage_one(stage, index, c, element(launch, c, launch.fill[c]));
}

template <int F>
DEVICE void stage_pixel(const Launch& launch, const Frame& frame, byte* stage, int index,
                        const float* values)
{
#pragma unroll
    for (int c = 0; c < CHANNELS; ++c)
        stage_one(stage, index, c, make<F>(launch, frame, c, values));
}

// PIXELS pixels at (x, y) of the frame, all inside; false if they cannot be read as words.
template <int F>
DEVICE bool stage_words(const Launch& launch, const Frame& frame, byte* stage, int x, int y)
{
    constexpr int bytes = PIXELS * stored(F, 0) * item_bytes(F);
    constexpr int chroma_bytes = PIXELS * item_bytes(F);
    constexpr int out_bytes = PIXELS * ITEM;
    const byte* first = frame.first + (fixed)y * frame.first_pitch + x * (bytes / PIXELS);
    const byte* chroma = frame.chroma + (fixed)(y >> 1) * frame.chroma_pitch + x * item_bytes(F);
    if (!is_aligned<bytes>(first))
        return false;
    if (has_chroma(F) && (x % 2 || !is_aligned<chroma_bytes>(chroma)))
        return false;

    unsigned codes[bytes / 4], chroma_codes[chroma_bytes / 4];
    load<bytes>(codes, first);
    if constexpr (has_chroma(F))
        load<chroma_bytes>(chroma_codes, chroma);

    unsigned made[CHANNELS * out_bytes / 4] = {};
#pragma unroll
    for (int i = 0; i < PIXELS; ++i) {
        float values[3];
#pragma unroll
        for (int k = 0; k < used(F, 0); ++k)
            values[k] = code<F>(codes, i * stored(F, 0) + k);
        if constexpr (has_chroma(F)) {
            values[1] = code<F>(chroma_codes, i / 2 * 2);
            values[2] = code<F>(chroma_codes, i / 2 * 2 + 1);
        }
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            put<ITEM>(made, PLANAR ? c * PIXELS + i : i * CHANNELS + c,
                      as_bits(make<F>(launch, frame, c, values)));
    }
    int lane = threadIdx.x;
    if (PLANAR) {
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c)
            store<out_bytes>(stage + (c * 32 + lane) * out_bytes, made + c * out_bytes / 4);
    } else {
        store<CHANNELS * out_bytes>(stage + lane * CHANNELS * out_bytes, made);
    }
    return true;
}

template <int F>
DEVICE void copy_row(const Launch& launch, const Frame& frame, byte* stage, int x, int y)
{
    int begin = x + threadIdx.x * PIXELS;
    int move_x = frame.x - frame.left, source_y = frame.y - frame.top + y;
    bool row = y >= frame.top && y < frame.bottom;
    bool whole = row && begin >= frame.left && begin + PIXELS <= frame.right;
    if (whole && stage_words<F>(launch, frame, stage, begin + move_x, source_y))
        return;
    int end = min(begin + PIXELS, launch.width);
    for (int i = begin; i < end; ++i) {
        float values[3];
        if (row && i >= frame.left && i < frame.right) {
            fetch_pixel<F>(frame, i + move_x, source_y, values);
            stage_pixel<F>(launch, frame, stage, i - x, values);
        } else {
            stage_fill(launch, stage, i - x);
        }
    }
}

template <int F>
DEVICE void resize_row(const Launch& launch, const Frame& frame, byte* stage, int x, int y)
{
    bool row = y >= frame.top && y < frame.bottom;
    Axis down = axis(y - frame.top, frame.step_y, frame.y, frame.height, launch.shift_y);
#pragma unroll
    for (int k = 0; k < PIXELS; ++k) {
        int index = k * 32 + threadIdx.x, i = x + index;  // neighbours read from neighbours
        float values[3];
        if (row && i >= frame.left && i < frame.right) {
            Axis across = axis(i - frame.left, frame.step_x, frame.x, frame.width, launch.shift_x);
            sample<F>(frame, across, down, values);
            stage_pixel<F>(launch, frame, stage, index, values);
        } else if (i < launch.width) {
            stage_fill(launch, stage, index);
        }
    }
}

template <int F>
DEVICE void stage_row(const Launch& launch, const Frame& frame, byte* stage, int x, int y)
{
    if constexpr (PATHS == COPY) {
        copy_row<F>(launch, frame, stage, x, y);
    } else if constexpr (PATHS == RESIZE) {
        resize_row<F>(launch, frame, stage, x, y);
    } else {
        if (frame.resized)
            resize_row<F>(launch, frame, stage, x, y);
        else
            copy_row<F>(launch, frame, stage, x, y);
    }
}

// --- From shared memory to the result ------------------------------------------------------------

// Whole units of the first `bytes` of each run.
template <typename Unit>
DEVICE void write_units(byte* row, fixed stride, const byte* stage, int bytes)
{
    constexpr int each = RUN / (int)sizeof(Unit);
#pragma unroll
    for (int k = 0; k < (RUNS * each + 31) / 32; ++k) {
        int i = k * 32 + threadIdx.x, run = i / each, unit = i % each;
        if (run < RUNS && (unit + 1) * (int)sizeof(Unit) <= bytes)
            reinterpret_cast<Unit*>(row + run * stride)[unit]
                = reinterpret_cast<const Unit*>(stage + run * RUN)[unit];
    }
}

// Items of each run from `begin` to `end`.
DEVICE void write_items(byte* row, fixed stride, const byte* stage, int begin, int end)
{
#pragma unroll
    for (int run = 0; run < RUNS; ++run) {
#pragma unroll 1
        for (int i = begin + threadIdx.x; i < end; i += 32)
            reinterpret_cast<Element*>(row + run * stride)[i]
                = reinterpret_cast<const Element*>(stage + run * RUN)[i];
    }
}

DEVICE void write_apart(const Launch& launch, byte* row, const byte* stage, int count)
{
#pragma unroll 1
    for (int i = threadIdx.x; i < count; i += 32) {
#pragma unroll
        for (int c = 0; c < CHANNELS; ++c) {
            int place = PLANAR ? c * WIDE + i : i * CHANNELS + c;
            byte* to = row + (fixed)i * launch.stride_x + c * launch.stride_c;
            *reinterpret_cast<Element*>(to) = reinterpret_cast<const Element*>(stage)[place];
        }
    }
}

DEVICE void write_row(const Launch& launch, int frame, const byte* stage, int x, int y)
{
    byte* row = launch.out + frame * launch.stride_n + (fixed)y * launch.stride_y
                + (fixed)x * launch.stride_x;
    int count = min(WIDE, launch.width - x);
    if (!launch.packed) {
        write_apart(launch, row, stage, count);
        return;
    }
    int items = count * (PLANAR ? 1 : CHANNELS), bytes = items * ITEM, done = 0;
    size_t alignment = reinterpret_cast<size_t>(row) | (RUNS > 1 ? launch.stride_c : 0);
    if (alignment % 16 == 0) {
        write_units<uint4>(row, launch.stride_c, stage, bytes);
        done = bytes / 16 * 16 / ITEM;
    } else if (alignment % 4 == 0) {
        write_units<unsigned>(row, launch.stride_c, stage, bytes);
        done = bytes / 4 * 4 / ITEM;
    }
    if (done < items)
        write_items(row, launch.stride_c, stage, done, items);
}

extern "C" __global__ void __launch_bounds__(32 * ROWS) convert(const BY_VALUE Launch launch)
{
    __shared__ uint4 stages[ROWS][WIDE * CHANNELS * ITEM / 16];
    int x = blockIdx.x * WIDE, y = blockIdx.y * ROWS + threadIdx.y;
    if (y >= launch.height)  // for all of a warp
        return;
    byte* stage = reinterpret_cast<byte*>(stages[threadIdx.y]);
    int index = CAPACITY == 1 ? 0 : blockIdx.z;
    const Frame& frame = launch.frames[index];
#if FORMAT == MIXED
    switch (frame.format) {
    case NV12: stage_row<NV12>(launch, frame, stage, x, y); break;
    case P010: stage_row<P010>(launch, frame, stage, x, y); break;
    case GRAY8: stage_row<GRAY8>(launch, frame, stage, x, y); break;
    case RGB24: stage_row<RGB24>(launch, frame, stage, x, y); break;
    default: stage_row<RGBA32>(launch, frame, stage, x, y); break;
    }
#else
    stage_row<FORMAT>(launch, frame, stage, x, y);
#endif
    __syncwarp();
    write_row(launch, index, stage, x, y);
}
"""
)
