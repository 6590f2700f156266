"""Frames that a program makes itself: arrays of NumPy, CuPy or torch, from any iterable."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator
from typing import Any, Final

from cuframes_nb._api.borrowed import is_torch_cuda, wait_until_made
from cuframes_nb._api.ingest import AV_NAMES
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb._core.clock import now_ns
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import InvalidArgumentError
from cuframes_nb.formats import FrameLayout, PixelFormat
from cuframes_nb.sources.playing import Source

__all__ = ["Arrays", "from_iterable", "from_torch"]

_OURS: Final = {theirs: ours for ours, theirs in AV_NAMES.items()}


class Arrays(Source):
    """Frames from an iterable, which is read once; made by `from_iterable` and `from_torch`."""

    def __init__(
        self,
        frames: Iterable[Any],
        fps: float | None,
        format_: str | None,
        color: ColorSpec | None,
    ) -> None:
        if fps is not None and not fps > 0:
            raise InvalidArgumentError(f"fps is {fps!r}; it is a positive rate, or None")
        arrays = iter(frames)
        first = next((frame for frame in arrays if frame is not None), None)
        if first is None:
            raise InvalidArgumentError("the iterable yields no frame")
        if is_torch_cuda(first):
            wait_until_made(first)
        self._arrays = itertools.chain([first], arrays)
        self._format = format_
        self._rate = fps
        self.is_live = fps is None
        self.fps, self._color = fps or 0.0, color
        self._look_at(first)

    def frames(self) -> Iterator[tuple[int, Any] | None]:
        """Yield each frame with its time."""
        number = 0
        for frame in self._arrays:
            if frame is None:
                yield None
                continue
            self._look_at(frame)
            yield (int(number * 1e9 / self._rate) if self._rate else now_ns()), frame
            number += 1

    def write(self, slot: WritableSlot, frame: Any) -> None:
        """Copy a frame into `slot`."""
        slot.write(frame)

    def _look_at(self, frame: Any) -> None:
        self.format, self.width, self.height = _described(frame, self._format)
        self.color = self._color
        if self._color is None and self.format == PixelFormat.GRAY8:
            # What a program calls gray goes from 0 to 255, other than what a camera sends.
            self.color = dataclasses.replace(ColorSpec.assume(self.height), range="full")


def from_iterable(
    frames: Iterable[Any],
    *,
    fps: float | None = 30.0,
    format: str | None = None,  # noqa: A002  the field's word
    color: ColorSpec | None = None,
) -> Source:
    """Return a source of the frames that an iterable yields, a generator for example.

    Parameters
    ----------
    frames
        Yields what :meth:`cuframes_nb.Publisher.write` takes, but for planes: arrays of NumPy,
        CuPy or torch, RGB or gray or the rows of all planes; PyAV frames; frames of a subscriber.
        It is read once, on the thread that plays; a None is passed over, and lets the player stop.
        A frame of another size starts a new epoch.
    fps
        Frames a second to play at; None to publish each as soon as it is there.
    format
        Pixel format of the stream; by default ``"nv12"`` for arrays of three dimensions, which are
        converted, and ``"gray8"`` for arrays of two.
    color
        What the code values mean; by default what untagged video is taken to be, and full range for
        ``"gray8"``.

    Raises
    ------
    InvalidArgumentError
        If there is no frame, or the first one cannot be a frame.

    Examples
    --------
    >>> import numpy as np
    >>> from cuframes_nb import sources
    >>> noise = (np.random.randint(0, 255, (480, 640, 3), np.uint8) for _ in range(3))
    >>> source = sources.from_iterable(noise, fps=1000)
    >>> with source.publisher("noise", memory="host") as pub:
    ...     sources.play(source, pub)
    3
    """
    return Arrays(frames, fps, format, color)


def from_torch(
    tensors: Iterable[Any],
    *,
    fps: float | None = 30.0,
    format: str | None = None,  # noqa: A002
    color: ColorSpec | None = None,
) -> Source:
    """Return a source of images as models have them: tensors ``(3, height, width)``.

    Parameters
    ----------
    tensors
        Yields tensors of torch, on the CPU or a GPU, ``(channels, height, width)`` or ``(height,
        width, channels)`` with 1 or 3 channels, or ``(height, width)``; uint8, or floating point
        from 0 to 1, which is clamped. A batch ``(n, 3, height, width)`` is such an iterable. On a
        GPU, a tensor is read behind the work on what is torch's current stream when it is yielded,
        and work queued there later waits for that.
    fps, format, color
        As for :func:`from_iterable`.

    Raises
    ------
    InvalidArgumentError
        If there is no tensor, or the first one is no image.
    """
    return Arrays(map(_image, tensors), fps, format, color)


def _image(tensor: Any) -> Any:
    """Return a tensor as uint8, ``(height, width, 3)`` or ``(height, width)``."""
    shape = tuple(tensor.shape)
    if len(shape) == 3 and shape[0] in {1, 3} and shape[2] not in {1, 3}:
        tensor = tensor.permute(1, 2, 0)
    if tensor.ndim == 3 and tensor.shape[2] == 1:
        tensor = tensor[..., 0]
    if tensor.ndim not in {2, 3} or (tensor.ndim == 3 and tensor.shape[2] != 3):
        raise InvalidArgumentError(
            f"a tensor of shape {shape} is no image: it has 1 or 3 channels, first or last"
        )
    if tensor.is_floating_point():
        tensor = (tensor.detach().clamp(0, 1) * 255).round().byte()
    return tensor.contiguous()


def _described(frame: Any, format_: str | None) -> tuple[str, int, int]:
    """Return pixel format, width and height of a frame."""
    if hasattr(frame, "width") and hasattr(frame, "height"):  # PyAV's, or a subscriber's
        own = (
            frame.format if isinstance(frame.format, PixelFormat) else _OURS.get(frame.format.name)
        )
        return str(format_ or own or "nv12"), frame.width, frame.height
    shape = getattr(frame, "shape", None)
    if shape is None or len(shape) not in {2, 3}:
        what = f"an array of shape {tuple(shape)}" if shape is not None else type(frame).__name__
        raise InvalidArgumentError(f"{what} is no frame: it is (height, width) or (..., 3 or 4)")
    if len(shape) == 3:
        return format_ or "nv12", int(shape[1]), int(shape[0])
    if format_ is not None and PixelFormat.parse(format_).is_semiplanar:
        height = int(shape[0]) * 2 // 3
        if FrameLayout.make(format_, int(shape[1]), height).rows_shape != tuple(shape):
            raise InvalidArgumentError(
                f"{format_} of an array has height * 3 / 2 rows, and {tuple(shape)} are no such"
            )
        return format_, int(shape[1]), height
    return format_ or "gray8", int(shape[1]), int(shape[0])
