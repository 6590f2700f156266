"""CUDA C++ source of the conversion kernels, for NVRTC. It needs no headers.

Numbers of formats and output types are those of ``cuda.FORMATS`` and ``cuda.OUT_TYPES``.
"""

from typing import Final

__all__ = ["SOURCE"]

SOURCE: Final = r"""
enum Format { NV12 = 0, P010 = 1, GRAY8 = 2, RGB24 = 3, RGBA32 = 4 };
enum OutType { UINT8 = 0, FLOAT16 = 1, FLOAT32 = 2 };

typedef unsigned char byte;
typedef unsigned short word;

// Code value of component `index` of a row.
__device__ __forceinline__ float code(const byte* row, int format, int index)
{
    if (format == P010)
        return (float)(reinterpret_cast<const word*>(row)[index] >> 6);
    return (float)row[index];
}

// One component of an image, pixels of `step` components, at whole positions.
struct Plane {
    const byte* base;
    long long pitch;
    int format, step, component;

    __device__ float at(int x, int y) const
    {
        return code(base + y * pitch, format, x * step + component);
    }

    // Bilinear; `last_x` and `last_y` are the last positions that may be read.
    __device__ float between(float x, float y, int last_x, int last_y) const
    {
        int x0 = (int)x, y0 = (int)y;
        int x1 = min(x0 + 1, last_x), y1 = min(y0 + 1, last_y);
        float right = x - x0, down = y - y0;
        float above = at(x0, y0) + (at(x1, y0) - at(x0, y0)) * right;
        float below = at(x0, y1) + (at(x1, y1) - at(x0, y1)) * right;
        return above + (below - above) * down;
    }
};

struct Rect {
    int x, y, width, height;
};

// Three code values of output pixel (ox, oy), nearest; for gray the last two stay 0.
__device__ void take_nearest(const Plane* planes, int count, int subsample, Rect crop, int ox,
                             int oy, float* values)
{
    int x = crop.x + ox, y = crop.y + oy;
    values[0] = planes[0].at(x, y);
    for (int i = 1; i < count; ++i)
        values[i] = planes[i].at(x >> subsample, y >> subsample);
}

// The same for a picture resized to width x height.
__device__ void take_bilinear(const Plane* planes, int count, int subsample, Rect crop, int ox,
                              int oy, int width, int height, float* values)
{
    int last_x = crop.x + crop.width - 1, last_y = crop.y + crop.height - 1;
    float sx = (ox + 0.5f) * ((float)crop.width / width) - 0.5f;
    float sy = (oy + 0.5f) * ((float)crop.height / height) - 0.5f;
    float x = crop.x + fminf(fmaxf(sx, 0.0f), crop.width - 1.0f);
    float y = crop.y + fminf(fmaxf(sy, 0.0f), crop.height - 1.0f);
    values[0] = planes[0].between(x, y, last_x, last_y);
    if (subsample) {
        // The centre of chroma sample c lies at luma position 2 c + 1/2.
        int last_cx = last_x >> 1, last_cy = last_y >> 1;
        x = fminf(fmaxf(0.5f * x - 0.25f, (float)(crop.x >> 1)), (float)last_cx);
        y = fminf(fmaxf(0.5f * y - 0.25f, (float)(crop.y >> 1)), (float)last_cy);
        last_x = last_cx;
        last_y = last_cy;
    }
    for (int i = 1; i < count; ++i)
        values[i] = planes[i].between(x, y, last_x, last_y);
}

// Store `value`, 0..255, rounded and clipped, or as 0..1.
__device__ void store(byte* target, int out_type, float value)
{
    value = fminf(fmaxf(value, 0.0f), 255.0f);
    if (out_type == UINT8) {
        *target = (byte)__float2int_rn(value);
        return;
    }
    value = value / 255.0f;
    if (out_type == FLOAT32) {
        *reinterpret_cast<float*>(target) = value;
        return;
    }
    word half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
    *reinterpret_cast<word*>(target) = half;
}

extern "C" __global__ void to_rgb(
    const byte* first, long long first_pitch, const byte* chroma, long long chroma_pitch,
    int format, int crop_x, int crop_y, int crop_width, int crop_height,
    byte* out, long long stride_y, long long stride_x, long long stride_c, int out_type,
    int width, int height,
    float m00, float m01, float m02, float m03,
    float m10, float m11, float m12, float m13,
    float m20, float m21, float m22, float m23)
{
    int ox = blockIdx.x * blockDim.x + threadIdx.x;
    int oy = blockIdx.y * blockDim.y + threadIdx.y;
    if (ox >= width || oy >= height)
        return;

    bool semiplanar = format == NV12 || format == P010;
    int count = format == GRAY8 ? 1 : 3;
    int step = format == RGB24 ? 3 : format == RGBA32 ? 4 : 1;
    Plane planes[3];
    planes[0] = Plane{first, first_pitch, format, step, 0};
    for (int i = 1; i < 3; ++i)
        planes[i] = semiplanar ? Plane{chroma, chroma_pitch, format, 2, i - 1}
                               : Plane{first, first_pitch, format, step, i};

    Rect crop{crop_x, crop_y, crop_width, crop_height};
    float v[3] = {0.0f, 0.0f, 0.0f};
    if (width == crop_width && height == crop_height)
        take_nearest(planes, count, semiplanar, crop, ox, oy, v);
    else
        take_bilinear(planes, count, semiplanar, crop, ox, oy, width, height, v);

    byte* target = out + oy * stride_y + ox * stride_x;
    store(target, out_type, m00 * v[0] + m01 * v[1] + m02 * v[2] + m03);
    store(target + stride_c, out_type, m10 * v[0] + m11 * v[1] + m12 * v[2] + m13);
    store(target + 2 * stride_c, out_type, m20 * v[0] + m21 * v[1] + m22 * v[2] + m23);
}

// Store a code value, rounded and clipped, as component `index` of a row.
__device__ void store_code(byte* row, int format, int index, float value)
{
    int top = format == P010 ? 1023 : 255;
    int rounded = min(max(__float2int_rn(value), 0), top);
    if (format == P010)
        reinterpret_cast<word*>(row)[index] = (word)(rounded << 6);
    else
        row[index] = (byte)rounded;
}

// One thread a block of 2x2 pixels, cut at the edges of odd sizes.
extern "C" __global__ void from_rgb(
    const byte* rgb, long long stride_y, long long stride_x, long long stride_c,
    int width, int height,
    byte* luma, long long luma_pitch, byte* chroma, long long chroma_pitch, int format,
    float m00, float m01, float m02, float m03,
    float m10, float m11, float m12, float m13,
    float m20, float m21, float m22, float m23)
{
    int left = 2 * (blockIdx.x * blockDim.x + threadIdx.x);
    int top = 2 * (blockIdx.y * blockDim.y + threadIdx.y);
    if (left >= width || top >= height)
        return;

    float red = 0.0f, green = 0.0f, blue = 0.0f;
    int right = min(left + 2, width), bottom = min(top + 2, height);
    for (int y = top; y < bottom; ++y) {
        for (int x = left; x < right; ++x) {
            const byte* pixel = rgb + y * stride_y + x * stride_x;
            float r = pixel[0], g = pixel[stride_c], b = pixel[2 * stride_c];
            store_code(luma + y * luma_pitch, format, x, m00 * r + m01 * g + m02 * b + m03);
            red += r;
            green += g;
            blue += b;
        }
    }
    if (format == GRAY8)
        return;

    float share = 1.0f / ((right - left) * (bottom - top));
    red *= share;
    green *= share;
    blue *= share;
    byte* row = chroma + (top >> 1) * chroma_pitch;
    store_code(row, format, left, m10 * red + m11 * green + m12 * blue + m13);
    store_code(row, format, left + 1, m20 * red + m21 * green + m22 * blue + m23);
}
"""
