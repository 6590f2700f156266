"""A page with a stand-in for anywidget: what the view says is kept, and it can be told anything."""

import base64
import contextlib
import io
import json
from pathlib import Path

import numpy as np
import simplejpeg
from PIL import Image
from playwright.sync_api import TimeoutError as StillWaiting

STATIC = Path(__file__).parents[2] / "cuframes_nb" / "notebook" / "static"

HTML = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8"><title>viewer</title>
<style>
body { margin: 0; padding: 16px; background: Canvas; color: CanvasText }
:root { color-scheme: light dark }
</style>
<style>%(css)s</style>
</head>
<body><main><h1>A notebook</h1><div id="host"></div></main></body>
</html>
"""

MODEL = """
globalThis.said = [];
globalThis.traits = {};
globalThis.dead = false;
globalThis.listeners = new Map();
globalThis.tell = (name, ...args) => {
  for (const call of [...(listeners.get(name) ?? [])]) call(...args);
};
globalThis.model = {
  get: (name) => traits[name],
  on: (name, call) => listeners.set(name, [...(listeners.get(name) ?? []), call]),
  off: (name, call) =>
    listeners.set(name, (listeners.get(name) ?? []).filter((one) => one !== call)),
  send: (content) => {
    if (dead) throw new Error("the comm is closed");
    said.push({ ...structuredClone(content), at: performance.now() });
  },
};
globalThis.bytes = (encoded) => Uint8Array.from(atob(encoded), (c) => c.charCodeAt(0));
globalThis.wrap = {
  view: (u8) => { // as Jupyter's: a part of a larger buffer
    const all = new Uint8Array(u8.length + 12);
    all.set(u8, 7);
    return new DataView(all.buffer, 7, u8.length);
  },
  array: (u8) => u8.buffer,
  bytes: (u8) => u8,
};
globalThis.frameless = () => new Promise((done) => setTimeout(done, 0));
"""

START = """
async ([source, traits_]) => {
  Object.assign(traits, traits_);
  const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
  globalThis.viewer ??= (await import(url)).default;
  globalThis.cleanup = await viewer.render({ model, el: document.querySelector("#host") });
}
"""

PIXELS = """
([cam]) => {
  const canvas = document.querySelectorAll(".layer > canvas")[cam];
  const copy = new OffscreenCanvas(canvas.width, canvas.height);
  const context = copy.getContext("2d", { willReadFrequently: true });
  context.drawImage(canvas, 0, 0);
  const { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let text = "";
  for (let i = 0; i < data.length; i += 8192)
    text += String.fromCharCode(...data.subarray(i, i + 8192));
  return [canvas.width, canvas.height, btoa(text)];
}
"""


def picture(width=160, height=90, seed=0):
    """Return an RGB picture in which every place, and every seed, looks different."""
    y, x = np.mgrid[0:height, 0:width]
    rgb = np.stack(
        [
            x * 255 // max(width - 1, 1),
            y * 255 // max(height - 1, 1),
            (x // 8 + y // 8 + seed * 37) * 29,
        ],
        axis=-1,
    )
    return rgb.astype(np.uint8)


def png(rgb):
    """Return the picture as PNG."""
    out = io.BytesIO()
    Image.fromarray(rgb).save(out, "PNG")
    return out.getvalue()


def jpeg(rgb, quality=95):
    """Return the picture as JPEG."""
    return simplejpeg.encode_jpeg(np.ascontiguousarray(rgb), quality, "RGB", "444")


class Viewer:
    """The page, as the kernel sees it: what it says, and what it can be told."""

    def __init__(self, page):
        self.page = page
        self.n = 0
        self.problems = []
        page.on("pageerror", lambda error: self.problems.append(f"{error}\n{error.stack}"))
        page.on(
            "console",
            lambda line: self.problems.append(line.text) if line.type == "error" else None,
        )

    def load(self):
        """Load the page, without the viewer."""
        css = (STATIC / "viewer.css").read_text(encoding="utf-8")
        self.page.set_content(HTML % {"css": css})
        self.page.evaluate(MODEL)
        return self

    def start(self, names=("cam1",), **traits):
        """Show the widget."""
        source = (STATIC / "viewer.js").read_text(encoding="utf-8")
        traits = {"names": list(names), "controls": True, "width": None, "label": "", **traits}
        self.page.evaluate(START, [source, traits])
        return self

    # what it says

    def said(self, kind=None):
        """Return what the view said, or what it said of one kind."""
        messages = self.page.evaluate("said")
        return [message for message in messages if kind in (None, message["t"])]

    def forget(self):
        """Forget what was said so far."""
        self.page.evaluate("said.length = 0")

    def wait_said(self, kind, count=1):
        """Return what the view said of a kind, once there are so many."""
        self.page.wait_for_function(
            "([kind, count]) => said.filter((m) => m.t === kind).length >= count", arg=[kind, count]
        )
        return self.said(kind)

    # what it is told

    def tell(self, message, *buffers, wrap="view"):
        """Hand a message to the view, as front ends do."""
        encoded = [base64.b64encode(buffer).decode() for buffer in buffers]
        self.page.evaluate(
            "([text, buffers, wrapper]) =>"
            " tell('msg:custom', JSON.parse(text), buffers.map((b) => wrap[wrapper](bytes(b))))",
            [json.dumps(message), encoded, wrap],
        )

    def frame(self, data, *, wrap="view", ack=True, status=None, **part):
        """Send one picture."""
        self.n += 1
        mime = "image/png" if data[:4] == b"\x89PNG" else "image/jpeg"
        part = {"cam": 0, "seq": self.n, "mime": mime, "still": False, "age_us": 4000, **part}
        message = {"t": "frames", "n": self.n, "ack": ack, "parts": [part]}
        self.tell(message | ({"status": status} if status else {}), data, wrap=wrap)
        return self.n

    def status(self, cams=1, **status):
        """Send a status; keys of ``cam`` are for all cameras."""
        self.tell({"t": "status", "status": make_status(cams, **status)})

    # what is seen

    def pixels(self, cam=0):
        """Return the canvas of a camera: RGBA, as painted."""
        width, height, data = self.page.evaluate(PIXELS, [cam])
        return np.frombuffer(base64.b64decode(data), np.uint8).reshape(height, width, 4)

    def wait_painted(self, n):
        """Wait until the view acknowledged having painted a message.

        What takes long is acknowledged before it is painted, and then not again: so it is asked.
        """
        painted = "(n) => said.some((m) => m.t === 'ack' && m.painted >= n)"
        for _ in range(14):
            with contextlib.suppress(StillWaiting):
                return self.page.wait_for_function(painted, arg=n, timeout=2000)
            self.n += 1
            self.tell({"t": "frames", "n": self.n, "ack": True, "parts": []})
        return self.page.wait_for_function(painted, arg=n, timeout=2000)

    def show(self, data, **keys):
        """Send a picture and wait until it is painted."""
        n = self.frame(data, **keys)
        self.wait_painted(n)
        return n

    def box(self, cam=0):
        """Return where the place of a camera's pictures is on the page."""
        return self.page.locator(".box").nth(cam).bounding_box()

    def point(self, u, v, cam=0):
        """Return the point at these shares of the place of pictures."""
        box = self.box(cam)
        return box["x"] + u * box["width"], box["y"] + v * box["height"]

    def close(self):
        """Close the page."""
        with contextlib.suppress(Exception):
            self.page.close()


def make_status(cams=1, cam=None, **status):
    """Return a status as the kernel sends it."""
    one = {
        "name": "cam1",
        "state": "live",
        "text": "",
        "width": 640,
        "height": 360,
        "format": "NV12",
        "color": "BT.709 limited",
        "memory": "host",
        "device": None,
        "fps": 30.0,
        "dropped": 0,
        "skipped": 0,
        "error": None,
    }
    return {
        "cams": [one | {"name": f"cam{i + 1}"} | (cam or {}) for i in range(cams)],
        "encoder": "JPEG",
        "quality": 80,
        "scale": 0.5,
        "fps": 29.8,
        "mbit": 12.34,
        "rtt_ms": 3.2,
        "delay_ms": 0.4,
        "paused": False,
        "recording": False,
        "can_record": True,
        "safe": False,
    } | status
