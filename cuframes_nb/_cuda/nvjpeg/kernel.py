"""CUDA C++ source of the kernel that paints a JPEG's planes, for NVRTC. It needs no headers.

It keeps to what C++ on a CPU understands too, but for the words of CUDA, so that it can be tested
without a GPU. It is compiled for each format, whose number is ``FORMAT``.
"""

from typing import Final

from cuframes_nb.formats import PixelFormat

__all__ = ["FORMATS", "SOURCE", "TASK"]

FORMATS: Final = {
    PixelFormat.NV12: 0,
    PixelFormat.P010: 1,
    PixelFormat.GRAY8: 2,
    PixelFormat.RGB24: 3,
    PixelFormat.RGBA32: 4,
}

TASK: Final = "<9q6i13f4x"
"""The kernel's one argument, ``Task``, as `struct` packs it."""

SOURCE: Final = r"""
enum Format { NV12 = 0, P010 = 1, GRAY8 = 2, RGB24 = 3, RGBA32 = 4 };
constexpr bool HALVED = FORMAT == NV12 || FORMAT == P010;  // chroma is a plane of half the size
constexpr int WIDE = FORMAT == RGB24 ? 3 : FORMAT == RGBA32 ? 4 : 1;  // components of a pixel
constexpr int COUNT = WIDE == 1 ? 1 : 3;                              // those that are shown

typedef unsigned char byte;
typedef unsigned short word;

// Part of an axis: samples from `begin` up to `end`, those at the rims in part.
struct Span {
    float begin, end;
};

// The samples around `centre`, `length` of them, among those from `first` up to `last`.
//
// Sample k lies at k .. k + 1. Whole samples are a mean over what is covered; less than one would
// show blocks, and a mean over one sample's length is the same as linear interpolation.
__device__ Span span_of(float centre, float length, int first, int last)
{
    float half = length > 1.0f ? 0.5f * length : 0.5f;
    Span span = {centre - half, centre + half};
    if (span.begin < first)
        span.begin = first;
    if (span.end > last)
        span.end = last;
    return span;
}

// How much of sample k a span covers.
__device__ float share(Span span, int k)
{
    float begin = span.begin > k ? span.begin : k;
    float end = span.end < k + 1 ? span.end : k + 1;
    return end - begin;
}

// Code value of component `index` of a row.
__device__ float code(const byte* row, int index)
{
    return FORMAT == P010 ? (float)(reinterpret_cast<const word*>(row)[index] >> 6)
                          : (float)row[index];
}

// The mean of the first `count` of a pixel's `wide` components over a rectangle.
template <int wide, int count>
__device__ void mean(const byte* plane, long long pitch, Span across, Span down, float* values)
{
    float total = 0.0f, sums[count] = {};
    for (int y = (int)down.begin; y < down.end; ++y) {
        const byte* row = plane + y * pitch;
        float height = share(down, y);
        for (int x = (int)across.begin; x < across.end; ++x) {
            float area = height * share(across, x);
            for (int i = 0; i < count; ++i)
                sums[i] += area * code(row, x * wide + i);
            total += area;
        }
    }
    for (int i = 0; i < count; ++i)
        values[i] = sums[i] / total;
}

// One axis of the rectangle that is shown: `extent` pixels from `start` on, `scale` of them for
// each of the result.
struct Axis {
    int start, extent;
    float scale, shift;  // the latter of halved planes, in their samples

    // What `pixels` of the result from `at` on cover of a plane, which has a sample for each
    // 1 << halved pixels of the frame.
    __device__ Span span(int at, int pixels, int halved) const
    {
        float part = halved ? 0.5f : 1.0f;
        float centre = (start + (at + 0.5f * pixels) * scale) * part + (halved ? shift : 0.0f);
        int first = start >> halved, last = ((start + extent - 1) >> halved) + 1;
        return span_of(centre, pixels * scale * part, first, last);
    }
};

__device__ byte rounded(float value)
{
    return (byte)(value < 0.0f ? 0.0f : value > 254.5f ? 255.0f : value + 0.5f);
}

// All that the kernel has to know.
struct Task {
    const byte* first;
    long long first_pitch;
    const byte* second;
    long long second_pitch;
    byte *luma, *blue, *red;
    long long luma_pitch, chroma_pitch;
    int crop_x, crop_y, crop_width, crop_height, width, height;
    float shift, matrix[3][4];
};

__device__ byte mixed(const float* row, const float* values)
{
    return rounded(row[0] * values[0] + row[1] * values[1] + row[2] * values[2] + row[3]);
}

// One thread for each sample of chroma, and the four pixels that it belongs to.
extern "C" __global__ void paint(const Task task)
{
    int cx = blockIdx.x * blockDim.x + threadIdx.x, cy = blockIdx.y * blockDim.y + threadIdx.y;
    int left = 2 * cx, top = 2 * cy;
    if (left >= task.width || top >= task.height)
        return;

    Axis across = {task.crop_x, task.crop_width, (float)task.crop_width / task.width, task.shift};
    Axis down = {task.crop_y, task.crop_height, (float)task.crop_height / task.height, 0.0f};
    bool is_mixed = task.matrix[0][1] != 0.0f || task.matrix[0][2] != 0.0f;

    float v[3] = {0.0f, 0.0f, 0.0f};
    for (int y = top; y < task.height && y < top + 2; ++y) {
        Span rows = down.span(y, 1, 0), chroma_rows = down.span(y, 1, 1);
        for (int x = left; x < task.width && x < left + 2; ++x) {
            mean<WIDE, COUNT>(task.first, task.first_pitch, across.span(x, 1, 0), rows, v);
            if (HALVED && is_mixed)
                mean<2, 2>(
                    task.second, task.second_pitch, across.span(x, 1, 1), chroma_rows, v + 1);
            task.luma[y * task.luma_pitch + x] = mixed(task.matrix[0], v);
        }
    }
    Span columns = across.span(left, 2, HALVED), rows = down.span(top, 2, HALVED);
    if (HALVED)
        mean<2, 2>(task.second, task.second_pitch, columns, rows, v + 1);
    else
        mean<WIDE, COUNT>(task.first, task.first_pitch, columns, rows, v);
    task.blue[cy * task.chroma_pitch + cx] = mixed(task.matrix[1], v);
    task.red[cy * task.chroma_pitch + cx] = mixed(task.matrix[2], v);
}
"""
