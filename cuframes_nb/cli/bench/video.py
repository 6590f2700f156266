"""Decoding and publishing beside decoding alone; recording beside encoding alone."""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import cuframes_nb as cf
from cuframes_nb.cli.bench.plan import Plan, Result, Step, new_key
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.sources import VideoFile, play, sample_video

__all__ = ["steps"]

_AT_ONCE: Final = (4, 16)
"""Films in one process."""
_LONGER: Final = 16
"""Times that a GPU decodes the film in one go: opening its decoder takes as long as 100 frames."""
_ENCODING: Final = {"preset": "superfast", "crf": "20"}
"""libx264's; what is recorded is measured against the same."""


class _Speed(NamedTuple):
    """What something came to."""

    frames_per_s: float
    cpu_ms: float  #: of all cores, a frame


def steps(plan: Plan) -> list[Step]:
    """Return the measurements of video; none where there is no PyAV, or no film."""
    film = sample_video()
    try:
        import av  # noqa: F401
    except ImportError:
        return []
    if film is None:
        return []
    work: list[Step] = [
        (f"decoding {height} lines", functools.partial(_decoding, plan, film, height))
        for height in ((720,) if plan.quick else (720, 1080))
    ]
    work += [
        (f"decoding {count} films", functools.partial(_at_once, plan, film, count))
        for count in (() if plan.quick else _AT_ONCE)
    ]
    return [*work, ("recording", functools.partial(_recording, plan, film))]


def _decoding(plan: Plan, film: Path, height: int) -> list[Result]:
    """Play a film as fast as it goes."""
    with _in_height(film, height) as path:
        return _compared(plan, f"{height}p H.264", path, 1)


def _at_once(plan: Plan, film: Path, count: int) -> list[Result]:
    """Play several films in one process."""
    return _compared(plan, f"720p H.264, {count} at once", film, count)


def _compared(plan: Plan, name: str, path: Path, count: int) -> list[Result]:
    """Measure decoding alone and with publishing; on a GPU, by its decoder, too."""
    ways: dict[str, Callable[[], int]] = {
        "decoded alone": functools.partial(_decode_alone, path, count),
        "decoded to NumPy arrays": functools.partial(_decode_alone, path, count, arrays=True),
        "decoded and published": functools.partial(_publish, plan, path, count, "cpu"),
    }
    rows = _rows(name, _in_turns(ways, plan))
    if plan.memory == "cuda":
        with _in_length(path, max(1, _LONGER // count)) as longer:
            rows += _rows(name, _in_turns(_on_gpu(plan, longer, count), plan, 3))
    return rows


def _on_gpu(plan: Plan, path: Path, count: int) -> dict[str, Callable[[], int]]:
    ways: dict[str, Callable[[], int]] = {}
    if importlib.util.find_spec("PyNvVideoCodec"):
        ways["decoded alone by PyNvVideoCodec"] = functools.partial(
            _together, functools.partial(_pynvvideocodec, path), count
        )
    return ways | {
        "decoded alone by FFmpeg's NVDEC": functools.partial(_nvdec_alone, plan, path, count),
        "decoded by NVDEC and published": functools.partial(_publish, plan, path, count, "gpu"),
    }


def _pynvvideocodec(path: Path) -> int:
    import PyNvVideoCodec as codec  # noqa: N813  a package named like a class

    demuxer = codec.CreateDemuxer(filename=str(path))
    decoder = codec.CreateDecoder(gpuid=0, codec=demuxer.GetNvCodecId(), usedevicememory=True)
    return sum(len(decoder.Decode(packet)) for packet in demuxer)


def _nvdec_alone(plan: Plan, path: Path, count: int) -> int:
    def decode() -> int:
        film = VideoFile(path, decoder="gpu")
        with film.publisher(new_key(), memory=plan.memory) as publisher:
            film.prepare(publisher)
            return sum(1 for _ in film.frames())

    return _together(decode, count)


def _in_turns(
    ways: Mapping[str, Callable[[], int]], plan: Plan, turns: int = 9
) -> dict[str, list[_Speed]]:
    """Measure each in turn, so that whatever else the machine does hits all of them."""
    measured: dict[str, list[_Speed]] = {way: [] for way in ways}
    for turn in range(1 + (1 if plan.quick else turns)):
        for way, act in ways.items():
            wall, cpu = time.perf_counter(), time.process_time()
            frames = act()
            speed = _Speed(
                frames / (time.perf_counter() - wall), (time.process_time() - cpu) / frames * 1e3
            )
            if turn:  # the first warms up
                measured[way].append(speed)
    return measured


def _rows(name: str, measured: dict[str, list[_Speed]]) -> list[Result]:
    alone = next(iter(measured.values()))
    return [
        {
            "video": f"{name}, {way}",
            "frames_per_s": round(statistics.median(s.frames_per_s for s in speeds), 1),
            "cpu_ms_a_frame": round(statistics.median(s.cpu_ms for s in speeds), 2),
            "speed_percent": round(
                100 * statistics.median(
                    ours.frames_per_s / theirs.frames_per_s
                    for ours, theirs in zip(speeds, alone, strict=True)
                ), 1,
            ),
        }
        for way, speeds in measured.items()
    ]  # fmt: skip


def _decode_alone(path: Path, count: int, *, arrays: bool = False) -> int:
    """Decode without looking at a pixel; with `arrays`, have them in one array, as PyAV does it."""

    def decode() -> int:
        frames = 0
        for frame in _frames(path):
            if arrays:
                frame.to_ndarray()
            frames += 1
        return frames

    return _together(decode, count)


def _publish(plan: Plan, path: Path, count: int, decoder: str) -> int:
    def publish() -> int:
        film = VideoFile(path, decoder=decoder)
        with film.publisher(new_key(), memory=plan.memory) as publisher:
            return play(film, publisher, fast=True)

    return _together(publish, count)


def _together(act: Callable[[], int], count: int) -> int:
    """Do it so many times at once, each on a thread; return the sum."""
    done: list[int] = []
    threads = [threading.Thread(target=lambda: done.append(act())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if len(done) < count:
        raise UnsupportedError("a film could not be played; its thread said why")
    return sum(done)


def _recording(plan: Plan, film: Path) -> list[Result]:
    """Record 720p as fast as it can be published without a frame lost."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "film.mkv"
        ways = {
            "encoded alone": functools.partial(_encode_alone, film, out),
            "decoded, published and recorded": functools.partial(_record, plan, film, out),
        }
        return _rows("720p to H.264", _in_turns(ways, plan))


def _encode_alone(film: Path, out: Path) -> int:
    """Decode and encode, without a stream between."""
    frames = 0
    with _film(out, 1280, 720) as encode:
        for frame in _frames(film):
            encode(frame)
            frames += 1
    return frames


def _record(plan: Plan, film: Path, out: Path) -> int:
    source = VideoFile(film)
    with source.publisher(new_key(), memory=plan.memory, policy="strict-wait") as publisher:
        subscriber = cf.subscribe(publisher.key, mode="strict", reconnect=False)
        with subscriber, cf.Recording(subscriber, out, codec="h264") as recording:
            published = play(source, publisher, fast=True)
            publisher.close()
            recording.wait(60)
            info = recording.info
    if info.frames != published:
        raise UnsupportedError(f"of {published} frames {info.frames} were recorded")
    return published


@contextlib.contextmanager
def _in_height(film: Path, height: int) -> Iterator[Path]:
    """Yield the film in so many lines; the sample itself has 720."""
    if height == 720:
        yield film
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mp4"
        width = height * 16 // 9
        with _film(path, width, height) as encode:
            for frame in _frames(film):
                encode(frame.reformat(width, height))
        yield path


@contextlib.contextmanager
def _in_length(film: Path, times: int) -> Iterator[Path]:
    """Yield the film so many times as long."""
    import av

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "film.mkv"
        with av.open(str(film)) as reader, av.open(str(path), "w") as writer:
            source = reader.streams.video[0]
            target = writer.add_stream_from_template(source)
            before = end = 0
            for _ in range(times):
                reader.seek(0)
                for packet in reader.demux(source):
                    if packet.pts is None or packet.dts is None:
                        continue
                    end = max(end, before + packet.pts + (packet.duration or 0))
                    packet.pts, packet.dts = before + packet.pts, before + packet.dts
                    packet.stream = target
                    writer.mux(packet)
                before = end
        yield path


@contextlib.contextmanager
def _film(path: Path, width: int, height: int) -> Iterator[Callable[[Any], None]]:
    """Yield what encodes a frame into a film."""
    import av

    with av.open(str(path), "w") as container:
        stream = container.add_stream("libx264", rate=25, options=_ENCODING)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.thread_type = "AUTO"
        yield lambda frame: container.mux(stream.encode(frame))
        container.mux(stream.encode())


def _frames(film: Path, **options: Any) -> Iterator[Any]:
    import av

    with av.open(str(film), **options) as container:
        stream = container.streams.video[0]
        stream.thread_type = "SLICE" if options else "AUTO"
        for frame in container.decode(stream):
            frame.pict_type = 0  # which the decoder sets, and the encoder would take for an order
            yield frame
