"""The first half of the kernel from frames to pixels: its parameter, and how frames are sampled.

The macros are told in ``_decode_kernel``.
"""

from typing import Final

__all__ = ["READING"]

READING: Final = r"""
#define MIXED 5

#define UINT8 0
#define FLOAT16 1
#define BFLOAT16 2
#define FLOAT32 3

#define COPY 1
#define RESIZE 2

#define NEAREST 0
#define BILINEAR 1
#define AREA 2

typedef long long fixed;  // 32 fractional bits

#if TYPE == UINT8
typedef byte Element;
#elif TYPE == FLOAT32
typedef float Element;
#else
typedef word Element;
#endif

constexpr int ITEM = sizeof(Element);
constexpr int WIDE = 32 * PIXELS;
constexpr int RUNS = PLANAR ? CHANNELS : 1;                      // of bytes that follow each other
constexpr int RUN = WIDE * ITEM * (PLANAR ? 1 : CHANNELS);       // bytes
constexpr float UNIT = 1.0f / 4294967296.0f;

struct Frame {
    const byte* first;  // luma, gray or RGB
    const byte* chroma;
    int first_pitch, chroma_pitch;
    int format;
    int paired;                   // whether U and V can be read together
    fixed step_x, step_y;         // of the frame's pixels for half a pixel of the result
    int x, y, width, height;      // what is taken of the frame
    int left, top, right, bottom; // where it lands in the result
    int resized;
    float share;                  // 1 / (pixels of the frame for one of the result)
    float matrix[CHANNELS][4];
};

struct Launch {
    byte* out;
    fixed stride_n, stride_c;
    fixed shift_x, shift_y;  // from half a luma position to the chroma sample there
    int stride_y, stride_x;
    int width, height;
    int packed;              // whether pixels of a row follow each other
    float low[3], high[3], fill[3];
    Frame frames[CAPACITY];
};

// --- What frames hold ----------------------------------------------------------------------------

// Components of a pixel or chroma sample in memory.
RULE int stored(int format, int plane)
{
    return plane == 1 ? 2 : format == RGB24 ? 3 : format == RGBA32 ? 4 : 1;
}

// Those of them that count.
RULE int used(int format, int plane)
{
    return format == RGBA32 ? 3 : stored(format, plane);
}

RULE bool has_chroma(int format) { return is_semiplanar(format) && CHANNELS == 3; }
RULE bool has_three(int format)
{
    return has_chroma(format) || format == RGB24 || format == RGBA32;
}

DEVICE const byte* row_of(const byte* plane, int y, int pitch) { return plane + (fixed)y * pitch; }

// A component among words of them, as a code value.
template <int F> DEVICE float code(const unsigned* words, int index)
{
    return (float)(get<item_bytes(F)>(words, index) >> (F == P010 ? 6 : 0));
}

// The same of a row.
template <int F> DEVICE float code_at(const byte* row, int index)
{
    if constexpr (F == P010)
        return (float)(reinterpret_cast<const word*>(row)[index] >> 6);
    return (float)row[index];
}

// Components of a plane at whole positions.
template <int F, int P> DEVICE void fetch(const Frame& frame, int x, int y, float* values)
{
    const byte* row = P ? row_of(frame.chroma, y, frame.chroma_pitch)
                        : row_of(frame.first, y, frame.first_pitch);
    if (P == 1 && frame.paired) {
        unsigned both = F == P010 ? reinterpret_cast<const unsigned*>(row)[x]
                                  : reinterpret_cast<const word*>(row)[x];
        values[0] = code<F>(&both, 0);
        values[1] = code<F>(&both, 1);
        return;
    }
#pragma unroll
    for (int i = 0; i < used(F, P); ++i)
        values[i] = code_at<F>(row, x * stored(F, P) + i);
}

// All components of a pixel; a chroma sample applies to its four pixels as it is.
template <int F> DEVICE void fetch_pixel(const Frame& frame, int x, int y, float* values)
{
    fetch<F, 0>(frame, x, y, values);
    if constexpr (has_chroma(F))
        fetch<F, 1>(frame, x >> 1, y >> 1, values + 1);
}

// --- Resizing ------------------------------------------------------------------------------------

// A range of whole positions: of luma or of chroma, across or down.
struct Range {
    int low, high;  // both are in it
    DEVICE int nearest(int i) const { return min(max(i, low), high); }
};

DEVICE Range halved(Range range) { return Range{range.low >> 1, range.high >> 1}; }

// Two neighbours, and how much of the second, also as a fraction of 2**32.
struct Between {
    int first, second;
    unsigned part;
    float weight;
    DEVICE fixed position() const { return ((fixed)first << 32) | part; }
};

// Where `at` lies between samples, none of them outside the range.
DEVICE Between between(fixed at, Range range)
{
    int first = (int)(at >> 32);
    unsigned part = (unsigned)at;
    if (first < range.low || first >= range.high) {
        first = first < range.low ? range.low : range.high;
        part = 0;
    }
    return Between{first, min(first + 1, range.high), part, (float)part * UNIT};
}

template <int F, int P>
DEVICE void bilinear(const Frame& frame, Between x, Between y, float* values)
{
    float a[3], b[3], c[3], d[3];
    fetch<F, P>(frame, x.first, y.first, a);
    fetch<F, P>(frame, x.second, y.first, b);
    fetch<F, P>(frame, x.first, y.second, c);
    fetch<F, P>(frame, x.second, y.second, d);
#pragma unroll
    for (int i = 0; i < used(F, P); ++i) {
        float above = a[i] + (b[i] - a[i]) * x.weight;
        float below = c[i] + (d[i] - c[i]) * x.weight;
        values[i] = above + (below - above) * y.weight;
    }
}

// From one edge to the other: whole samples, but for parts of the first and of the last.
struct Span {
    int first, last;
    float before, after;  // how much of them is not in it
    DEVICE float weight(int i) const
    {
        return 1.0f - (i == first ? before : 0.0f) - (i == last ? after : 0.0f);
    }
};

DEVICE Span span(fixed begin, fixed end)
{
    int first = (int)(begin >> 32), last = (int)((end - 1) >> 32);
    return Span{first, last, (float)(unsigned)begin * UNIT,
                1.0f - (float)(unsigned)(end - 1) * UNIT};
}

template <int F, int P>
DEVICE void mean(const Frame& frame, Span x, Range xs, Span y, Range ys, float share, float* values)
{
    float sums[3] = {0.0f, 0.0f, 0.0f};
    for (int j = y.first; j <= y.last; ++j) {
        for (int i = x.first; i <= x.last; ++i) {
            float sample[3], weight = x.weight(i) * y.weight(j);
            fetch<F, P>(frame, xs.nearest(i), ys.nearest(j), sample);
#pragma unroll
            for (int k = 0; k < used(F, P); ++k)
                sums[k] += sample[k] * weight;
        }
    }
#pragma unroll
    for (int k = 0; k < used(F, P); ++k)
        values[k] = sums[k] * share;
}

// What a row or a column of the picture is made of, in luma and in chroma.
struct Axis {
#if SAMPLING == NEAREST
    int at;
#elif SAMPLING == BILINEAR
    Between luma, chroma;
#else
    Span luma, chroma;
    Range lumas, chromas;
#endif
};

// Position `i` of the picture, for `extent` samples from `start` on.
DEVICE Axis axis(int i, fixed step, int start, int extent, fixed shift)
{
    Range range{start, start + extent - 1};
    fixed begin = 2 * i * step + ((fixed)start << 32);
#if SAMPLING == NEAREST
    return Axis{range.nearest((int)((begin + step) >> 32))};
#elif SAMPLING == BILINEAR
    Between luma = between(begin + step - (1LL << 31), range);
    return Axis{luma, between((luma.position() >> 1) - shift, halved(range))};
#else
    fixed end = begin + 2 * step;
    // Edges of samples lie half a sample from their centres: a quarter of a luma's four.
    fixed move = (1LL << 30) - shift;
    return Axis{span(begin, end), span((begin >> 1) + move, (end >> 1) + move), range,
                halved(range)};
#endif
}

// Code values of the frame at a column and a row of the picture.
template <int F> DEVICE void sample(const Frame& frame, const Axis& x, const Axis& y, float* values)
{
#if SAMPLING == NEAREST
    fetch_pixel<F>(frame, x.at, y.at, values);
#elif SAMPLING == BILINEAR
    bilinear<F, 0>(frame, x.luma, y.luma, values);
    if constexpr (has_chroma(F))
        bilinear<F, 1>(frame, x.chroma, y.chroma, values + 1);
#else
    mean<F, 0>(frame, x.luma, x.lumas, y.luma, y.lumas, frame.share, values);
    if constexpr (has_chroma(F))
        mean<F, 1>(frame, x.chroma, x.chromas, y.chroma, y.chromas, 4.0f * frame.share,
                   values + 1);
#endif
}
"""
