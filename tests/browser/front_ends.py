"""A real widget and a real page, with a stand-in for the front end between them."""

import base64
import itertools
import json
import queue
import time

from comm.base_comm import BaseComm

from tests.browser.cameras import shown
from tests.helpers import stamps

__all__ = ["Comm", "Link"]

CARRY = """
([messages, wrapper]) => {
  for (const [content, buffers] of messages)
    tell("msg:custom", JSON.parse(content), buffers?.map((b) => wrap[wrapper](bytes(b))));
  return said.splice(0);
}
"""


class Comm(BaseComm):
    """The kernel's end of a widget's connection: keeps what the widget says."""

    def __init__(self, **options):
        self.outbox = queue.SimpleQueue()
        super().__init__(**options)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **_):
        if msg_type == "comm_msg" and data["method"] == "custom":
            self.outbox.put((data["content"], [bytes(buffer) for buffer in buffers or []]))

    def tell(self, content):
        """Bring a message of the page, as a kernel does."""
        data = {"method": "custom", "content": content}
        self.handle_msg({"content": {"data": data}, "buffers": []})


class Link:
    """Carries messages between a widget and its page while it is told to.

    Parameters
    ----------
    view
        The widget.
    viewer
        The page: a `tests.browser.page.Viewer` that was started.
    wrap
        In which form the page gets buffers; None: it gets none.
    to_page, to_kernel
        What is done to the messages that are carried at once, each way.
    """

    def __init__(self, view, viewer, *, wrap="view", to_page=list, to_kernel=list):
        self.comm = view.comm
        self.page = viewer.page
        self.wrap = wrap
        self.to_page = to_page
        self.to_kernel = to_kernel
        self.painted = []  #: numbers of the frames that were on screen
        self.said = []  #: what the page said that is yet to be carried
        self.page.evaluate(f"{stamps.JAVASCRIPT}\n0")

    def carry(self, *, back=True):
        """Carry what was said by now to the page and, with `back`, what it says to the kernel."""
        messages = []
        while not self.comm.outbox.empty():
            content, buffers = self.comm.outbox.get()
            encoded = [base64.b64encode(buffer).decode() for buffer in buffers]
            messages.append((json.dumps(content), encoded if self.wrap else None))
        said = self.page.evaluate(CARRY, [self.to_page(messages), self.wrap])
        self.said += [{k: v for k, v in message.items() if k != "at"} for message in said]
        if back:
            said, self.said = self.said, []
            for message in self.to_kernel(said):
                self.comm.tell(message)

    def carry_until(self, condition, seconds=20, **how):
        """Carry until a condition holds of the number that is on screen."""
        deadline = time.monotonic() + seconds
        while True:
            self.carry(**how)
            number = shown(self.page)
            if number != (self.painted or [None])[-1]:
                self.painted.append(number)
            if condition(number):
                return number
            assert time.monotonic() < deadline, f"frame {number} is on screen"
            time.sleep(0.005)

    @property
    def goes_back(self):
        """Whether an older frame was on screen after a newer one."""
        return any(b < a for a, b in itertools.pairwise(self.painted))
