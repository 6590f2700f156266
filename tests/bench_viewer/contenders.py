"""What shows pictures in a notebook: a cell each, and where in the page the picture is."""

from typing import NamedTuple

__all__ = ["CONTENDERS", "Contender"]

_SETUP = """
import cuframes_nb as cf, threading, time
"""


class Contender(NamedTuple):
    """A way to show a stream."""

    name: str
    cell: str  #: shows stream "cam1"
    selector: str  #: of the element that has the picture


OURS = Contender(
    "cuframes_nb",
    _SETUP + 'view = cf.view("cam1"); view',
    ".cuframes-view .layer canvas",
)

IMAGE = Contender(
    "ipywidgets.Image fed by a thread, JPEG q80",
    _SETUP
    + """
import ipywidgets, simplejpeg, numpy as np, av
from av.video.reformatter import VideoReformatter
widget = ipywidgets.Image(format="jpeg", layout={"width": "100%"})
def feed():
    reformat = VideoReformatter()
    for frame in cf.subscribe("cam1"):
        source = av.VideoFrame.from_ndarray(np.ascontiguousarray(frame.array), format="nv12")
        full = reformat.reformat(source, format="yuvj420p", src_color_range="MPEG",
            dst_color_range="JPEG", src_colorspace="ITU709", dst_colorspace="ITU601")
        planes = [np.frombuffer(p, np.uint8).reshape(p.height, p.line_size)[:, :p.width]
                  for p in full.planes]
        widget.value = bytes(simplejpeg.encode_jpeg_yuv_planes(*planes, quality=80, fastdct=True))
threading.Thread(target=feed, daemon=True).start()
widget
""",
    ".jupyter-widgets.widget-image",
)

RFB = Contender(
    "jupyter_rfb, drawn on by a thread",
    _SETUP
    + """
import jupyter_rfb, numpy as np
class Canvas(jupyter_rfb.RemoteFrameBuffer):
    latest = None
    def get_frame(self):
        return self.latest
widget = Canvas(css_width="100%", css_height="600px", max_buffered_frames=2)
widget.quality = 80
import asyncio
loop = asyncio.get_event_loop()
def feed():
    for frame in cf.subscribe("cam1"):
        widget.latest = frame.rgb()
        loop.call_soon_threadsafe(widget.request_draw)
threading.Thread(target=feed, daemon=True).start()
widget
""",
    ".jupyter-rfb img, .jupyter-rfb canvas",
)

CONTENDERS = {"ours": OURS, "image": IMAGE, "rfb": RFB}
