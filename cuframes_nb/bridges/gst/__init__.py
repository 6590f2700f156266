"""GStreamer: reading frames that a pipeline shares, and letting pipelines read ours.

A pipeline shares with its ``cudaipcsink``, and reads with ``cudaipcsrc``.
"""

from cuframes_nb.bridges.gst.asking import stream_info
from cuframes_nb.bridges.gst.opening import subscribe
from cuframes_nb.bridges.gst.serving import Server, serve

__all__ = ["Server", "serve", "stream_info", "subscribe"]
