"""Streams of GStreamer: frames that a pipeline shares with its ``cudaipcsink``."""

from cuframes_nb.bridges.gst.opening import subscribe

__all__ = ["subscribe"]
