"""Subscribing to a pipeline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cuframes_nb.bridges.gst.memory import Importer
from cuframes_nb.bridges.gst.pump import Place
from cuframes_nb.bridges.gst.subscriber import GstSubscriber
from cuframes_nb.errors import UnsupportedError

__all__ = ["subscribe"]


def subscribe(
    path: Path,
    key: str,
    mode: str,
    *,
    timeout: float | None = 5.0,
    reconnect: bool = True,
    device: str | int | None = None,
    writable: bool = False,
    trusted_uids: frozenset[int] = frozenset(),
    importer: Importer | None = None,
) -> GstSubscriber:
    """Attach to the ``cudaipcsink`` at `path`; see :func:`cuframes_nb.subscribe`.

    Parameters
    ----------
    path, key
        Its socket, and what its frames call it.
    importer
        What maps its memory, by default on the GPU that holds it.
    """
    if writable:
        raise UnsupportedError(
            "the frames of a GStreamer pipeline may be in use by its other elements: subscribe "
            "without writable=True and work on frame.copy()"
        )
    place = Place(f"gst://{path}", key, path, trusted_uids)
    memory: Any = importer or _on_gpu(device)
    return GstSubscriber(place, memory, mode, reconnect=reconnect, timeout=timeout)


def _on_gpu(device: str | int | None) -> Importer:
    from cuframes_nb.bridges.gst.gpu import GpuImporter

    return GpuImporter(device)
