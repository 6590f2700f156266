"""Chromium over its debugging socket, with as little of it switched on as can be.

Playwright switches on the Network domain, which copies every message of a WebSocket once more: that
alone takes a third of the frames from some viewers.
"""

import base64
import contextlib
import itertools
import json
import subprocess
import tempfile
import time
import urllib.request
from pathlib import Path

import websocket

from tests.browser.lab import browser_path

OPTIONS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-extensions", "--remote-debugging-port=0", "--remote-allow-origins=*",
)  # fmt: skip


class Page:
    """A tab."""

    def __init__(self, address):
        self._socket = websocket.create_connection(address, timeout=60, max_size=None)
        self._ids = itertools.count(1)

    def call(self, method, **params):
        """Call a method of the protocol and return its result."""
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.recv())
            if answer.get("id") == number:
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer["result"]

    def evaluate(self, expression, *, wait=True):
        """Return the value of an expression, which may be a promise."""
        result = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=wait, returnByValue=True
        )
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"])
        return result["result"].get("value")

    def wait_for(self, expression, seconds=60):
        """Wait until an expression is true."""
        deadline = time.monotonic() + seconds
        while not self.evaluate(expression):
            if time.monotonic() > deadline:
                raise TimeoutError(expression)
            time.sleep(0.1)

    def screenshot(self, path):
        """Write what is to be seen into a PNG file."""
        Path(path).write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))

    def close(self):
        """Let go of the tab."""
        self._socket.close()


@contextlib.contextmanager
def chromium(width=1280, height=800):
    """Run Chromium; yields its process and what opens a tab."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [browser_path(), *OPTIONS, f"--user-data-dir={profile}",
             f"--window-size={width},{height}", "about:blank"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        port_file = Path(profile, "DevToolsActivePort")
        while not port_file.exists() or not port_file.read_text():
            time.sleep(0.05)
        port = port_file.read_text().split()[0]

        def new_page(script):
            request = urllib.request.Request(
                f"http://127.0.0.1:{port}/json/new?about:blank", method="PUT"
            )
            with urllib.request.urlopen(request) as answer:
                page = Page(json.load(answer)["webSocketDebuggerUrl"])
            page.call("Page.enable")
            page.call("Page.addScriptToEvaluateOnNewDocument", source=script)
            return page

        try:
            yield process, new_page
        finally:
            process.terminate()
            process.wait(20)
