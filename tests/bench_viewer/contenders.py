"""What shows pictures in a notebook: a cell each, and where in the page the picture is."""

from typing import NamedTuple

__all__ = ["CONTENDERS", "GRID", "Contender"]


class Contender(NamedTuple):
    """A way to show a stream."""

    name: str
    setup: str  #: imports, and what is defined once
    cell: str  #: shows stream "cam1"
    selector: str  #: of the element that has the picture


_OURS_SETUP = "import cuframes_nb as cf, time\n%load_ext cuframes_nb"
_OURS_PICTURE = ".cuframes-view .layer canvas"

_IMAGE = """
import ipywidgets, simplejpeg, threading, time, numpy as np, cuframes_nb as cf
def feed():
    for frame in cf.subscribe("cam1"):
        # The planes as they are: the colours are not quite right, and nothing is faster.
        u, v = (np.ascontiguousarray(frame.uv[..., i]) for i in (0, 1))
        jpeg = simplejpeg.encode_jpeg_yuv_planes(frame.y, u, v, quality=80, fastdct=True)
        widget.value = bytes(jpeg)
"""

_RFB = """
import asyncio, jupyter_rfb, threading, time, cuframes_nb as cf
class Canvas(jupyter_rfb.RemoteFrameBuffer):
    latest = None
    def get_frame(self):
        return self.latest
def feed():
    for frame in cf.subscribe("cam1"):
        widget.latest = frame.rgb()
        loop.call_soon_threadsafe(widget.request_draw)
loop = asyncio.get_event_loop()
"""

_START = "; threading.Thread(target=feed, daemon=True).start(); widget"

CONTENDERS = {
    "ours": Contender("cuframes_nb", _OURS_SETUP, 'view = cf.view("cam1"); view', _OURS_PICTURE),
    "image": Contender(
        "ipywidgets.Image fed by a thread, JPEG q80",
        _IMAGE,
        'widget = ipywidgets.Image(format="jpeg", layout={"width": "100%"})' + _START,
        ".jupyter-widgets.widget-image",
    ),
    "rfb": Contender(
        "jupyter_rfb, asked by a thread to draw",
        _RFB,
        'widget = Canvas(css_width="100%", css_height="470px", max_buffered_frames=2);'
        " widget.quality = 80" + _START,
        ".renderview-wrapper img",
    ),
}

GRID = Contender(
    "cuframes_nb, a grid of four",
    _OURS_SETUP,
    'view = cf.grid(["cam1", "cam2", "cam3", "cam4"]); view',
    _OURS_PICTURE,
)
