"""Frames as arrays of pixels: one, or several in one array."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from cuframes_nb._api.frame import Frame
from cuframes_nb.convert import Options, Picture, Pixels, Placement, placement_of
from cuframes_nb.convert import render as render_pictures
from cuframes_nb.errors import InvalidArgumentError

__all__ = ["check_layout", "render", "stack"]

BATCH_LAYOUTS: Final = ("nhwc", "nchw")


def stack(
    frames: Sequence[Frame],
    size: tuple[int, int] | None = (640, 640),
    *,
    fit: str = "letterbox",
    layout: str = "nchw",
    dtype: str = "float16",
    mean: float | Sequence[float] | None = None,
    std: float | Sequence[float] | None = None,
    channels: str = "rgb",
    crop: Sequence[Any] | None = None,
    interpolation: str = "bilinear",
    fill: float = 114,
    siting: str = "left",
    out: Any = None,
    stream: Any = None,
) -> Any:
    """Return several frames as one array, made in one pass over all of them.

    They may differ in size, format and colours, but lie all in host memory or all on one GPU. The
    same frame may come more than once, with other crops. On a GPU it is one launch for each 29.

    Parameters
    ----------
    frames
        One or more.
    layout
        ``"nchw"``: shape ``(len(frames), channels, height, width)``; or ``"nhwc"``.
    crop
        ``(x, y, width, height)`` to take of each frame, or a sequence with one, or None, for each.
    size, fit, dtype, mean, std, channels, interpolation, fill, siting, out, stream
        See :meth:`Frame.tensor`. Without a size all frames, or crops, must have the same.

    Raises
    ------
    InvalidArgumentError
        If an argument does not fit the frames, or they do not lie in one memory.
    UnsupportedError
        For a new array of bfloat16 where its package is not installed.
    ClosedError
        If one was released.
    """
    frames = list(frames)
    if not frames or not all(isinstance(frame, Frame) for frame in frames):
        raise InvalidArgumentError("stack takes one or more frames, as a subscriber hands them out")
    devices = {frame.device for frame in frames}
    if len(devices) > 1:
        raise InvalidArgumentError(
            f"the frames lie on {', '.join(sorted(devices))}; stack those of one device, or copy"
        )
    check_layout(layout, BATCH_LAYOUTS)
    crops = _crops(crop, len(frames))
    placements = [
        placement_of(frame.width, frame.height, part, size, fit)
        for frame, part in zip(frames, crops, strict=True)
    ]
    options = Options(layout, dtype, channels, interpolation, siting, fill, mean, std)
    return render(frames, placements, options, out=out, stream=stream)


def check_layout(layout: str, known: tuple[str, ...]) -> None:
    """Refuse a layout that is not among those `known` here."""
    if layout not in known:
        raise InvalidArgumentError(
            f"layout {layout!r} is not known here; use one of {', '.join(known)}"
        )


def _crops(crop: Any, count: int) -> list[Any]:
    """Return one crop for each frame; what is no crop is refused later."""
    entries = crop if isinstance(crop, Sequence) else []
    if not any(entry is None or isinstance(entry, Sequence) for entry in entries):
        return [crop] * count
    if len(entries) != count:
        raise InvalidArgumentError(f"{len(entries)} crops were given for {count} frames")
    return list(entries)


def render(
    frames: Sequence[Frame],
    placements: Sequence[Placement],
    options: Options,
    *,
    out: Any,
    stream: Any,
) -> Any:
    """Return the frames, all of one memory, as one array."""
    pixels = Pixels.of(options)
    # Held until the work is queued, whoever releases the frames meanwhile.
    claims = [frame._claim() for frame in frames]  # noqa: SLF001

    def pictures() -> list[Picture]:
        return [
            Picture(source.on_gpu() or frame.planes, frame.format, frame.color)
            for frame, (_, source) in zip(frames, claims, strict=True)
        ]

    if stream is None or frames[0].device == "cpu":
        return render_pictures(pictures(), placements, pixels, out)
    from cuframes_nb._views.cuda import as_cupy_stream

    for frame in frames:
        frame.record_stream(stream)
    with as_cupy_stream(stream):
        # Asked for on the stream that reads: a frame that was copied has it wait for the copy.
        return render_pictures(pictures(), placements, pixels, out)
