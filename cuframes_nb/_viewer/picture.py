"""A frame, or what was made of it, cut and scaled to what is looked at."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from cuframes_nb._api.frame import Frame
from cuframes_nb._cuda.nvjpeg.painter import Picture
from cuframes_nb._viewer.images import DevicePixels, Pixels, device_of, on_host
from cuframes_nb._views.downloads import as_numpy
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.formats import PixelFormat

__all__ = [
    "Drawn",
    "Picture",
    "Planes",
    "Rect",
    "Scaler",
    "Size",
    "aligned",
    "fitted",
    "resized",
    "rgb_pixels",
]

Rect: TypeAlias = tuple[int, int, int, int]
"""x, y, width, height."""

Size: TypeAlias = tuple[int, int]
"""Width, height."""

_THREADS: Final = 2
"""Where there are as many cores, half the time; more of them wait for each other longer."""

_AV_FORMATS: Final = {PixelFormat.NV12: "nv12", PixelFormat.P010: "p010le"}
_AV_MATRICES: Final = {"bt601": "ITU601", "bt709": "ITU709", "bt2020": "BT2020"}
_AV_RANGES: Final = {"limited": "MPEG", "full": "JPEG"}

_SHOWN: Final = {1: PixelFormat.GRAY8, 3: PixelFormat.RGB24, 4: PixelFormat.RGBA32}
"""What pixels with so many components are."""


class Planes(NamedTuple):
    """A picture as JPEG stores it: BT.601, full range, chroma of half the size (JFIF 1.02)."""

    y: NDArray[np.uint8]
    u: NDArray[np.uint8]
    v: NDArray[np.uint8]


Drawn: TypeAlias = Planes | Pixels | Picture
"""A picture, ready to be encoded; a `Picture` by the GPU that has it, which cuts and scales it."""


class Scaler:
    """Cuts and scales pictures; for one thread.

    FFmpeg's scaler does it where PyAV is installed: for frames of two planes in host memory
    straight from the slot, without RGB in between. Else the exact conversion of ``frame.rgb()``
    does, which is slower on a CPU. What is encoded on a GPU is cut and scaled there, too, when it
    is encoded.

    Parameters
    ----------
    takes
        Says whether pictures on a device, as ``"cuda:0"``, are encoded there.
    """

    def __init__(self, takes: Callable[[str], bool] = lambda _: False) -> None:
        self._takes = takes
        self._was_on_gpu = False
        self._reformatter: Any = _reformatter()

    @property
    def name(self) -> str:
        """What scales, for people."""
        if self._was_on_gpu:
            return "the GPU"
        return "swscale" if self._reformatter is not None else "NumPy"

    def frame(self, frame: Frame, roi: Rect, size: Size) -> Drawn:
        """Return the part `roi` of a frame at `size`."""
        self._was_on_gpu = self._takes(frame.device)
        if self._was_on_gpu:
            lease, _ = frame._claim()  # noqa: SLF001  without one it is a copy, perhaps not made yet
            return Picture(
                frame.planes, frame.format, frame.color, roi, size, is_queued=lease is None
            )
        if self._reformatter is None or not _is_known(frame, roi):
            return rgb_pixels(frame, roi, size)
        x, y, width, height = roi
        luma = frame.y[y : y + height, x : x + width]
        chroma = frame.uv[y // 2 : (y + height + 1) // 2, x // 2 : (x + width + 1) // 2]
        source = _video_frame((luma, chroma), _AV_FORMATS[frame.format], (width, height))
        matrix = _AV_MATRICES[frame.color.matrix]
        return self._planes(source, size, matrix, _AV_RANGES[frame.color.range])

    def pixels(self, pixels: Pixels | DevicePixels, size: Size) -> Drawn:
        """Return a picture at `size`."""
        height, width = pixels.shape[:2]
        self._was_on_gpu = self._takes(device_of(pixels))
        if self._was_on_gpu:
            return _shown(pixels, size)
        pixels = on_host(pixels)
        if (width, height) == size:
            return pixels
        if self._reformatter is None:
            return resized(pixels, size)
        from av import VideoFrame

        source = VideoFrame.from_ndarray(pixels, format="rgb24" if pixels.ndim == 3 else "gray")
        return self._planes(source, size, "ITU601", "JPEG")

    def _planes(self, source: Any, size: Size, matrix: str, range_: str) -> Planes:
        width, height = size
        smaller = width * height < source.width * source.height
        scaled = self._reformatter.reformat(
            source,
            width,
            height,
            format="yuvj420p",
            src_colorspace=matrix,
            dst_colorspace="ITU601",
            src_color_range=range_,
            dst_color_range="JPEG",
            # Where only the matrix changes, BILINEAR loses a code value and a half on average.
            interpolation="AREA" if smaller else "BICUBIC",
            threads=_THREADS,
        )
        return Planes(*(_plane(plane) for plane in scaled.planes))


def _shown(pixels: DevicePixels, size: Size) -> Picture:
    """Return pixels in GPU memory, whose values are what a screen shows, at `size`."""
    height, width = pixels.shape[:2]
    components = pixels.shape[2] if pixels.ndim == 3 else 1
    format_ = _SHOWN[components]
    color = ColorSpec("bt601" if format_.is_yuv else "rgb", "full")
    return Picture((pixels,), format_, color, (0, 0, width, height), size, is_queued=True)


def rgb_pixels(frame: Frame, roi: Rect | None, size: Size | None) -> Pixels:
    """Return the part `roi` of a frame at `size` as RGB in host memory, exact in its colours."""
    whole = roi == (0, 0, frame.width, frame.height)
    rgb = frame.rgb(
        crop=None if whole else roi,
        size=None if size is None or (roi is not None and size == roi[2:]) else size,
    )
    pixels: Pixels = as_numpy(rgb)
    return pixels


def aligned(roi: Rect | None, width: int, height: int) -> Rect:
    """Return a rectangle as it can be shown: inside the frame, on chroma samples, not empty."""
    if roi is None:
        return (0, 0, width, height)
    x, y = (min(max(0, v), side - 1) & ~1 for v, side in ((roi[0], width), (roi[1], height)))
    right = min(width, _even(max(roi[0] + roi[2], x + 2)))
    bottom = min(height, _even(max(roi[1] + roi[3], y + 2)))
    return (x, y, max(1, right - x), max(1, bottom - y))


def fitted(source: Size, room: Size | None, scale: float) -> Size:
    """Return how large a picture is made: what fits into `room`, never larger than the source."""
    width, height = source
    fit = 1.0 if room is None else min(1.0, room[0] / width, room[1] / height)
    factor = fit * scale
    if factor >= 1.0:
        return source
    return (_part_of(width, factor), _part_of(height, factor))


def _part_of(side: int, factor: float) -> int:
    """Return a shorter side; an even one, as JPEG has its chroma."""
    return min(side, max(2, 2 * int(side * factor / 2 + 1e-6)))


def _even(value: int) -> int:
    return (value + 1) & ~1


def _reformatter() -> Any:
    """Return what scales, None where there is no PyAV that can be used."""
    if importlib.util.find_spec("av") is None:
        return None
    try:
        from av import VideoFrame
        from av.video.reformatter import VideoReformatter
    except ImportError:  # installed, but not for this machine
        return None
    return VideoReformatter() if hasattr(VideoFrame, "from_dlpack") else None


def _is_known(frame: Frame, roi: Rect) -> bool:
    """Return whether PyAV takes this part of the frame: in its format, sizes are even."""
    is_even = roi[2] % 2 == roi[3] % 2 == 0
    is_read = frame.format in _AV_FORMATS and frame.color.matrix in _AV_MATRICES
    return is_even and is_read and frame.device == "cpu"


class _Writable:
    """Memory that is only read, shown as if it could be written.

    DLPack of NumPy cannot say that memory is read-only, and refuses such arrays; PyAV reads it.
    """

    def __init__(self, array: NDArray[Any]) -> None:
        interface = dict(array.__array_interface__)
        interface["data"] = (interface["data"][0], False)
        self.__array_interface__ = interface
        self._array = array


def _video_frame(planes: tuple[NDArray[Any], NDArray[Any]], format_: str, size: Size) -> Any:
    from av import VideoFrame

    shown = [np.asarray(_Writable(plane)) for plane in planes]
    return VideoFrame.from_dlpack(tuple(shown), format=format_, width=size[0], height=size[1])


def _plane(plane: Any) -> NDArray[np.uint8]:
    rows = np.frombuffer(plane, np.uint8).reshape(plane.height, plane.line_size)
    return rows[:, : plane.width]


def resized(pixels: Pixels, size: Size) -> Pixels:
    """Return a picture at `size`, each pixel a mean of those that it covers.

    Raises
    ------
    UnsupportedError
        If Pillow is not installed.
    """
    if (pixels.shape[1], pixels.shape[0]) == size:
        return pixels
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError(
            f"pictures are scaled by Pillow, which cannot be imported ({error}): install "
            f"'cuframes-nb[lab]'"
        ) from error
    image = Image.fromarray(np.ascontiguousarray(pixels))
    return np.asarray(image.resize(size, Image.Resampling.BILINEAR, reducing_gap=2.0))
