"""Films for tests, made by PyAV: small, strange, or broken.

::

    film = make_film(tmp_path / "film.mp4", 66, 50, frames=3, color={"color_range": 2})
    film = make_film(tmp_path / "film.mkv", codec="ffv1", pix_fmt="yuv420p10le", rotation=90)
    film = cut(make_film(tmp_path / "film.ts"), 0.5)
"""

from fractions import Fraction
from types import SimpleNamespace

import av
import numpy as np

from cuframes_nb.sources import Pattern

__all__ = [
    "audio_film",
    "cut",
    "joined",
    "make_film",
    "picture",
    "stamped_film",
    "stamped_jpegs",
    "streams_film",
]

_OPTIONS = {
    "libx264": {"preset": "ultrafast", "crf": "18"},
    "libx265": {"preset": "ultrafast", "x265-params": "log-level=none"},
}
"""Options of encoders that are slow or talk by default."""


def picture(width, height, number):
    """Return RGB that differs from number to number, with white in its top left corner."""
    x, y = (np.arange(length).astype(np.uint8) for length in (width, height))
    rgb = np.empty((height, width, 3), np.uint8)
    rgb[..., 0] = x + 2 * y[:, None]
    rgb[..., 1] = 3 * y[:, None]
    rgb[..., 2] = 255 - 2 * x
    rgb += np.uint8(32 * number % 256)
    rgb[: max(1, height // 4), : max(1, width // 4)] = 255
    return rgb


def make_film(
    path,
    width=64,
    height=48,
    *,
    frames=3,
    codec="libx264",
    pix_fmt="yuv420p",
    fps=25,
    key_every=12,
    options=None,
    color=None,
    rotation=0,
    times_ms=None,
    first=0,
    movflags="",
):
    """Write a film of `picture`, whose container is told by its name; return `path`.

    Parameters
    ----------
    codec, pix_fmt, fps, key_every, options
        The encoder's.
    color
        Its tags, by PyAV's names: ``colorspace``, ``color_range``, ``color_primaries``,
        ``color_trc``.
    rotation
        Degrees that players turn it by, anticlockwise; or the nine numbers of MP4's matrix.
    times_ms
        When each frame is shown, for a film without a fixed rate.
    first
        Number of the first picture.
    movflags
        As FFmpeg's MP4 muxer has them.
    """
    with av.open(str(path), "w", options={"movflags": movflags} if movflags else {}) as container:
        stream = _add_stream(container, codec, (width, height), pix_fmt, fps=fps, options=options)
        stream.codec_context.gop_size = key_every
        for name, value in (color or {}).items():
            setattr(stream.codec_context, name, value)
        if isinstance(rotation, int):
            stream.set_display_rotation(rotation)
        else:
            stream.set_display_matrix(rotation)
        if times_ms:
            stream.codec_context.time_base = Fraction(1, 1000)
        for number in range(frames if times_ms is None else len(times_ms)):
            frame = _frame(width, height, first + number, pix_fmt)
            if times_ms:
                frame.pts, frame.time_base = times_ms[number], Fraction(1, 1000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def streams_film(path, sizes, *, frames=3):
    """Write a film with a video stream of each of these sizes; return `path`."""
    with av.open(str(path), "w") as container:
        streams = [_add_stream(container, "libx264", size, "yuv420p") for size in sizes]
        for number in range(frames):
            for stream in streams:
                frame = _frame(stream.width, stream.height, number, "yuv420p")
                container.mux(stream.encode(frame))
        for stream in streams:
            container.mux(stream.encode())
    return path


def audio_film(path):
    """Write a tenth of a second of silence without a picture; return `path`."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("aac", rate=48000, layout="mono")
        for at in range(0, 4800, 1024):
            frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
            frame.sample_rate, frame.pts, frame.time_base = 48000, at, Fraction(1, 48000)
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def joined(path, parts):
    """Write the bytes of files one after another, as byte streams allow; return `path`."""
    path.write_bytes(b"".join(part.read_bytes() for part in parts))
    return path


def cut(path, share):
    """Leave the first `share` of a file's bytes; return `path`."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])
    return path


def stamped_film(path, *, frames=1500, width=320, height=192, fps=25, key_every=5):
    """Make an H.264 film of the `Pattern`, whose frames say their number, for `RtspServer`."""
    options = {"preset": "ultrafast", "crf": "20"}
    with av.open(str(path), "w") as container:
        stream = _add_stream(
            container, "libx264", (width, height), "yuv420p", fps=fps, options=options
        )
        stream.codec_context.gop_size = key_every
        for frame in _pattern_frames(width, height, frames):
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return path


def stamped_jpegs(count=250, *, width=320, height=192):
    """Return JPEG pictures of the `Pattern`, each of which says its number, for `HttpCamera`."""
    encoder = av.CodecContext.create("mjpeg", "w")
    encoder.width, encoder.height, encoder.pix_fmt = width, height, "yuvj420p"
    encoder.time_base = Fraction(1, 25)
    frames = _pattern_frames(width, height, count)
    return [bytes(packet) for frame in frames for packet in encoder.encode(frame)]


def _add_stream(container, codec, size, pix_fmt, *, fps=25, options=None):
    stream = container.add_stream(codec, rate=fps, options=options or _OPTIONS.get(codec, {}))
    stream.width, stream.height = size
    stream.pix_fmt = pix_fmt
    return stream


def _frame(width, height, number, pix_fmt):
    frame = av.VideoFrame.from_ndarray(picture(width, height, number))
    return frame if pix_fmt == "rgb24" else frame.reformat(format=pix_fmt)


def _pattern_frames(width, height, count):
    """Yield PyAV's NV12 frames of a `Pattern`: `read_stamp` of their luma says their number."""
    pattern = Pattern(width, height)
    for number in range(count):
        luma = np.empty((height, width), np.uint8)
        chroma = np.empty((height // 2, width // 2, 2), np.uint8)
        pattern.write(SimpleNamespace(xp=np, planes=[luma, chroma]), number)
        rows = np.vstack([luma, chroma.reshape(height // 2, width)])
        yield av.VideoFrame.from_ndarray(rows, format="nv12")
