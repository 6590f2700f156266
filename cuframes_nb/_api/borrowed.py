"""Tensors of torch that are read by work which is still queued."""

from __future__ import annotations

from typing import Any

from cuframes_nb._cuda.devices import activated

__all__ = ["is_torch_cuda", "keep_until_read", "wait_until_made"]


def is_torch_cuda(array: Any) -> bool:
    """Whether it is a tensor of torch on a GPU, without importing torch."""
    return bool(getattr(array, "is_cuda", False))


def wait_until_made(tensor: Any) -> None:
    """Have the host wait for torch's work on a tensor.

    For one that is read on another thread, where torch has another stream to wait for.
    """
    import torch

    torch.cuda.current_stream(tensor.device).synchronize()


def keep_until_read(tensor: Any) -> None:
    """Have torch's stream wait for CuPy's, which reads a tensor.

    DLPack has CuPy wait for torch and not the other way round: torch would overwrite a tensor, or
    give its memory to the next one, while it is being read.
    """
    import cupy
    import torch

    theirs = torch.cuda.current_stream(tensor.device)
    with activated(tensor.device.index):
        read = cupy.cuda.Event(disable_timing=True)
        read.record()
        cupy.cuda.runtime.streamWaitEvent(theirs.cuda_stream, read.ptr)
    tensor.record_stream(theirs)  # its memory may be another stream's
