"""Arrays of any library as places to write to: by DLPack, or by the CUDA array interface.

The structures are those of ``dlpack.h``, version 0.8. They are read here, not by NumPy or CuPy,
because bfloat16 is a type of its own there and of an optional package in those.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from cuframes_nb.errors import InvalidArgumentError, UnsupportedError

__all__ = ["Buffer", "bfloat16", "buffer_of"]

_CPU: Final = {1, 3}  # kDLCPU, kDLCUDAHost
_CUDA: Final = {2, 13}  # kDLCUDA, kDLCUDAManaged
_KINDS: Final = {0: "int", 1: "uint", 2: "float", 4: "bfloat"}

_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype = ctypes.c_void_p
_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_uint64),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class Buffer(NamedTuple):
    """Memory of an array: where, and how its items lie."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]  #: in bytes
    dtype: str
    device: int | None  #: number of the GPU; None for host memory

    def as_numpy(self) -> npt.NDArray[Any]:
        """Return host memory as an array, bfloat16 as the uint16 of its bits. Keep its owner."""
        try:
            dtype = np.dtype("uint16" if self.dtype == "bfloat16" else self.dtype)
        except TypeError:
            raise InvalidArgumentError(f"out is {self.dtype}, which no result is") from None
        holder = _Interface()
        holder.__array_interface__ = {
            "version": 3,
            "data": (self.address, False),
            "shape": self.shape,
            "strides": self.strides,
            "typestr": dtype.str,
        }
        return np.asarray(holder)


class _Interface:
    """Something that NumPy asks for its memory."""

    __array_interface__: dict[str, Any]


def buffer_of(array: Any, stream: int | None) -> Buffer:
    """Return where `array`, of any library, has its items.

    Parameters
    ----------
    array
        Something with ``__dlpack__`` or ``__cuda_array_interface__``.
    stream
        The CUDA stream that will write, by the numbers of the array API standard: what is queued on
        the array is put before it. -1 for no such order.

    Raises
    ------
    InvalidArgumentError
        If it is neither, or does not let itself be written.
    """
    if hasattr(array, "__dlpack__"):
        on_gpu = array.__dlpack_device__()[0] in _CUDA
        try:
            capsule = array.__dlpack__(stream=stream) if on_gpu else array.__dlpack__()
        except (BufferError, RuntimeError, TypeError) as error:
            raise InvalidArgumentError(
                f"out, a {_name(array)}, is read-only or cannot be shared: {error}"
            ) from error
        return _read(_Tensor.from_address(_pointer(capsule, b"dltensor")))
    if hasattr(array, "__cuda_array_interface__"):
        return _described(array.__cuda_array_interface__)
    raise InvalidArgumentError(
        f"out is a {_name(array)}; pass an array of NumPy, CuPy, torch or another library with "
        "DLPack"
    )


def _read(tensor: _Tensor) -> Buffer:
    kind = int(tensor.device_type)
    if kind not in _CPU | _CUDA or tensor.lanes != 1:
        raise InvalidArgumentError("out is in a kind of memory that cannot be written here")
    shape = tuple(tensor.shape[: tensor.ndim])
    itemsize = tensor.bits // 8
    if tensor.strides:
        strides = tuple(stride * itemsize for stride in tensor.strides[: tensor.ndim])
    else:
        strides = _contiguous(shape, itemsize)
    return Buffer(
        tensor.data + tensor.byte_offset,
        shape,
        strides,
        f"{_KINDS.get(tensor.code, 'type ' + str(tensor.code))}{tensor.bits}",
        tensor.device_id if kind in _CUDA else None,
    )


def _described(interface: dict[str, Any]) -> Buffer:
    """Read a ``__cuda_array_interface__``, which means the current GPU."""
    address, read_only = interface["data"]
    if read_only:
        raise InvalidArgumentError("out is read-only; pass an array that may be written")
    dtype = np.dtype(interface["typestr"])
    shape = tuple(interface["shape"])
    strides = interface.get("strides") or _contiguous(shape, dtype.itemsize)
    from cupy.cuda import runtime

    return Buffer(address, shape, tuple(strides), dtype.name, runtime.getDevice())


def _contiguous(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    strides = []
    for extent in reversed(shape):
        strides.append(itemsize)
        itemsize *= extent
    return tuple(reversed(strides))


def bfloat16() -> np.dtype[Any]:
    """Return NumPy's bfloat16, which is a package of its own.

    Raises
    ------
    UnsupportedError
        If that is not installed.
    """
    try:
        kind = importlib.import_module("ml_dtypes").bfloat16
    except ImportError:
        raise UnsupportedError(
            "NumPy and CuPy know bfloat16 by the package ml_dtypes, which is not installed; "
            "install it, or pass out=, such as torch.empty(..., dtype=torch.bfloat16)"
        ) from None
    found: np.dtype[Any] = np.dtype(kind)
    return found


def _name(array: Any) -> str:
    return f"{type(array).__module__}.{type(array).__qualname__}"
