"""What kernels have in common: CUDA C++ for NVRTC, which needs no headers."""

from typing import Final

__all__ = ["BLOCK", "COMMON", "FORMATS", "INTRINSICS"]

FORMATS: Final = {"nv12": 0, "p010": 1, "gray8": 2, "rgb24": 3, "rgba32": 4}
BLOCK: Final = (32, 8)
"""Threads: eight warps, each with a row of its own, ``ROWS`` in the source."""

INTRINSICS: Final = r"""
#if __CUDA_ARCH__ >= 700
#define BY_VALUE __grid_constant__
#else
#define BY_VALUE
#endif

// Nearest of 0..255.
__device__ __forceinline__ unsigned to_byte(float value)
{
    unsigned result;
    asm("cvt.rni.sat.u8.f32 %0, %1;" : "=r"(result) : "f"(value));
    return result;
}

__device__ __forceinline__ unsigned short to_half(float value)
{
    unsigned short result;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(result) : "f"(value));
    return result;
}
"""
"""What only a GPU can do, or does best. Tests put C++ in its place."""

COMMON: Final = r"""
#define NV12 0
#define P010 1
#define GRAY8 2
#define RGB24 3
#define RGBA32 4

#define ROWS 8
#define DEVICE __device__ __forceinline__
#define RULE __device__ constexpr

typedef unsigned char byte;
typedef unsigned short word;

RULE bool is_semiplanar(int format) { return format == NV12 || format == P010; }
RULE int item_bytes(int format) { return format == P010 ? 2 : 1; }

// --- Words in registers --------------------------------------------------------------------------

template <int BYTES> struct UnitOf { typedef unsigned Type; };
template <> struct UnitOf<8> { typedef uint2 Type; };
template <> struct UnitOf<16> { typedef uint4 Type; };

RULE int unit_bytes(int bytes) { return bytes % 16 == 0 ? 16 : bytes % 8 == 0 ? 8 : 4; }

template <int BYTES> DEVICE bool is_aligned(const byte* address)
{
    return reinterpret_cast<size_t>(address) % unit_bytes(BYTES) == 0;
}

// Move words between registers and memory with as few accesses as can be.
template <int BYTES> DEVICE void load(unsigned* words, const byte* from)
{
    typedef typename UnitOf<unit_bytes(BYTES)>::Type Unit;
#pragma unroll
    for (int i = 0; i < BYTES / (int)sizeof(Unit); ++i) {
        Unit unit = reinterpret_cast<const Unit*>(from)[i];
        memcpy(words + i * sizeof(Unit) / 4, &unit, sizeof(Unit));
    }
}

template <int BYTES> DEVICE void store(byte* to, const unsigned* words)
{
    typedef typename UnitOf<unit_bytes(BYTES)>::Type Unit;
#pragma unroll
    for (int i = 0; i < BYTES / (int)sizeof(Unit); ++i) {
        Unit unit;
        memcpy(&unit, words + i * sizeof(Unit) / 4, sizeof(Unit));
        reinterpret_cast<Unit*>(to)[i] = unit;
    }
}

// An item of so many bytes among words of them.
template <int ITEM> DEVICE unsigned get(const unsigned* words, int index)
{
    constexpr int each = 4 / ITEM;
    return (words[index / each] >> (8 * ITEM * (index % each))) & (0xffffffffu >> (32 - 8 * ITEM));
}

// The same to words that are 0.
template <int ITEM> DEVICE void put(unsigned* words, int index, unsigned value)
{
    constexpr int each = 4 / ITEM;
    words[index / each] |= value << (8 * ITEM * (index % each));
}
"""
