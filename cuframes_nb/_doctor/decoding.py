"""Decoding films on a GPU: NVDEC reads what encoders of the CPU wrote."""

from __future__ import annotations

import ctypes
import io
from collections.abc import Iterator
from typing import Any, Final

from cuframes_nb._api.pyav import import_av
from cuframes_nb._doctor.checks import Check, Status
from cuframes_nb._doctor.codecs import film_of
from cuframes_nb.errors import DeviceError, UnsupportedError
from cuframes_nb.sinks.codecs import candidates

__all__ = ["look_at_decoding"]

_NAME: Final = "decoding on a GPU"
_CODECS: Final = ("h264", "hevc", "av1")
_LIBRARY: Final = "libnvcuvid.so.1"
"""NVDEC, as the driver brings it and FFmpeg loads it."""

_BY_THE_CPU: Final = "nothing, without a GPU that has NVDEC: films are decoded by the CPU"
_IN_A_CONTAINER: Final = (
    "in a container, start it with NVIDIA_DRIVER_CAPABILITIES=all, or with 'video' among them; "
    "elsewhere install the driver's decoding library (libnvidia-decode)"
)


def look_at_decoding() -> Iterator[Check]:
    """Yield whether films can be decoded on a GPU; nothing without PyAV, which is told already."""
    try:
        import_av()
    except UnsupportedError:
        return
    from cuframes_nb._cuda.devices import device_count

    try:
        accelerators = [_accelerator(ordinal) for ordinal in range(device_count())]
    except DeviceError as error:
        yield Check("films", _NAME, Status.MISSING, str(error), _BY_THE_CPU)
    except UnsupportedError as error:
        yield Check("films", _NAME, Status.MISSING, str(error), "pip install -U av")
    else:
        for ordinal, accel in enumerate(accelerators):
            yield _look(f"decoding on GPU {ordinal}", accel)


def _look(name: str, accel: Any) -> Check:
    errors = {codec: _error_of(codec, accel) for codec in _CODECS if _encoders(codec)}
    works = [codec for codec, error in errors.items() if not error]
    others = "; ".join(f"{codec}: {error}" for codec, error in errors.items() if error)
    if works:
        found = f"{', '.join(works)}: a frame decoded by NVDEC"
        return Check("films", name, Status.OK, f"{found}; not {others}" if others else found)
    return Check("films", name, Status.MISSING, *_why(others or "there is no film to try"))


def _accelerator(ordinal: int) -> Any:
    """Return what ``av.open`` takes to decode on a GPU, and to leave frames there.

    Raises
    ------
    UnsupportedError
        If this PyAV, or the FFmpeg in it, cannot do so at all.
    """
    try:
        from av.codec.hwaccel import HWAccel, hwdevices_available

        accel = HWAccel(
            "cuda", device=str(ordinal), is_hw_owned=True, allow_software_fallback=False,
            options={"primary_ctx": "1"},
        )  # fmt: skip
    except (ImportError, TypeError):
        raise UnsupportedError("PyAV 18 or newer is needed for it") from None
    if "cuda" not in hwdevices_available():
        raise UnsupportedError("this FFmpeg has no NVDEC; that of PyAV's wheels does")
    return accel


def _encoders(codec: str) -> list[Any]:
    return candidates(codec, on_gpu=False)


def _error_of(codec: str, accel: Any) -> str:
    """Return why a film of a codec is not decoded on the GPU; empty if it is."""
    try:
        frames = _decoded(film_of(_encoders(codec)[0]), accel)
    except (import_av().error.FFmpegError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    except RuntimeError:  # PyAV's; FFmpeg prefers a decoder that knows of no GPU, as for AV1
        return "FFmpeg's first decoder for it is one for the CPU"
    if len(frames) != 1:
        return f"one frame was coded, and {len(frames)} came back"
    return "" if frames[0] == ("cuda", "nv12") else f"it came back as {' '.join(frames[0])}"


def _decoded(film: io.BytesIO, accel: Any) -> list[tuple[str, str]]:
    """Return where each frame of a film is, and in which format: FFmpeg's names."""
    with import_av().open(film, hwaccel=accel) as reader:
        return [
            (frame.format.name, frame.sw_format.name if frame.sw_format else "in main memory")
            for frame in reader.decode(video=0)
        ]


def _why(errors: str) -> tuple[str, str]:
    """Return the reason why nothing was decoded, better than FFmpeg has it, and what to do."""
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError as error:
        return f"there is a GPU, and no NVDEC in its driver: {error}", _IN_A_CONTAINER
    return errors, _BY_THE_CPU
