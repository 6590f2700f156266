"""Which encoders there are for a codec, how they are set, and which files hold what they make."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

from cuframes_nb.errors import InvalidArgumentError, UnsupportedError
from cuframes_nb.sinks._av import encoder_named

__all__ = [
    "CODECS",
    "Container",
    "Encoder",
    "candidates",
    "check_codec",
    "container_for",
    "options_for",
]

_QUALITY: Final = 75
"""What is asked for where nobody says: hardly to be told from the original."""


class Container(NamedTuple):
    """A kind of file.

    Each is written so that what is in it can be played at any time, also after this process was
    killed: MP4 and MOV in fragments, each complete in itself (ISO/IEC 14496-12, 8.8), Matroska in
    clusters. A second's worth may be missing then.
    """

    suffix: str
    muxer: str  #: FFmpeg's name
    ticks: int  #: a second's; what it stores times in
    options: Mapping[str, str]
    codecs: tuple[str, ...]  #: what it can hold


_FRAGMENTS: Final = {
    "movflags": "+frag_keyframe+empty_moov+default_base_moof",
    "frag_duration": "1000000",
    "flush_packets": "1",
}
_CLUSTERS: Final = {"cluster_time_limit": "1000", "flush_packets": "1"}

_CONTAINERS: Final = {
    container.suffix: container
    for container in (
        Container(".mp4", "mp4", 90_000, _FRAGMENTS, ("h264", "hevc", "av1")),
        Container(".mov", "mov", 90_000, _FRAGMENTS, ("h264", "hevc")),
        # FFmpeg writes the times of Matroska in milliseconds, whatever it is asked for.
        Container(".mkv", "matroska", 1_000, _CLUSTERS, ("h264", "hevc", "av1", "ffv1")),
    )
}


class Encoder(NamedTuple):
    """An encoder of FFmpeg's.

    All are set to give each frame back at once rather than look ahead: what was recorded is on
    disk, and frames come in the order in which they are shown.
    """

    codec: str
    name: str  #: FFmpeg's
    options: Callable[[int], dict[str, str]]  #: for a quality of 1 to 100
    lossless: bool = False
    any_size: bool = False  #: whether width and height may be odd
    on_gpu: bool = False


def _x264(quality: int) -> dict[str, str]:
    return {"preset": "veryfast", "tune": "zerolatency", "crf": _between(quality, 45, 12)}


def _x265(quality: int) -> dict[str, str]:
    return {
        "preset": "superfast",
        "tune": "zerolatency",
        "crf": _between(quality, 45, 12),
        "x265-params": "log-level=none",
    }


def _svt(quality: int) -> dict[str, str]:
    # It writes twenty lines to stderr for each file otherwise, past every logger.
    os.environ.setdefault("SVT_LOG", "1")
    # Without "low delay" it keeps every frame until the end of a short recording.
    return {
        "preset": "10",
        "crf": _between(quality, 60, 15),
        "svtav1-params": "pred-struct=1:rtc=1",
    }


def _aom(quality: int) -> dict[str, str]:
    return {
        "usage": "realtime",
        "cpu-used": "8",
        "row-mt": "1",
        "lag-in-frames": "0",
        "crf": _between(quality, 60, 15),
    }


def _ffv1(_quality: int) -> dict[str, str]:
    return {"level": "3", "slicecrc": "1"}


def _nvenc(quality: int) -> dict[str, str]:
    return {
        "preset": "p4",
        "tune": "ll",
        "rc": "vbr",
        "cq": _between(quality, 45, 12),
        "zerolatency": "1",
        "delay": "0",
        "bf": "0",
    }


def _between(quality: int, worst: int, best: int) -> str:
    """Return where on an encoder's scale a quality of 1 to 100 lies."""
    return str(round(worst + (best - worst) * (quality - 1) / 99))


_NVENC: Final = Encoder("h264", "h264_nvenc", _nvenc, on_gpu=True)

_ENCODERS: Final = {
    "h264": (Encoder("h264", "libx264", _x264),),
    "hevc": (Encoder("hevc", "libx265", _x265),),
    "av1": (Encoder("av1", "libsvtav1", _svt), Encoder("av1", "libaom-av1", _aom)),
    "ffv1": (Encoder("ffv1", "ffv1", _ffv1, lossless=True, any_size=True),),
}

CODECS: Final = ("auto", *_ENCODERS)


def container_for(path: Path) -> Container:
    """Return the kind of file that a path's suffix says.

    Raises
    ------
    InvalidArgumentError
        If it is not one of those that can be written.
    """
    try:
        return _CONTAINERS[path.suffix.lower()]
    except KeyError:
        raise InvalidArgumentError(
            f"{path.name!r} does not say what kind of film it shall be: its name must end in "
            f"{_either(tuple(_CONTAINERS))}"
        ) from None


def check_codec(codec: object, quality: object, container: Container) -> None:
    """Raise unless such a film can be made here.

    Raises
    ------
    InvalidArgumentError
        If the codec is not known or not for that kind of file, or the quality is none.
    UnsupportedError
        If this FFmpeg has no encoder for it.
    """
    if not isinstance(codec, str) or codec not in CODECS:
        raise InvalidArgumentError(f"codec {codec!r} is not known; use {_either(CODECS)}")
    name = "h264" if codec == "auto" else codec
    if name not in container.codecs:
        others = [kind.suffix for kind in _CONTAINERS.values() if name in kind.codecs]
        raise InvalidArgumentError(
            f"a {container.suffix} file does not hold {name}; write {_either(tuple(others))}, or "
            f"use codec {_either(container.codecs)}"
        )
    if quality is not None:
        if not isinstance(quality, int) or isinstance(quality, bool) or not 1 <= quality <= 100:
            raise InvalidArgumentError(f"quality is {quality!r}; it must be 1 to 100, or None")
        if all(encoder.lossless for encoder in _ENCODERS[name]):
            raise InvalidArgumentError(f"{name} loses nothing, so it has no quality to choose")
    if not candidates(codec, on_gpu=False):
        wanted = " or ".join(encoder.name for encoder in _ENCODERS[name])
        raise UnsupportedError(
            f"this FFmpeg has no encoder for {name} ({wanted}); it has {_either(_available())}"
        )


def candidates(codec: str, *, on_gpu: bool) -> list[Encoder]:
    """Return the encoders of this FFmpeg for a codec, the best first.

    Parameters
    ----------
    on_gpu
        Whether the frames are on a GPU: then ``"auto"`` may encode there. Whether that GPU can is
        known only when the encoder is opened.
    """
    found = list(_ENCODERS["h264" if codec == "auto" else codec])
    if codec == "auto" and on_gpu:
        found.insert(0, _NVENC)
    return [encoder for encoder in found if encoder_named(encoder.name) is not None]


def options_for(encoder: Encoder, quality: int | None) -> dict[str, str]:
    """Return an encoder's options; a quality of None means a good one."""
    return encoder.options(_QUALITY if quality is None else quality)


def _available() -> tuple[str, ...]:
    return tuple(
        f"{codec} ({encoder.name})"
        for codec, encoders in _ENCODERS.items()
        for encoder in encoders
        if encoder_named(encoder.name) is not None
    ) or ("none that is known here",)


def _either(names: tuple[str, ...]) -> str:
    *first, last = (name if " " in name or name.startswith(".") else repr(name) for name in names)
    return f"{', '.join(first)} or {last}" if first else last
