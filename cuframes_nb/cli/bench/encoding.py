"""JPEG of 1080p frames, with the bytes on the host: ours, and what others make."""

from __future__ import annotations

import functools
import importlib.util
import io
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import cuframes_nb as cf
from cuframes_nb import convert
from cuframes_nb._cuda.nvjpeg.painter import Picture
from cuframes_nb._cuda.nvjpeg.pictures import PictureEncoder
from cuframes_nb._viewer.encoders import JpegEncoder
from cuframes_nb._viewer.picture import Scaler
from cuframes_nb.cli.bench.plan import HEIGHT, WIDTH, Plan, Result, Step, percentiles
from cuframes_nb.errors import UnsupportedError
from cuframes_nb.sources import sample_video

__all__ = ["steps"]

_QUALITY: Final = 85
_CAMERAS: Final = 8
_WHOLE: Final = (0, 0, WIDTH, HEIGHT)

_Encode: TypeAlias = Callable[[], Any]
"""Encodes one frame; returns its bytes, in host memory."""


class _Contender(NamedTuple):
    """Something that makes JPEG."""

    name: str
    module: str  #: that it needs
    prepare: Callable[[cf.Frame], _Encode]  #: on the thread that encodes


def steps(plan: Plan) -> list[Step]:
    """Return the measurements of encoding, for each that is installed."""
    return [
        (f"encoding by {contender.name}", functools.partial(_measure, plan, contender))
        for contender in _contenders(plan)
    ]


def _measure(plan: Plan, contender: _Contender) -> list[Result]:
    """Encode a film's frame, the same with noise, and eight frames side by side."""
    rows = []
    for content, rgb in _contents().items():
        with plan.publisher() as publisher, cf.subscribe(publisher.key) as subscriber:
            _publish(publisher, rgb)
            with subscriber.next(10) as frame:
                try:
                    row = _alone(plan, contender, frame)
                except UnsupportedError as error:
                    return [{"encoder": contender.name, "content": str(error)}]
                row |= {f"{_CAMERAS} cameras fps": _side_by_side(plan, contender, frame)}
                rows.append({"encoder": contender.name, "content": content, **row})
    return rows


def _alone(plan: Plan, contender: _Contender, frame: cf.Frame) -> Result:
    encode = contender.prepare(frame)
    nbytes = {len(encode()) for _ in range(5)}
    taken = []
    for _ in range(20 if plan.quick else 150):
        start = time.perf_counter_ns()
        encode()
        taken.append(time.perf_counter_ns() - start)
    return {**percentiles(taken, "time"), "bytes": max(nbytes)}


def _side_by_side(plan: Plan, contender: _Contender, frame: cf.Frame) -> float:
    """Return how many frames a second threads encode together, each one for itself."""
    stop, ready = threading.Event(), threading.Barrier(_CAMERAS + 1)
    counts = [0] * _CAMERAS

    def work(i: int) -> None:
        encode = contender.prepare(frame)
        encode()
        ready.wait(60)
        while not stop.is_set():
            encode()
            counts[i] += 1

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(_CAMERAS)]
    for thread in threads:
        thread.start()
    ready.wait(60)
    start = time.perf_counter()
    time.sleep(0.3 if plan.quick else 1.0)
    total, seconds = sum(counts), time.perf_counter() - start
    stop.set()
    for thread in threads:
        thread.join()
    return total / seconds


# --- What encodes ---------------------------------------------------------------------------------


def _contenders(plan: Plan) -> Iterator[_Contender]:
    """Yield ours and those of others that are installed."""
    known = [
        _Contender("cuframes_nb, on the CPU", "simplejpeg", _ours),
        _Contender("simplejpeg, planes", "simplejpeg", _simplejpeg),
        _Contender("OpenCV", "cv2", _opencv),
        _Contender("Pillow", "PIL", _pillow),
    ]
    if plan.memory == "cuda":
        known[0] = _Contender("cuframes_nb, nvJPEG", "cupy", _ours_on_gpu)
        known.append(_Contender("nvImageCodec", "nvidia.nvimgcodec", _nvimagecodec))
    return (each for each in known if _is_installed(each.module))


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # not even the package that it is in
        return False


def _ours_on_gpu(frame: cf.Frame) -> _Encode:
    encoder = PictureEncoder(int(frame.device.removeprefix("cuda:")))

    def encode() -> bytes:
        picture = Picture(
            frame.planes, frame.format, frame.color, _WHOLE, _WHOLE[2:], is_queued=False
        )
        return encoder.encode(picture, _QUALITY)

    return encode


def _ours(frame: cf.Frame) -> _Encode:
    encoder, scaler = JpegEncoder(), Scaler()
    return lambda: encoder.encode(scaler.frame(frame, _WHOLE, _WHOLE[2:]), _QUALITY)


def _simplejpeg(frame: cf.Frame) -> _Encode:
    """Return what encodes the planes as they are, so with colours that are a little off."""
    import simplejpeg

    def encode() -> Any:
        luma, chroma = (_host(plane) for plane in frame.planes)
        blue, red = (np.ascontiguousarray(chroma[..., i]) for i in range(2))
        return simplejpeg.encode_jpeg_yuv_planes(
            np.ascontiguousarray(luma), blue, red, quality=_QUALITY, fastdct=True
        )

    return encode


def _opencv(frame: cf.Frame) -> _Encode:
    import cv2  # type: ignore[import-not-found,unused-ignore]  # one of those that may be there

    def encode() -> Any:
        bgr = cv2.cvtColor(_host(frame.rgb()), cv2.COLOR_RGB2BGR)
        return cv2.imencode(".jpg", bgr, [cv2.IMWRITE_JPEG_QUALITY, _QUALITY])[1]

    return encode


def _pillow(frame: cf.Frame) -> _Encode:
    from PIL import Image

    def encode() -> bytes:
        file = io.BytesIO()
        Image.fromarray(_host(frame.rgb())).save(file, "jpeg", quality=_QUALITY)
        return file.getvalue()

    return encode


def _nvimagecodec(frame: cf.Frame) -> _Encode:
    try:
        from nvidia import nvimgcodec

        encoder = nvimgcodec.Encoder(max_num_cpu_threads=1)
    except (ImportError, RuntimeError) as error:
        raise UnsupportedError(f"not used: {error}") from error
    how = nvimgcodec.EncodeParams(
        quality_type=nvimgcodec.QualityType.QUALITY,
        quality_value=_QUALITY,
        chroma_subsampling=nvimgcodec.ChromaSubsampling.CSS_420,
    )
    stream = frame.xp.cuda.Stream(non_blocking=True)

    def encode() -> bytes:
        with stream:
            image = nvimgcodec.as_image(frame.rgb(), stream.ptr)
            data = encoder.encode(image, "jpeg", params=how, cuda_stream=stream.ptr)
            return bytes(memoryview(data))

    return encode


# --- What is encoded ------------------------------------------------------------------------------


@functools.cache
def _contents() -> dict[str, NDArray[np.uint8]]:
    rgb = _film_frame()
    name = "frame of a film"
    if rgb is None:
        name, rgb = "waves", _waves()
    noise = np.random.default_rng(1).normal(0, 12, rgb.shape)
    return {name: rgb, f"{name}, noise": (rgb + noise).clip(0, 255).astype(np.uint8)}


def _film_frame() -> NDArray[np.uint8] | None:
    film = sample_video()
    if film is None or importlib.util.find_spec("av") is None:
        return None
    import av

    with av.open(str(film)) as container:
        picture = next(container.decode(video=0))
    return np.asarray(picture.to_ndarray(format="rgb24", width=WIDTH, height=HEIGHT))


def _waves() -> NDArray[np.uint8]:
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    rgb = [128 + 90 * np.sin(x / (40 + 9 * i) + y / (70 - 9 * i)) for i in range(3)]
    return np.stack(rgb, -1).astype(np.uint8)


def _publish(publisher: cf.Publisher, rgb: NDArray[np.uint8]) -> None:
    with publisher.acquire() as slot:
        pixels = publisher.xp.asarray(rgb)
        convert.from_rgb(pixels, slot.planes, publisher.layout.format, publisher.color)


def _host(array: Any) -> NDArray[Any]:
    return np.asarray(array.get() if hasattr(array, "get") else array)
