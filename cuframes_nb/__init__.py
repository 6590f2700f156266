"""Live video frames that stay in the memory they were decoded into.

One process publishes, any number of others subscribe and get arrays on that very memory::

    import cuframes_nb as cf

    with cf.Publisher("cam1", width=1920, height=1080) as pub:
        with pub.acquire() as slot:
            slot.y[:] = 16

    for frame in cf.subscribe("cam1"):
        print(frame.seq, frame.y.mean())

Importing this loads neither NumPy nor CuPy nor a GPU driver; the names below are loaded when they
are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cuframes_nb._api.devices import DeviceInfo, devices, select_device
    from cuframes_nb._api.frame import Frame
    from cuframes_nb._api.info import StreamInfo, SubscriberInfo
    from cuframes_nb._api.publisher import Publisher
    from cuframes_nb._api.slot import WritableSlot
    from cuframes_nb._api.streams import list_streams
    from cuframes_nb._api.subscribe import subscribe
    from cuframes_nb._api.subscriber import Subscriber
    from cuframes_nb._api.tensors import stack
    from cuframes_nb._core.clock import now_ns
    from cuframes_nb._core.stats import PublisherStats, SubscriberStats
    from cuframes_nb._viewer.images import Heatmap
    from cuframes_nb._viewer.shapes import Box, Line, Mask, Points, Polygon, Text
    from cuframes_nb.color import ColorSpec
    from cuframes_nb.convert import Placement
    from cuframes_nb.errors import (
        AccessDeniedError,
        ClosedError,
        CudaError,
        CuframesError,
        CuframesWarning,
        DeviceError,
        ForkedError,
        FrameTimeout,
        InUseError,
        InvalidArgumentError,
        LeaseLimitError,
        ProtocolError,
        PublisherGoneError,
        RemoteProtocolError,
        RingFullError,
        StreamExistsError,
        StreamNotFoundError,
        UnsupportedError,
        VersionMismatchError,
    )
    from cuframes_nb.formats import FrameLayout, PixelFormat, PlaneLayout
    from cuframes_nb.notebook.viewing import grid, view
    from cuframes_nb.sinks.info import RecordingInfo
    from cuframes_nb.sinks.recording import Recording, record
    from cuframes_nb.sinks.snapshots import snapshot

__all__ = [
    "AccessDeniedError",
    "Box",
    "ClosedError",
    "ColorSpec",
    "CudaError",
    "CuframesError",
    "CuframesWarning",
    "DeviceError",
    "DeviceInfo",
    "ForkedError",
    "Frame",
    "FrameLayout",
    "FrameTimeout",
    "Heatmap",
    "InUseError",
    "InvalidArgumentError",
    "LeaseLimitError",
    "Line",
    "Mask",
    "PixelFormat",
    "Placement",
    "PlaneLayout",
    "Points",
    "Polygon",
    "ProtocolError",
    "Publisher",
    "PublisherGoneError",
    "PublisherStats",
    "Recording",
    "RecordingInfo",
    "RemoteProtocolError",
    "RingFullError",
    "StreamExistsError",
    "StreamInfo",
    "StreamNotFoundError",
    "Subscriber",
    "SubscriberInfo",
    "SubscriberStats",
    "Text",
    "UnsupportedError",
    "VersionMismatchError",
    "WritableSlot",
    "devices",
    "grid",
    "list_streams",
    "now_ns",
    "record",
    "select_device",
    "snapshot",
    "stack",
    "subscribe",
    "view",
]

_HOMES = {
    "Box": "_viewer.shapes",
    "ColorSpec": "color",
    "DeviceInfo": "_api.devices",
    "Frame": "_api.frame",
    "FrameLayout": "formats",
    "Heatmap": "_viewer.images",
    "Line": "_viewer.shapes",
    "Mask": "_viewer.shapes",
    "PixelFormat": "formats",
    "Placement": "convert",
    "PlaneLayout": "formats",
    "Points": "_viewer.shapes",
    "Polygon": "_viewer.shapes",
    "Publisher": "_api.publisher",
    "PublisherStats": "_core.stats",
    "Recording": "sinks.recording",
    "RecordingInfo": "sinks.info",
    "StreamInfo": "_api.info",
    "Subscriber": "_api.subscriber",
    "SubscriberInfo": "_api.info",
    "SubscriberStats": "_core.stats",
    "Text": "_viewer.shapes",
    "WritableSlot": "_api.slot",
    "devices": "_api.devices",
    "grid": "notebook.viewing",
    "list_streams": "_api.streams",
    "now_ns": "_core.clock",
    "record": "sinks.recording",
    "select_device": "_api.devices",
    "snapshot": "sinks.snapshots",
    "stack": "_api.tensors",
    "subscribe": "_api.subscribe",
    "view": "notebook.viewing",
}
"""Where each public name is defined; those not listed are in ``errors``."""


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOMES.get(name, 'errors')}"), name)
    globals()[name] = value
    return value


def load_ipython_extension(ipython: Any) -> None:
    """Add ``%cuframes`` and ``%%cuframes`` to IPython; called by ``%load_ext cuframes_nb``."""
    importlib.import_module(f"{__name__}.notebook").load_ipython_extension(ipython)


def unload_ipython_extension(ipython: Any) -> None:
    """Take them away again and stop what they started; called by ``%unload_ext cuframes_nb``."""
    importlib.import_module(f"{__name__}.notebook").unload_ipython_extension(ipython)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})


def _version() -> str:
    from importlib import metadata

    try:
        return metadata.version("cuframes-nb")
    except metadata.PackageNotFoundError:  # used from a checkout that is not installed
        return "0+unknown"
