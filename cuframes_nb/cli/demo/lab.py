"""JupyterLab for the demo: a server of its own on the quickstart notebook."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import cuframes_nb

__all__ = ["is_installed", "jupyter_lab", "show"]

_QUICKSTART: Final = "01-quickstart.ipynb"
_START_SECONDS: Final = 60.0
_STOP_SECONDS: Final = 10.0


def is_installed() -> bool:
    """Whether JupyterLab and what the live view needs can be imported."""
    return all(importlib.util.find_spec(name) for name in ("jupyterlab", "anywidget", "simplejpeg"))


@contextlib.contextmanager
def jupyter_lab(folder: Path) -> Iterator[str | None]:
    """Run JupyterLab on copies of the demo notebooks; it has ended after the block.

    Parameters
    ----------
    folder
        Where the copies are put. Those that are there already are left as they are.

    Yields
    ------
    str or None
        The address of the quickstart; None if the server did not start: its log says why.
    """
    _copy_notebooks(folder)
    with tempfile.TemporaryDirectory(prefix="cuframes-lab-") as runtime:
        process = _start(folder, Path(runtime))
        try:
            yield _address(process, Path(runtime))
        finally:
            process.terminate()
            try:
                process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def show(address: str) -> bool:
    """Open a browser on the desktop, if there is one; return whether it was told to open."""
    if not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return False  # or webbrowser would fill the terminal with a text browser
    with contextlib.suppress(webbrowser.Error):
        return webbrowser.open(address)
    return False


def _copy_notebooks(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for notebook in sorted(_notebooks().glob("*.ipynb")):
        if not (folder / notebook.name).exists():
            shutil.copy(notebook, folder)


def _notebooks() -> Path:
    """Return the folder of the notebooks: in the package, or beside it in a checkout."""
    package = Path(cuframes_nb.__file__).parent
    inside = package / "notebooks"
    return inside if inside.is_dir() else package.parent / "notebooks"


def _start(folder: Path, runtime: Path) -> subprocess.Popen[bytes]:
    token = secrets.token_urlsafe(24)
    command = [
        sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", "--port=0",
        f"--ServerApp.root_dir={folder.resolve()}", f"--IdentityProvider.token={token}",
        "--LabApp.check_for_updates_class=jupyterlab.handlers.announcements.NeverCheckForUpdate",
        "--LabApp.news_url=",
    ]  # fmt: skip
    if os.geteuid() == 0:
        command.append("--allow-root")
    with (folder / "jupyterlab.log").open("wb") as log:
        # In a session of its own: Ctrl-C is for us, and Jupyter would ask whether it is meant.
        return subprocess.Popen(  # noqa: S603  our own interpreter
            command,
            env={**os.environ, "JUPYTER_RUNTIME_DIR": str(runtime)},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def _address(process: subprocess.Popen[bytes], runtime: Path) -> str | None:
    """Return where the server is, once it says so; None if it ended instead."""
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        for path in runtime.glob("jpserver-*.json"):
            with contextlib.suppress(ValueError, KeyError):
                info = json.loads(path.read_text(encoding="utf-8"))
                return f"{info['url']}lab/tree/{_QUICKSTART}?token={info['token']}"
        time.sleep(0.05)
    return None
