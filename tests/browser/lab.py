"""JupyterLab as a process, and its notebooks in a browser."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import nbformat

__all__ = ["Lab", "Notebook", "browser_path", "lab_server", "launch"]

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


def browser_path():
    """Return the browser: ``$CUFRAMES_TEST_BROWSER``, or the first that is installed."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    path = os.environ.get("CUFRAMES_TEST_BROWSER") or found
    assert path, (
        "the viewer is tested in a real browser, and none of "
        f"{', '.join(BROWSERS)} is installed: on Debian and Ubuntu, apt install chromium"
    )
    return path


@contextlib.contextmanager
def launch():
    """Run the browser, driven by Playwright."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=browser_path(), args=OPTIONS)
        try:
            yield browser
        finally:
            browser.close()


START_SECONDS = 60


class Lab:
    """A running server."""

    def __init__(self, url, token, root, process):
        self.url = url
        self.token = token
        self.root = root
        self.process = process

    def log(self):
        """Return what the server and its kernels wrote."""
        return (self.root / "server.log").read_text(encoding="utf-8")

    def end_kernels(self):
        """End every kernel, so that the next test begins with none."""
        for session in json.loads(self._ask("GET", "api/sessions")):
            self._ask("DELETE", f"api/sessions/{session['id']}")

    def _ask(self, method, path):
        request = urllib.request.Request(
            self.url + path, method=method, headers={"Authorization": f"token {self.token}"}
        )
        with urllib.request.urlopen(request) as answer:
            return answer.read()

    def png_in(self, name):
        """Return the first picture that a saved notebook has, None without one."""
        from PIL import Image

        try:
            notebook = json.loads((self.root / name).read_text(encoding="utf-8"))
        except ValueError:  # it is being written
            return None
        for cell in notebook["cells"]:
            for output in cell.get("outputs", ()):
                data = output.get("data", {}).get("image/png")
                if data:
                    return Image.open(io.BytesIO(base64.b64decode(data)))
        return None

    def write(self, name, *cells):
        """Write a notebook with these cells of code."""
        notebook = nbformat.v4.new_notebook(
            cells=[nbformat.v4.new_code_cell(cell) for cell in cells],
            metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        )
        nbformat.write(notebook, self.root / name)
        return name

    def open(self, page, name, app="lab/tree"):
        """Open a notebook and wait for its kernel."""
        address = f"{self.url}{app}/{name}?token={self.token}&reset"
        page.goto(address, wait_until="domcontentloaded")
        notebook = Notebook(page)
        notebook.wait_ready()
        return notebook


PANEL = (
    "[...jupyterapp.shell.widgets('main')].find("
    "(w) => w.sessionContext && location.pathname.endsWith('/' + w.context.path))"
)
"""JupyterLab opens what was open before, too: ours is the one that the address names."""


SCROLL = f"""
async (index) => {{
  const notebook = {PANEL}.content;
  const inSight = () => {{
    const cell = notebook.widgets[index].node.getBoundingClientRect();
    const view = notebook.node.getBoundingClientRect();
    return cell.height > 0 && cell.top < view.bottom && cell.bottom > view.top;
  }};
  const was = inSight();
  if (!was) await notebook.scrollToItem(index, "start");
  return was;
}}
"""
"""Scrolls to a cell unless it is in sight; returns whether it was."""


class Notebook:
    """A notebook in a page, told what to do through JupyterLab's own commands."""

    def __init__(self, page):
        self.page = page

    def wait_ready(self):
        """Wait until there is a notebook with an idle kernel."""
        self.page.wait_for_function(
            f"() => window.jupyterapp && {PANEL}?.sessionContext.session?.kernel?.status"
            " === 'idle'",
            timeout=60_000,
        )
        self.page.evaluate(f"jupyterapp.shell.activateById({PANEL}.id)")

    def command(self, name):
        """Run a command of JupyterLab and wait for it."""
        self.page.evaluate("(name) => jupyterapp.commands.execute(name)", name)

    def save(self):
        """Save the notebook."""
        self.page.evaluate(f"{PANEL}.context.save()")

    def run(self, index):
        """Run one cell, not waiting for it."""
        self.page.evaluate(
            f"""(index) => {{
              const notebook = {PANEL}.content;
              notebook.activeCellIndex = index;
              notebook.deselectAll();
              jupyterapp.commands.execute("notebook:run-cell");
            }}""",
            index,
        )

    def prompt(self, index):
        """Return a cell's prompt: ``[ ]:``, ``[*]:`` or ``[1]:``."""
        return (
            self.page.evaluate(
                f"(index) => {PANEL}.content.widgets[index].promptNode?.textContent ?? ''", index
            )
            or self._cell(index).locator(".jp-InputPrompt").inner_text()
        )

    def wait_done(self, index, seconds=30):
        """Wait until a cell has run, and return its output as text."""
        deadline = time.monotonic() + seconds
        while not re.match(r"\[\d+\]", self.prompt(index)):
            assert time.monotonic() < deadline, f"cell {index} did not end: {self.prompt(index)}"
            time.sleep(0.02)
        return self._cell(index).locator(".jp-OutputArea").inner_text()

    def execute(self, index, seconds=30):
        """Run one cell, wait for it, and return its output as text."""
        self.page.evaluate(
            f"""async (index) => {{
              const notebook = {PANEL}.content;
              notebook.activeCellIndex = index;
              notebook.deselectAll();
              await jupyterapp.commands.execute("notebook:run-cell");
            }}""",
            index,
        )
        return self.wait_done(index, seconds)

    def kernel_value(self, expression):
        """Return what the kernel says that an expression is, as text."""
        return self.page.evaluate(
            f"""async (expression) => {{
              const kernel = {PANEL}.sessionContext.session.kernel;
              const future = kernel.requestExecute(
                {{ code: "", user_expressions: {{ value: expression }}, silent: true }});
              const reply = await future.done;
              const value = reply.content.user_expressions.value;
              if (value.status !== "ok") throw new Error(JSON.stringify(value));
              return value.data["text/plain"];
            }}""",
            expression,
        )

    def scroll_to(self, index, seconds=30):
        """Bring a cell into sight, and wait until it stays there.

        Cells that are drawn meanwhile move it away again, and so does JupyterLab, once, when the
        cell that ran last is done.
        """
        deadline = time.monotonic() + seconds
        stayed = 0
        while stayed < 5:
            assert time.monotonic() < deadline, f"cell {index} does not stay in sight"
            stayed = stayed + 1 if self.page.evaluate(SCROLL, index) else 0
            time.sleep(0.05)

    def restart_and_run_all(self):
        """Restart the kernel and run all cells, as the menu does."""
        self.page.evaluate(
            f"""async () => {{
              await {PANEL}.sessionContext.restartKernel();
              await jupyterapp.commands.execute("notebook:run-all-cells");
            }}"""
        )

    def _cell(self, index):
        return self.page.locator(".jp-Notebook .jp-Cell").nth(index)


@contextlib.contextmanager
def lab_server(root: Path, env=None, options=()):
    """Run JupyterLab on a free port of the loopback interface, with folders of its own."""
    home = root / ".jupyter-test"
    folders = {
        name: str(home / name.lower())
        for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "JUPYTERLAB_SETTINGS_DIR",
                     "JUPYTERLAB_WORKSPACES_DIR", "IPYTHONDIR", "JUPYTER_DATA_DIR")
    }  # fmt: skip
    for folder in folders.values():
        Path(folder).mkdir(parents=True)
    token = "t0ken"
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", "--ip=127.0.0.1",
        "--port=0", f"--ServerApp.root_dir={root}", f"--IdentityProvider.token={token}",
        "--LabApp.extension_manager=readonly", "--LabApp.news_url=",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        *options,
    ]  # fmt: skip
    log = (root / "server.log").open("w")
    process = subprocess.Popen(
        command, env={**os.environ, **folders, **(env or {})}, stdout=log, stderr=log, cwd=root
    )
    try:
        info = _wait_for_info(Path(folders["JUPYTER_RUNTIME_DIR"]), process, root)
        yield Lab(info["url"], token, root, process)
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        log.close()


def _wait_for_info(folder, process, root):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        for path in folder.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError):
                return json.loads(path.read_text())
        assert process.poll() is None, (root / "server.log").read_text()
        time.sleep(0.1)
    raise AssertionError(f"JupyterLab did not start:\n{(root / 'server.log').read_text()}")
