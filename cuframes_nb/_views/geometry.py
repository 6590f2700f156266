"""A whole frame as one array of rows, where its layout allows that."""

from __future__ import annotations

from cuframes_nb.errors import UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["rows_geometry"]


def rows_geometry(layout: FrameLayout) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
    """Return offset, shape and strides of the frame as one array.

    Raises
    ------
    UnsupportedError
        If the planes do not follow each other with one pitch, or the width is odd.
    """
    shape = layout.rows_shape
    if shape is None:
        places = ", ".join(f"offset {p.offset} pitch {p.pitch}" for p in layout.planes)
        raise UnsupportedError(
            f"{layout.format} at {layout.width}x{layout.height} with {places} is not one array of "
            f"rows: use .planes"
        )
    first = layout.planes[0]
    return first.offset, shape, first.strides
