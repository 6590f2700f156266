"""Decoding on a GPU: FFmpeg's NVDEC, and the copy from its surfaces into slots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, Self

import numpy as np

from cuframes_nb._api.pyav import import_av
from cuframes_nb._api.slot import WritableSlot
from cuframes_nb._cuda.devices import activated
from cuframes_nb.errors import InvalidArgumentError, UnsupportedError

__all__ = ["DECODERS", "Coded", "Nvdec", "check_decoder"]

DECODERS: Final = ("auto", "gpu", "cpu")

_GIVES: Final = {
    "yuv420p": "nv12",
    "yuvj420p": "nv12",
    "nv12": "nv12",
    "yuv420p10le": "p010",
    "p010le": "p010",
}
"""What NVDEC gives for what the CPU's decoders give. It has more formats, which no slot has."""

_THREADS: Final = 4
"""Of FFmpeg, each with a frame: one after the other, a decoder would wait for who takes them."""


class Coded(NamedTuple):
    """What a video is, as far as it matters to a decoder."""

    codec: Any  #: PyAV's
    format: str  #: FFmpeg's name of what the CPU's decoder gives
    width: int
    height: int

    @classmethod
    def of(cls, stream: Any, frame: Any) -> Self:
        """Return what a stream holds, of which the CPU decoded a frame."""
        return cls(stream.codec_context.codec, frame.format.name, frame.width, frame.height)


class Nvdec:
    """The video decoder of one GPU, for one source.

    FFmpeg copies what NVDEC gives into memory of its own, on its stream, and takes that memory
    again when a frame is gone. Slots are written on the same stream: nothing has to wait.

    Parameters
    ----------
    device
        Where a publisher has its frames, ``"cuda:0"``.
    coded
        The video.

    Raises
    ------
    UnsupportedError
        If it cannot be decoded there; it says why.
    """

    def __init__(self, device: str, coded: Coded) -> None:
        place, _, ordinal = device.partition(":")
        if place != "cuda":
            raise UnsupportedError("the frames are published in host memory")
        self.name = f"NVDEC of {device}"
        self._ordinal = int(ordinal)
        _check_fits(coded)
        self._try(coded.codec)

    def open(self, path: str, **options: Any) -> Any:
        """Return ``av.open``'s container, whose video is decoded here as far as the GPU can."""
        with self._accel() as accel:
            return import_av().open(path, hwaccel=accel, **options)

    @staticmethod
    def set_up(stream: Any) -> None:
        """Have a film, which was not decoded yet, decoded ahead of who takes its frames."""
        stream.thread_type = "FRAME"
        stream.codec_context.thread_count = _THREADS

    @staticmethod
    def has(frame: Any) -> bool:
        """Whether a frame is on a GPU."""
        return bool(frame.format.name == "cuda")

    def check(self, frame: Any) -> None:
        """Refuse a frame that FFmpeg decoded on the CPU after all.

        Raises
        ------
        UnsupportedError
            If it is not on a GPU.
        """
        if not self.has(frame):
            raise UnsupportedError(f"FFmpeg does not decode it by {self.name}")

    @staticmethod
    def format_of(frame: Any) -> str:
        """Return the pixel format of a frame on a GPU.

        Raises
        ------
        UnsupportedError
            If no slot has it: the video changed to it, as NVDEC was tried on what it was before.
        """
        name = frame.sw_format.name
        if name not in _GIVES:
            raise UnsupportedError(
                f"the video went on as {name}, for which decoder='cpu' is needed"
            )
        return _GIVES[name]

    def copy(self, slot: WritableSlot, frame: Any, turns: int) -> None:
        """Copy a frame into a slot, turned anticlockwise by so many quarters: once, on the device.

        The current stream waits for it, and the host does not.
        """
        import cupy

        with activated(self._ordinal):
            current = cupy.cuda.get_current_stream()
            # FFmpeg's stream: the frame is there when what it queued is done.
            with cupy.cuda.Stream.null as stream:
                for target, plane in zip(slot.planes, frame.planes, strict=True):
                    if turns:
                        target[...] = np.rot90(self._array(frame, plane, target, turns), turns)
                    else:
                        _copy(target, plane, stream)
                copied = cupy.cuda.Event(disable_timing=True)
                copied.record(stream)
            current.wait_event(copied)

    @contextlib.contextmanager
    def _accel(self) -> Iterator[Any]:
        """Yield what tells FFmpeg to use the context that is current, which is CuPy's.

        It would open the GPU's primary one itself, and refuses where others opened it before.
        """
        from av.codec.hwaccel import HWAccel

        with activated(self._ordinal):
            yield HWAccel(
                "cuda",
                device=str(self._ordinal),
                is_hw_owned=True,
                options={"primary_ctx": "0", "current_ctx": "1"},
            )

    def _array(self, frame: Any, plane: Any, target: Any, turns: int) -> Any:
        """Return a plane of a frame that is to be turned as an array."""
        import cupy

        # Not by DLPack: PyAV's wants the host to wait before, and halves odd widths downwards.
        memory = cupy.cuda.UnownedMemory(plane.buffer_ptr, plane.buffer_size, frame, self._ordinal)
        rows, columns, *components = target.shape
        shape = (columns, rows, *components) if turns % 2 else target.shape
        strides = (plane.line_size, *target.strides[1:])
        return cupy.ndarray(shape, target.dtype, cupy.cuda.MemoryPointer(memory, 0), strides)

    def _try(self, codec: Any) -> None:
        """Open the GPU's decoder, as far as that can be done without a video."""
        try:
            with self._accel() as accel:
                accel.create(codec)
        except TypeError:
            raise UnsupportedError("PyAV 18 or later is needed for NVDEC") from None
        except (import_av().error.FFmpegError, NotImplementedError, ValueError) as error:
            says = getattr(error, "strerror", None) or error
            raise UnsupportedError(f"FFmpeg cannot open {self.name}: {says}") from None


def _copy(target: Any, plane: Any, stream: Any) -> None:
    """Queue the copy of a plane: half the time of an assignment between arrays."""
    from cupy.cuda import runtime

    rows, pitch = target.shape[0], target.strides[0]
    width = target.nbytes // rows
    runtime.memcpy2DAsync(
        target.data.ptr, pitch, plane.buffer_ptr, plane.line_size, width, rows,
        runtime.memcpyDeviceToDevice, stream.ptr,
    )  # fmt: skip


def check_decoder(decoder: str) -> None:
    """Refuse what is not the name of a way to decode."""
    if decoder not in DECODERS:
        raise InvalidArgumentError(f"decoder is {decoder!r}; use one of {', '.join(DECODERS)}")


def _check_fits(coded: Coded) -> None:
    if coded.format not in _GIVES:
        raise UnsupportedError(f"what NVDEC makes of {coded.format} is no format of a slot")
    if coded.width % 2 or coded.height % 2:
        raise UnsupportedError(f"NVDEC cuts odd sizes, and this is {coded.width}x{coded.height}")
