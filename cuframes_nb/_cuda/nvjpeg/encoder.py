"""Planes in GPU memory to the bytes of a JPEG, by nvJPEG."""

from __future__ import annotations

import contextlib
import ctypes
from typing import Any, Final

from cuframes_nb._cuda.nvjpeg.binding import Image, Library
from cuframes_nb._cuda.nvjpeg.painter import Canvas
from cuframes_nb.errors import ClosedError

__all__ = ["PlaneEncoder"]

_HALF_CHROMA: Final = 2  # NVJPEG_CSS_420, nvjpeg.h

_new_bytes: Final = ctypes.pythonapi.PyBytes_FromStringAndSize
_new_bytes.argtypes, _new_bytes.restype = (ctypes.c_char_p, ctypes.c_ssize_t), ctypes.py_object
_address_of: Final = ctypes.pythonapi.PyBytes_AsString
_address_of.argtypes, _address_of.restype = (ctypes.py_object,), ctypes.c_void_p


class PlaneEncoder:
    """Encodes planes with chroma of half the size; for one thread at a time.

    Owns a state and parameters of the library's, and destroys each once. The GPU's primary context
    must be current in every call, also in `close`.

    Parameters
    ----------
    library, handle
        nvJPEG, and its handle for the GPU.
    stream
        CuPy's, on which all is queued.

    Raises
    ------
    CuframesError
        If the library does not give what is needed; nothing remains.
    """

    def __init__(self, library: Library, handle: ctypes.c_void_p, stream: Any) -> None:
        self._library = library
        self._handle = handle
        self._stream = stream
        self._quality = 0
        self._state, self._params = ctypes.c_void_p(), ctypes.c_void_p()
        with contextlib.ExitStack() as undo:
            self._make(undo)
            self._undo: contextlib.ExitStack | None = undo.pop_all()

    def encode(self, canvas: Canvas, quality: int) -> bytes:
        """Return planes as JPEG, once all that is queued on the stream is done.

        Parameters
        ----------
        canvas
            BT.601, full range.
        quality
            1 to 100.

        Raises
        ------
        ClosedError
            After `close`.
        UnsupportedError, DeviceError
            If nvJPEG does not do it; says why.
        """
        if self._undo is None:
            raise ClosedError("the JPEG encoder was closed: make another")
        if quality != self._quality:
            self._set("Quality", quality)
            self._quality = quality
        image = Image()
        for i, (address, pitch) in enumerate(zip(canvas.addresses, canvas.pitches, strict=True)):
            image.channel[i], image.pitch[i] = address, pitch
        self._library.call(
            "nvjpegEncodeYUV", self._handle, self._state, self._params, ctypes.byref(image),
            _HALF_CHROMA, *canvas.size, self._stream.ptr,
        )  # fmt: skip
        return self._bitstream()

    def close(self) -> None:
        """Destroy everything, once, the last made first."""
        undo, self._undo = self._undo, None
        if undo is not None:
            undo.close()

    def _make(self, undo: contextlib.ExitStack) -> None:
        """Create what is needed, and register how it is destroyed."""
        library, handle, stream = self._library, self._handle, self._stream.ptr
        for kind, made in (("State", self._state), ("Params", self._params)):
            library.call(f"nvjpegEncoder{kind}Create", handle, ctypes.byref(made), stream)
            undo.callback(library.call, f"nvjpegEncoder{kind}Destroy", made)
        self._set("SamplingFactors", _HALF_CHROMA)
        self._set("OptimizedHuffman", 1)  # 5 to 14 % fewer bytes, for 0.1 ms

    def _set(self, what: str, value: int) -> None:
        self._library.call(f"nvjpegEncoderParamsSet{what}", self._params, value, self._stream.ptr)

    def _bitstream(self) -> bytes:
        """Return what was encoded, copied once: into an object that nobody has seen yet."""
        length = ctypes.c_size_t()
        self._retrieve(None, length)
        data: bytes = _new_bytes(None, length.value)
        self._retrieve(_address_of(data), length)
        self._stream.synchronize()
        return data

    def _retrieve(self, address: int | None, length: ctypes.c_size_t) -> None:
        """Have the bytes copied to an address; without one, `length` becomes how many they are."""
        self._library.call(
            "nvjpegEncodeRetrieveBitstream", self._handle, self._state, address,
            ctypes.byref(length), self._stream.ptr,
        )  # fmt: skip
