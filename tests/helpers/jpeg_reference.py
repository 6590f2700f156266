"""What a JPEG's planes are to be, in float64: one axis at a time, colours by way of R, G, B.

Where something is scaled, chroma lies above the left one of two pixels, else in their middle.
"""

import numpy as np

from cuframes_nb.formats import PixelFormat

__all__ = ["painted"]

BT601 = (0.299, 0.114)


def painted(planes, fmt, color, crop, size):
    """Return Y, Cb, Cr of BT.601, full range, not clipped; chroma of half the size, rounded up."""
    values = [np.atleast_3d(plane >> 6 if fmt is PixelFormat.P010 else plane) for plane in planes]
    made = []
    for pixels in (1, 2):
        seen = [_resampled(plane, crop, size, (1 + i, pixels)) for i, plane in enumerate(values)]
        made.append(_encoded(_decoded(seen, fmt, color)))
    luma, chroma = made
    return [luma[0], *chroma[1:]]


def _resampled(plane, crop, size, grid):
    """Return a plane as each square of the result sees it; `grid`: pixels of a sample, a square."""
    is_left = grid[0] == 2 and crop[2:] != size
    across = _weights(plane.shape[1], (crop[0] + 0.5 * is_left, crop[2]), size[0], grid)
    down = _weights(plane.shape[0], (crop[1], crop[3]), size[1], grid)
    return np.einsum("ab,bcd,ec->aed", down, plane.astype(float), across, optimize=True)


def _weights(count, part, size, grid):
    """Return the share of each of `count` samples in each position of the result.

    Where a position covers a sample's length or more: of each what is covered. Else the two
    neighbours of its middle, by their nearness.
    """
    (start, extent), (wide, pixels) = part, grid
    first, last = int(start) // wide, (int(start) + extent - 1) // wide + 1
    rows = []
    for at in range(0, size, pixels):
        begin, end = ((start + x * extent / size) / wide for x in (at, at + pixels))
        row = np.zeros(count)
        if end - begin >= 1:
            edges = np.clip([begin, end], first, last)
            for k in range(int(edges[0]), int(np.ceil(edges[1]))):
                row[k] = min(k + 1, edges[1]) - max(k, edges[0])
            row /= row.sum()
        else:
            middle = min(max((begin + end) / 2 - 0.5, first), last - 1)
            left = int(middle)
            right = min(left + 1, last - 1)
            row[left] += 1 - (middle - left)
            row[right] += middle - left
        rows.append(row)
    return np.array(rows)


def _decoded(values, fmt, color):
    """Return R, G, B from 0 to 1."""
    if not fmt.is_yuv:
        return values[0][..., :3] / 255
    depth = fmt.bit_depth
    step = 2 ** (depth - 8)
    full = color.range == "full"
    luma = values[0][..., 0] / (2**depth - 1) if full else (values[0][..., 0] / step - 16) / 219
    if fmt is PixelFormat.GRAY8:
        return np.stack([luma] * 3, -1)
    blue, red = np.moveaxis(values[1] - 128 * step, -1, 0) / (
        (2**depth - 1) if full else 224 * step
    )
    kr, kb = color.luma_weights
    r, b = luma + 2 * (1 - kr) * red, luma + 2 * (1 - kb) * blue
    return np.stack([r, (luma - kr * r - kb * b) / (1 - kr - kb), b], -1)


def _encoded(rgb):
    kr, kb = BT601
    r, g, b = np.moveaxis(rgb, -1, 0)
    luma = kr * r + (1 - kr - kb) * g + kb * b
    return [
        255 * luma,
        128 + 255 * (b - luma) / (2 * (1 - kb)),
        128 + 255 * (r - luma) / (2 * (1 - kr)),
    ]
