"""The encoders and decoders of FFmpeg that PyAV brings: each codes a frame and reads it again."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any, Final

from cuframes_nb._api.pyav import import_av
from cuframes_nb._doctor.checks import Check, Status
from cuframes_nb.errors import DeviceError, UnsupportedError
from cuframes_nb.sinks.codecs import Encoder, candidates, options_for

__all__ = ["film_of", "look_at_codecs"]

_CODECS: Final = ("h264", "hevc", "av1", "ffv1")
_SIDE: Final = 256
"""NVENC refuses frames that are much smaller."""


def look_at_codecs() -> Iterator[Check]:
    """Yield each codec that films can be recorded in."""
    try:
        import_av()
    except UnsupportedError as error:
        yield Check("films", "PyAV", Status.MISSING, str(error), "pip install 'cuframes-nb[video]'")
        return
    for codec in _CODECS:
        yield _best_of(codec, candidates(codec, on_gpu=False))
    on_gpu = [encoder for encoder in candidates("auto", on_gpu=True) if encoder.on_gpu]
    yield from _on_gpus(on_gpu)


def _best_of(codec: str, encoders: list[Encoder]) -> Check:
    if not encoders:
        return Check(
            "films", codec, Status.MISSING, "this FFmpeg has no encoder for it", "use another codec"
        )
    errors = []
    for encoder in encoders:
        if error := _error_of(encoder):
            errors.append(f"{encoder.name}: {error}")
        else:
            return Check("films", codec, Status.OK, f"{encoder.name}: a frame coded and decoded")
    return Check("films", codec, Status.FAILED, "; ".join(errors), "use another codec")


def _on_gpus(encoders: list[Encoder]) -> Iterator[Check]:
    from cuframes_nb._cuda.devices import device_count

    name, advice = "h264 on a GPU", "nothing, without a GPU: films are coded by the CPU"
    if not encoders:
        yield Check("films", name, Status.MISSING, "this FFmpeg has no NVENC", "")
        return
    try:
        count = device_count()
    except DeviceError as error:
        yield Check("films", name, Status.MISSING, str(error), advice)
        return
    for ordinal in range(count):
        yield _on_gpu(encoders[0], ordinal)


def _on_gpu(encoder: Encoder, ordinal: int) -> Check:
    name = f"h264 on GPU {ordinal}"
    if error := _error_of(encoder, {"gpu": str(ordinal)}):
        advice = "nothing, if it has no NVENC: films are coded by the CPU"
        return Check("films", name, Status.MISSING, f"{encoder.name}: {error}", advice)
    return Check("films", name, Status.OK, f"{encoder.name}: a frame coded and decoded")


def _error_of(encoder: Encoder, options: Mapping[str, str] | None = None) -> str:
    """Return what is wrong with an encoder, or with what reads it again; empty if nothing is."""
    av = import_av()
    try:
        film = film_of(encoder, options)
        with av.open(film) as reader:
            count = sum(1 for _ in reader.decode(video=0))
    except (av.error.FFmpegError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    return "" if count == 1 else f"one frame was coded, and {count} came back"


def film_of(encoder: Encoder, options: Mapping[str, str] | None = None) -> io.BytesIO:
    """Return a film of one frame, coded by `encoder` with options besides its own."""
    av = import_av()
    film, every = io.BytesIO(), {**options_for(encoder, None), **(options or {})}
    with av.open(film, "w", format="matroska") as writer:
        stream = writer.add_stream(encoder.name, rate=30, options=every)
        stream.width = stream.height = _SIDE
        stream.pix_fmt = "yuv420p"
        writer.mux(stream.encode(_grey(av)))
        writer.mux(stream.encode(None))
    film.seek(0)
    return film


def _grey(av: Any) -> Any:
    frame = av.VideoFrame(_SIDE, _SIDE, "yuv420p")
    for plane in frame.planes:
        plane.update(bytes([128]) * plane.buffer_size)
    frame.pts = 0
    return frame
