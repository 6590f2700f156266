"""nvJPEG's functions, and one place where their results are looked at."""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable
from typing import Any, Final

from cuframes_nb.errors import CuframesError, DeviceError, UnsupportedError

__all__ = ["Image", "Library", "find", "handle", "load"]

_INSTALL: Final = "install 'cuframes-nb[cuda13]' (or cuda12)"

_POINTER: Final = ctypes.c_void_p
_INT: Final = ctypes.c_int

_FUNCTIONS: Final[dict[str, tuple[Any, ...]]] = {
    "nvjpegCreateSimple": (_POINTER,),
    "nvjpegGetProperty": (_INT, _POINTER),
    "nvjpegEncoderStateCreate": (_POINTER,) * 3,
    "nvjpegEncoderStateDestroy": (_POINTER,),
    "nvjpegEncoderParamsCreate": (_POINTER,) * 3,
    "nvjpegEncoderParamsDestroy": (_POINTER,),
    "nvjpegEncoderParamsSetOptimizedHuffman": (_POINTER, _INT, _POINTER),
    "nvjpegEncoderParamsSetQuality": (_POINTER, _INT, _POINTER),
    "nvjpegEncoderParamsSetSamplingFactors": (_POINTER, _INT, _POINTER),
    "nvjpegEncodeYUV": (*(_POINTER,) * 4, *(_INT,) * 3, _POINTER),
    "nvjpegEncodeRetrieveBitstream": (_POINTER,) * 5,
}
"""What the functions take: nvjpeg.h of CUDA 12 and 13. All return a status."""

_STATUSES: Final = {
    1: "NOT_INITIALIZED", 2: "INVALID_PARAMETER", 3: "BAD_JPEG", 4: "JPEG_NOT_SUPPORTED",
    5: "ALLOCATOR_FAILURE", 6: "EXECUTION_FAILED", 7: "ARCH_MISMATCH", 8: "INTERNAL_ERROR",
    9: "IMPLEMENTATION_NOT_SUPPORTED", 10: "INCOMPLETE_BITSTREAM",
}  # fmt: skip

_ADVICE: Final = {
    1: "the GPU's context is gone: start the process anew",
    5: "there is not enough memory on the GPU, or none that is pinned: free some",
    6: "the GPU did not do the work: look for what failed on it before",
    7: "it was built for other GPUs: update it to the one of the newest CUDA that your driver runs",
    9: "this nvJPEG cannot do it: update it",
}
_UNSUPPORTED: Final = frozenset({4, 7, 9})

_making = threading.Lock()


class Image(ctypes.Structure):
    """``nvjpegImage_t``: addresses in GPU memory, and bytes from row to row."""

    _fields_ = (("channel", _POINTER * 4), ("pitch", ctypes.c_size_t * 4))


class Library:
    """The functions of one nvJPEG.

    Parameters
    ----------
    functions
        Has them as attributes: a ``ctypes.CDLL``.
    path
        Where it is from, for people.

    Raises
    ------
    UnsupportedError
        If a function is missing.
    """

    def __init__(self, functions: Any, path: str) -> None:
        self.path = path
        self._functions: dict[str, Callable[..., int]] = {}
        for name, arguments in _FUNCTIONS.items():
            try:
                function = getattr(functions, name)
            except AttributeError:
                raise UnsupportedError(f"{path} has no {name}, it is too old: {_INSTALL}") from None
            function.argtypes, function.restype = arguments, _INT
            self._functions[name] = function

    @property
    def version(self) -> str:
        """The library's version, e.g. ``"13.3.2"``."""
        numbers = []
        for which in range(3):  # MAJOR_VERSION, MINOR_VERSION, PATCH_LEVEL (library_types.h)
            number = ctypes.c_int()
            self.call("nvjpegGetProperty", which, ctypes.byref(number))
            numbers.append(str(number.value))
        return ".".join(numbers)

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function.

        Raises
        ------
        UnsupportedError
            If it says that it cannot do this.
        DeviceError
            If it failed.
        """
        status = self.status(name, *arguments)
        if status:
            raise self.error(name, status)

    def status(self, name: str, *arguments: Any) -> int:
        """Call a function and return its status, 0 for success."""
        return self._functions[name](*arguments)

    def error(self, name: str, status: int) -> CuframesError:
        """Return the error for a function that returned `status`."""
        kind = UnsupportedError if status in _UNSUPPORTED else DeviceError
        said = f"NVJPEG_STATUS_{_STATUSES[status]}" if status in _STATUSES else "an unknown status"
        advice = _ADVICE.get(status, "nothing was encoded")
        return kind(f"{name} of {self.path} failed with {said} ({status}): {advice}")


@functools.cache
def load() -> Library:
    """Return the library of this process; it is looked for once, if it is found.

    Raises
    ------
    UnsupportedError
        If there is none that can be used; says what to install.
    """
    path = find()
    try:
        return Library(ctypes.CDLL(path), path)
    except OSError as error:
        raise UnsupportedError(f"nvJPEG cannot be loaded ({error}): {_INSTALL}") from error


def handle(ordinal: int) -> ctypes.c_void_p:
    """Return the library's handle for a GPU, whose primary context must be current.

    There is one for each GPU for the life of the process, like the context: to make one takes a
    quarter of a second. Any number of threads may use it, each with a state of its own.

    Raises
    ------
    CuframesError
        If it cannot be made; the next call tries again.
    """
    with _making:
        return _handle(ordinal)


@functools.cache
def _handle(ordinal: int) -> ctypes.c_void_p:
    del ordinal
    made = ctypes.c_void_p()
    load().call("nvjpegCreateSimple", ctypes.byref(made))
    return made


def find() -> str:
    """Return the path of the library, from a wheel, a CUDA toolkit or where the system looks.

    Raises
    ------
    UnsupportedError
        If it is nowhere.
    """
    try:
        from cuda.pathfinder import load_nvidia_dynamic_lib
    except ImportError as error:
        raise UnsupportedError(f"nvJPEG cannot be looked for ({error}): {_INSTALL}") from error
    try:
        return str(load_nvidia_dynamic_lib("nvjpeg").abs_path)
    except (RuntimeError, OSError) as error:
        raise UnsupportedError(f"nvJPEG is not installed: {_INSTALL}") from error
