"""Is there a CUDA device, and if not, why not."""

import ctypes
import functools
import importlib.util
import warnings

__all__ = ["warm_up", "why_no_cuda"]


@functools.cache
def why_no_cuda():
    """Return why tests that need a CUDA device cannot run here, or None if they can."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return "no CUDA device: no driver (libcuda.so.1)"
    count = ctypes.c_int()
    if status := driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return f"no CUDA device: the driver answers {status}"
    if not count.value:
        return "no CUDA device: the driver shows none"
    for name in ("cupy", "cuda"):
        if importlib.util.find_spec(name) is None:
            return f"no CUDA bindings: {name} is not installed"
    return None


@functools.cache
def warm_up():
    """Let CUDA and CuPy open, once, the descriptors that they keep for good."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import cupy as cp

        from cuframes_nb._api.devices import devices

        # One thread a GPU gives slots back, for the life of the process.
        from cuframes_nb._runtime.stream_leases import releaser

        devices()  # the management library keeps a descriptor
        for ordinal in range(cp.cuda.runtime.getDeviceCount()):
            with cp.cuda.Device(ordinal):
                cp.arange(8).sum().get()
                cp.cuda.Stream(non_blocking=True).synchronize()
            releaser(ordinal)
