"""One way to call the driver, one place where its results are looked at."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import ModuleType
from typing import Any

from cuframes_nb.errors import CudaError, DeviceError

__all__ = ["call", "driver", "error", "function", "initialise", "succeeded"]


@functools.cache
def driver() -> ModuleType:
    """Return ``cuda.bindings.driver``.

    Raises
    ------
    DeviceError
        If cuda-bindings is not installed.
    """
    try:
        from cuda.bindings import driver as module
    except ImportError as failure:
        raise DeviceError(
            f"the CUDA bindings for Python are not installed ({failure}): install "
            f"'cuframes-nb[cuda13]' (driver 580 or newer) or 'cuframes-nb[cuda12]'"
        ) from failure
    return module  # type: ignore[no-any-return]  # cuda.bindings has no types


@functools.cache
def initialise() -> None:
    """Initialise the driver, once.

    Raises
    ------
    DeviceError
        If there is no driver, or it finds no GPU; the message says which.
    """
    try:
        call("cuInit", 0)
    except CudaError as failure:
        if failure.name == "CUDA_ERROR_NO_DEVICE":
            raise DeviceError(
                "the CUDA driver sees no GPU: none is there, or CUDA_VISIBLE_DEVICES hides it; use "
                "memory='host' or unset that variable"
            ) from failure
        raise
    except DeviceError:  # no bindings
        raise
    except RuntimeError as failure:  # cuda.bindings, when libcuda.so.1 cannot be loaded
        raise DeviceError(
            f"there is no CUDA driver on this machine ({failure}): use memory='host'"
        ) from failure


def call(name: str, *arguments: Any) -> Any:
    """Call a driver function and return its values: None, one, or a tuple.

    Where every microsecond counts, bind `function` once and look at the status with `error`.

    Raises
    ------
    CudaError
        If it does not return ``CUDA_SUCCESS``.
    """
    answer = function(name)(*arguments)
    if answer[0]:
        raise error(name, answer[0])
    if len(answer) == 2:
        return answer[1]
    return answer[1:] or None


def succeeded(name: str, *arguments: Any) -> bool:
    """Call a query and return whether it said success rather than "not ready".

    Raises
    ------
    CudaError
        If it said anything else.
    """
    status = function(name)(*arguments)[0]
    if not status:
        return True
    if status.name == "CUDA_ERROR_NOT_READY":
        return False
    raise error(name, status)


def error(name: str, status: Any) -> CudaError:
    """Return the error for a driver function that returned `status`, a ``CUresult``."""
    _, text = driver().cuGetErrorString(status)
    return CudaError(name, int(status), status.name, text.decode() if text else "")


@functools.cache
def function(name: str) -> Callable[..., tuple[Any, ...]]:
    return getattr(driver(), name)  # type: ignore[no-any-return]  # cuda.bindings has no types
