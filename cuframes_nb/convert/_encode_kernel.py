"""CUDA C++ source of the kernel from RGB to frames, to go behind ``_kernel_parts.COMMON``.

The macro FORMAT is the format of the frame. STEP is the bytes from pixel to pixel of the RGB array,
3 or 4, where its channels follow each other, else 0.

A thread makes 8 pixels of two rows and their chroma, from words where they fit, else block by
block.
"""

from typing import Final

__all__ = ["KERNEL"]

KERNEL: Final = r"""
struct Encode {
    const byte* rgb;
    byte* luma;
    byte* chroma;
    long long stride_y, stride_x, stride_c;
    int luma_pitch, chroma_pitch;
    int width, height;
    float matrix[3][4];
};

constexpr int ITEM = item_bytes(FORMAT);

DEVICE float mix(const float* row, float red, float green, float blue)
{
    return row[0] * red + (row[1] * green + (row[2] * blue + row[3]));
}

// A code value as it is stored.
DEVICE unsigned stored(float value)
{
    if constexpr (FORMAT == P010)
        return (unsigned)__float2int_rn(fminf(fmaxf(value, 0.0f), 1023.0f)) << 6;
    return to_byte(value);
}

DEVICE void write_item(byte* row, int index, unsigned value)
{
    if constexpr (FORMAT == P010)
        reinterpret_cast<word*>(row)[index] = (word)value;
    else
        row[index] = (byte)value;
}

// Eight pixels at (x, y) and eight below, all there; false if they are not aligned.
DEVICE bool encode_words(const Encode& to, int x, int y)
{
    constexpr int in_bytes = 8 * (STEP ? STEP : 4), out_bytes = 8 * ITEM;
    const byte* from = to.rgb + y * to.stride_y + x * STEP;
    byte* luma = to.luma + (long long)y * to.luma_pitch + x * ITEM;
    byte* chroma = to.chroma + (long long)(y >> 1) * to.chroma_pitch + x * ITEM;
    bool aligned = is_aligned<in_bytes>(from) && is_aligned<in_bytes>(from + to.stride_y)
                   && is_aligned<out_bytes>(luma) && is_aligned<out_bytes>(luma + to.luma_pitch)
                   && (FORMAT == GRAY8 || is_aligned<out_bytes>(chroma));
    if (!aligned)
        return false;

    unsigned pixels[2][in_bytes / 4], lumas[2][out_bytes / 4] = {}, chromas[out_bytes / 4] = {};
    load<in_bytes>(pixels[0], from);
    load<in_bytes>(pixels[1], from + to.stride_y);
#pragma unroll
    for (int left = 0; left < 8; left += 2) {
        float red = 0.0f, green = 0.0f, blue = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            int at = left + i % 2;
            float r = (float)get<1>(pixels[i / 2], at * STEP);
            float g = (float)get<1>(pixels[i / 2], at * STEP + 1);
            float b = (float)get<1>(pixels[i / 2], at * STEP + 2);
            put<ITEM>(lumas[i / 2], at, stored(mix(to.matrix[0], r, g, b)));
            red += r;
            green += g;
            blue += b;
        }
        red *= 0.25f;
        green *= 0.25f;
        blue *= 0.25f;
        put<ITEM>(chromas, left, stored(mix(to.matrix[1], red, green, blue)));
        put<ITEM>(chromas, left + 1, stored(mix(to.matrix[2], red, green, blue)));
    }
    store<out_bytes>(luma, lumas[0]);
    store<out_bytes>(luma + to.luma_pitch, lumas[1]);
    if (FORMAT != GRAY8)
        store<out_bytes>(chroma, chromas);
    return true;
}

// A block of 2x2 pixels, cut at the edges of odd sizes.
DEVICE void encode_block(const Encode& to, int left, int top)
{
    float red = 0.0f, green = 0.0f, blue = 0.0f;
    int right = min(left + 2, to.width), bottom = min(top + 2, to.height);
    for (int y = top; y < bottom; ++y) {
        byte* luma = to.luma + (long long)y * to.luma_pitch;
        for (int x = left; x < right; ++x) {
            const byte* pixel = to.rgb + y * to.stride_y + x * to.stride_x;
            float r = pixel[0], g = pixel[to.stride_c], b = pixel[2 * to.stride_c];
            write_item(luma, x, stored(mix(to.matrix[0], r, g, b)));
            red += r;
            green += g;
            blue += b;
        }
    }
    if (FORMAT == GRAY8)
        return;
    float share = 1.0f / ((right - left) * (bottom - top));
    red *= share;
    green *= share;
    blue *= share;
    byte* chroma = to.chroma + (long long)(top >> 1) * to.chroma_pitch;
    write_item(chroma, left, stored(mix(to.matrix[1], red, green, blue)));
    write_item(chroma, left + 1, stored(mix(to.matrix[2], red, green, blue)));
}

extern "C" __global__ void __launch_bounds__(32 * ROWS) encode(const BY_VALUE Encode to)
{
    int x = 8 * (blockIdx.x * 32 + threadIdx.x), y = 2 * (blockIdx.y * ROWS + threadIdx.y);
    if (x >= to.width || y >= to.height)
        return;
    if (STEP && x + 8 <= to.width && y + 2 <= to.height && encode_words(to, x, y))
        return;
    int end = min(x + 8, to.width);
    for (int left = x; left < end; left += 2)
        encode_block(to, left, y);
}
"""
