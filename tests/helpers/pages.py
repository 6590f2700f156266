"""A page that looks at a `Viewer`, played by the test.

It keeps what it is sent, checks it, and says what a browser would say by docs/design/viewer.md::

    with publisher() as pub, looking("cam") as page:
        page.hello()
        publish(pub)
        page.wait_for(1)
"""

import base64
import contextlib
import io
import json

import numpy as np
from PIL import Image

from cuframes_nb._viewer.camera import Camera
from cuframes_nb._viewer.pipeline import Viewer
from tests.helpers.frames import until

__all__ = ["Page", "Picture", "looking"]


class Picture:
    """One part of a `frames` message, with the picture."""

    def __init__(self, n, part, data):
        self.n = n
        self.seq = part["seq"]
        self.cam = part["cam"]
        self.roi = tuple(part["roi"])
        self.still = part["still"]
        self.mime = part["mime"]
        self.shapes = part.get("shapes")
        self.size = (part["w"], part["h"])
        self.data = data
        self.age_us = part["age_us"]

    @property
    def pixels(self):
        """The picture as a browser has it: RGB."""
        with Image.open(io.BytesIO(self.data)) as image:
            return np.asarray(image.convert("RGB"))

    @property
    def is_right(self):
        """Whether it is what its header says."""
        with Image.open(io.BytesIO(self.data)) as image:
            return image.size == self.size and Image.MIME[image.format] == self.mime

    def __repr__(self):
        return f"<{self.mime} {self.size} of frame {self.seq} of camera {self.cam}, {self.roi}>"


def pictures_of(content, buffers):
    """Return the parts of a `frames` message, each with its picture, which may come as text."""
    as_text = [base64.b64decode(part["data"]) for part in content["parts"] if part.get("b64")]
    return list(zip(content["parts"], as_text or buffers, strict=True))


class Page:
    """One view on one page.

    Parameters
    ----------
    view
        Its name.
    size
        Device pixels that it has for pictures.
    answers
        Whether it acknowledges by itself, as fast as it can.
    """

    def __init__(self, view="page" * 4, size=(640, 480), *, answers=True):
        self.view = view
        self.size = size
        self.answers = answers
        self.viewer = None
        self.messages = []  #: (content, buffers), as they came
        self.problems = []  #: what is not as docs/design/viewer.md has it
        self._painted = 0

    # --- What it is sent --------------------------------------------------------------------------

    def receive(self, content, buffers):
        """Take a message of the kernel; on whatever thread it comes."""
        try:
            self._check(content, buffers)
        except Exception as error:  # noqa: BLE001  whatever it is, the viewer would pass it over
            self.problems.append(error)
        self.messages.append((content, buffers))
        if content.get("t") == "frames" and content["ack"] and self.answers:
            self.acknowledge(content["n"])

    def _check(self, content, buffers):
        json.dumps(content, allow_nan=False).encode()
        if content["t"] != "frames":
            return
        assert content["n"] > max((p.n for p in self.pictures), default=0)
        assert content["parts"]
        assert len(buffers) in {0, len(content["parts"])}
        for part, data in pictures_of(content, buffers):
            picture = Picture(content["n"], part, data)
            assert picture.is_right, picture

    def said(self, kind):
        """Return the messages of one kind."""
        return [content for content, _ in list(self.messages) if content["t"] == kind]

    @property
    def pictures(self):
        """All pictures, as they came."""
        return [
            Picture(content["n"], part, data)
            for content, buffers in list(self.messages)
            if content["t"] == "frames"
            for part, data in pictures_of(content, buffers)
        ]

    @property
    def lossy(self):
        """The pictures that are JPEG."""
        return [picture for picture in self.pictures if not picture.still]

    @property
    def stills(self):
        """The pictures that are PNG."""
        return [picture for picture in self.pictures if picture.still]

    @property
    def status(self):
        """The newest state of the read-out, {} before the first."""
        for content, _ in reversed(list(self.messages)):
            if content["t"] == "status" or "status" in content:
                return content["status"]
        return {}

    @property
    def camera(self):
        """The newest state of the first camera, {} before the first."""
        return self.status.get("cams", [{}])[0]

    def forget(self):
        """Forget what it was sent."""
        self.messages.clear()

    def wait_for(self, seq, *, cam=0, still=False):
        """Return the picture of a frame, once it is there."""

        def found():
            return [p for p in self.pictures if (p.seq, p.cam, p.still) == (seq, cam, still)]

        until(found)
        return found()[-1]

    def wait_for_more(self, count=1):
        """Return the newest picture, once there are so many more than now."""
        before = len(self.pictures)
        until(lambda: len(self.pictures) >= before + count)
        return self.pictures[-1]

    # --- What it says -----------------------------------------------------------------------------

    def say(self, kind, **keys):
        """Say something to the kernel."""
        self.viewer.tell({"t": kind, "view": self.view, **keys})

    def hello(self):
        """Say that it is there."""
        self.say("hello", w=self.size[0], h=self.size[1])

    def bye(self):
        """Say that it is gone."""
        self.say("bye")

    def acknowledge(self, n, **changes):
        """Answer message `n`, as received and painted just now."""
        fresh = [data for p in self.pictures if self._painted < p.n <= n for data in [p.data]]
        self._painted = n
        said = {
            "n": n, "painted": n, "missed": 0, "held_us": 100, "bytes": sum(map(len, fresh)),
            "span_us": 1000, "decode_us": 500, **changes,
        }  # fmt: skip
        self.say("ack", **said)


@contextlib.contextmanager
def looking(*sources, process=None, overlay=None, page=None, **options):
    """Yield a page that looks at streams; it has to find nothing wrong with what it is sent."""
    page = page or Page()
    cameras = [Camera(source, f"camera {i}", process, overlay) for i, source in enumerate(sources)]
    page.viewer = Viewer(cameras, page.receive, **options)
    try:
        yield page
    finally:
        page.viewer.close()
    assert page.problems == []
