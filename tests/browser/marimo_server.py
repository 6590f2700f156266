"""marimo as a process, with one notebook."""

import contextlib
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

__all__ = ["Server", "marimo_server"]

START_SECONDS = 60


class Server:
    """A running server."""

    def __init__(self, url, root):
        self.url = url
        self.root = root

    def log(self):
        """Return what the server and its kernels wrote."""
        return (self.root / "server.log").read_text(encoding="utf-8")


@contextlib.contextmanager
def marimo_server(root, notebook, env, mode="run"):
    """Run or edit a notebook, given as text, on the loopback interface, with folders of its own."""
    path = root / "view.py"
    path.write_text(notebook, encoding="utf-8")
    port = _free_port()
    folders = {
        name: str(root / name.lower())
        for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
    }
    for folder in folders.values():
        os.makedirs(folder)  # noqa: PTH103
    command = [
        sys.executable, "-m", "marimo", "--yes", mode, str(path), "--headless", "--no-token",
        "--host", "127.0.0.1", "--port", str(port),
    ]  # fmt: skip
    log = (root / "server.log").open("w")
    process = subprocess.Popen(
        command, env={**os.environ, **folders, **env}, stdout=log, stderr=log, cwd=root
    )
    server = Server(f"http://127.0.0.1:{port}/", root)
    try:
        _wait_for(server, process)
        yield server
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def _free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def _wait_for(server, process):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            urllib.request.urlopen(server.url + "health", timeout=5).close()
            return
        assert process.poll() is None, server.log()
        time.sleep(0.1)
    raise AssertionError(f"marimo did not start:\n{server.log()}")
