"""Taking a frame of whatever kind into a slot: `Publisher.write`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cuframes_nb._api.borrowed import is_torch_cuda, keep_until_read
from cuframes_nb._api.frame import Frame
from cuframes_nb._runtime.backend import Backend
from cuframes_nb._wire.messages import RingDescription
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout, PixelFormat

__all__ = ["AV_NAMES", "copy_into"]

AV_NAMES: Final = {
    PixelFormat.NV12: "nv12", PixelFormat.P010: "p010le", PixelFormat.GRAY8: "gray",
    PixelFormat.RGB24: "rgb24", PixelFormat.RGBA32: "rgba",
}  # fmt: skip
"""What FFmpeg calls our formats."""


def copy_into(planes: Sequence[Any], ring: RingDescription, frame: Any, backend: Backend) -> None:
    """Copy `frame` into `planes`, converting RGB.

    Parameters
    ----------
    planes
        The slot's planes.
    ring
        Layout and colours of the stream.
    frame
        See :meth:`Publisher.write`.
    backend
        Kind of memory of the planes.

    Raises
    ------
    InvalidArgumentError
        If shape or type fit neither the stream's format nor RGB.
    """
    layout = ring.layout
    if isinstance(frame, Frame):
        _copy_planes(planes, frame.planes, layout, backend)
    elif _is_av_frame(frame):
        _copy_planes(planes, _av_planes(frame, layout), layout, backend)
    elif isinstance(frame, list | tuple):
        _copy_planes(planes, [backend.as_array(plane) for plane in frame], layout, backend)
    else:
        _copy_array(planes, ring, backend.as_array(frame), backend)
    for array in frame if isinstance(frame, list | tuple) else (frame,):
        if is_torch_cuda(array):
            keep_until_read(array)


def _copy_planes(
    targets: Sequence[Any], sources: Sequence[Any], layout: FrameLayout, backend: Backend
) -> None:
    shapes = [tuple(source.shape) for source in sources]
    wanted = [plane.shape for plane in layout.planes]
    if shapes != wanted:
        raise InvalidArgumentError(
            f"planes of shapes {shapes} do not fit {layout.format} at {layout.width}x"
            f"{layout.height}, which has {wanted}"
        )
    for target, source in zip(targets, sources, strict=True):
        _check_dtype(source, layout)
        backend.copy_in(target, source)


def _copy_array(
    planes: Sequence[Any],
    ring: RingDescription,
    array: Any,
    backend: Backend,
) -> None:
    layout = ring.layout
    shape = tuple(array.shape)
    size = (layout.height, layout.width)
    if len(layout.planes) == 1 and shape == layout.planes[0].shape:
        _copy_planes(planes, [array], layout, backend)
    elif shape == layout.rows_shape:
        _copy_planes(planes, _split_rows(array, layout), layout, backend)
    elif shape in {(*size, 3), (*size, 4)}:
        _copy_rgb(planes, ring, array, backend)
    else:
        raise InvalidArgumentError(
            f"an array of shape {shape} fits neither {layout.format} at {layout.width}x"
            f"{layout.height} ({layout.rows_shape or 'given as planes'}) nor RGB {(*size, 3)}"
        )


def _copy_rgb(
    planes: Sequence[Any],
    ring: RingDescription,
    array: Any,
    backend: Backend,
) -> None:
    from cuframes_nb import convert

    if str(array.dtype).rpartition(".")[2] != "uint8":
        raise InvalidArgumentError(f"RGB frames have components of uint8, not {array.dtype}")
    convert.from_rgb(backend.to_own(array), planes, ring.layout.format, ring.color)


def _split_rows(array: Any, layout: FrameLayout) -> list[Any]:
    """Return luma and chroma as views on an array of rows."""
    luma, chroma = layout.planes
    return [array[: luma.rows], array[luma.rows :].reshape(chroma.shape)]


def _check_dtype(source: Any, layout: FrameLayout) -> None:
    # torch prints "torch.uint8" where NumPy prints "uint8".
    if str(source.dtype).rpartition(".")[2] != layout.format.dtype:
        raise InvalidArgumentError(
            f"{layout.format} has components of {layout.format.dtype}, not {source.dtype}"
        )


def _is_av_frame(frame: Any) -> bool:
    """Whether it is a PyAV ``VideoFrame``, without importing PyAV."""
    return type(frame).__module__.startswith("av.") and type(frame).__name__ == "VideoFrame"


def _av_planes(frame: Any, layout: FrameLayout) -> list[Any]:
    """Return the frame's planes in the stream's format as NumPy views on the decoder's memory."""
    import numpy as np

    if (frame.width, frame.height) != (layout.width, layout.height):
        raise InvalidArgumentError(
            f"a video frame of {frame.width}x{frame.height} does not fit a stream of "
            f"{layout.width}x{layout.height}: reconfigure the publisher"
        )
    name = AV_NAMES[layout.format]
    if frame.format.name != name:
        frame = frame.reformat(format=name)
    arrays = []
    for plane, place in zip(frame.planes, layout.planes, strict=True):
        flat = np.frombuffer(plane, layout.format.dtype)
        arrays.append(
            np.lib.stride_tricks.as_strided(
                flat, place.shape, (plane.line_size, *place.strides[1:]), writeable=False
            )
        )
    return arrays
