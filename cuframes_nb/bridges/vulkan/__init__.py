"""Vulkan: its buffers and images as streams, and frames of streams as its buffers."""

from cuframes_nb._vulkan.device import Device
from cuframes_nb.bridges.vulkan.buffers import ExportedBuffer
from cuframes_nb.bridges.vulkan.exported import Allocated
from cuframes_nb.bridges.vulkan.images import ExportedImage
from cuframes_nb.bridges.vulkan.imported import ImportedFrame, import_frame
from cuframes_nb.bridges.vulkan.semaphores import Semaphore

__all__ = [
    "Allocated",
    "Device",
    "ExportedBuffer",
    "ExportedImage",
    "ImportedFrame",
    "Semaphore",
    "import_frame",
]
