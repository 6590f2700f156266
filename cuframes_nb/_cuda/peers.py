"""From the memory of one GPU to that of another."""

from __future__ import annotations

from typing import NamedTuple

from cuframes_nb._cuda.devices import activated
from cuframes_nb._cuda.driver import call

__all__ = ["Spot", "copy_from_peer"]


class Spot(NamedTuple):
    """Somewhere in the memory of a GPU."""

    ordinal: int
    address: int


def copy_from_peer(target: Spot, source: Spot, nbytes: int, handle: int) -> None:
    """Queue a copy from one GPU to another; the one that it goes to must be current.

    The driver takes the shortest way that there is, and the host's memory where GPUs do not reach
    each other (CUDA Driver API, ``cuMemcpyPeerAsync``). It needs no peer access, also for memory of
    virtual memory management, where an ordinary copy between GPUs does.

    Parameters
    ----------
    target, source
        Where to and where from; both GPUs get a context.
    nbytes
        How much.
    handle
        A stream of the GPU that it goes to.

    Raises
    ------
    CudaError
        If the driver refuses.
    """
    here, there = activated(target.ordinal).context, activated(source.ordinal).context
    call("cuMemcpyPeerAsync", target.address, here, source.address, there, nbytes, handle)
