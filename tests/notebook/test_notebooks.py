"""The notebooks run from top to bottom as a reader runs them, and are stored without outputs."""

import contextlib
import gc
import json
import threading
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from IPython import get_ipython
from nbclient import NotebookClient

import cuframes_nb as cf
from cuframes_nb.notebook import widget
from cuframes_nb.sources import Pattern, play
from tests.helpers.children import ROOT, child, child_env

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 90

VIEWS = {
    "01-quickstart.ipynb": {"demo"},
    "03-process-live.ipynb": {"motion"},
    "04-many-cameras.ipynb": {"gate", "yard", "lobby", "cinema"},
    "05-publish-your-own.ipynb": {"own"},
    "06-when-things-go-wrong.ipynb": {"fragile"},
}
"""The streams that each notebook shows live."""

in_kernel = pytest.mark.foreign_fds("pyzmq's context keeps its descriptors until the process ends")


# --- In the kernel --------------------------------------------------------------------------------

views = []
shown = {}
failures = {}


class Watched(widget.View):
    """A view that a page sees: it says hello, acknowledges, and notes what it is shown."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        views.append(self)
        self.hear(t="hello", w=640, h=360)

    def hear(self, **content):
        widget._heard(self, {"view": "a-page-of-a-test", **content}, [])

    def send(self, content, buffers=None):
        for part in content.get("parts", ()):
            shown.setdefault(self.names[part["cam"]], []).append((part["w"], part["h"]))
        super().send(content, buffers)
        if content.get("ack"):
            each = dict.fromkeys(("bytes", "span_us", "decode_us"), 1000)
            self.hear(t="ack", n=content["n"], painted=content["n"], missed=0, held_us=0, **each)


def look(_):
    """Look at each view for a while, as a reader does."""
    for view in views:
        if view.comm is None:
            continue  # closed
        time.sleep(0.4)
        failed = [cam for cam in view.stats["cams"] if cam["error"]]
        failures.update({cam["name"]: cam["error"]["text"] for cam in failed})


def watch_the_views():
    widget.View = Watched
    get_ipython().events.register("post_run_cell", look)


def what_was_seen():
    return {"shown": shown, "failures": failures}


def what_is_left():
    """Return what outlives the notebook's last cell, and its variables."""
    names = [t.name for t in threading.enumerate() if t.name.startswith("cuframes")]
    # A GPU's frames are given back by a thread that lives as long as the process.
    threads = [name for name in names if not name.startswith("cuframes-releases")]
    with contextlib.redirect_stdout(None):
        get_ipython().run_line_magic("reset", "-f")
    gc.collect()
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    return {"threads": threads, "memory": [line for line in maps if "cuframes" in line]}


# --- Here -----------------------------------------------------------------------------------------


def read(name):
    return nbformat.read(ROOT / "notebooks" / name, as_version=4)


def call(function):
    """Return a cell that calls a function of this module in the kernel."""
    module = f"__import__({__name__!r}, fromlist=['*'])"
    line = f"print(__import__('json').dumps({module}.{function.__name__}()))"
    return nbformat.v4.new_code_cell(line)


def answer(cell):
    """Return what the function returned."""
    return json.loads("".join(output.text for output in cell.outputs))


def publish_demo(link):
    """Play a pattern as the stream ``demo`` until the parent leaves."""
    left = threading.Event()
    source = Pattern(320, 180)
    with source.publisher("demo", memory="host") as publisher:
        link.say("ready")
        threading.Thread(target=lambda: (link.wait(), left.set()), daemon=True).start()
        link.say("played", frames=play(source, publisher, stop=left.is_set))


@contextlib.contextmanager
def demo_running():
    """Have the stream ``demo`` published by another process."""
    with child(publish_demo) as publisher:
        publisher.expect("ready")
        yield


def children():
    return {process.pid for process in psutil.Process().children(recursive=True)}


@pytest.fixture
def run(monkeypatch, tmp_path):
    """Return a function that runs a notebook, and cells before and after, and returns its outputs.

    It checks that nothing in the notebook failed, nobody was warned, there is something to see, and
    nothing is left. Jupyter's files are kept out of the user's home; the kernel imports from here.
    """
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", child_env()["PYTHONPATH"])
    monkeypatch.chdir(ROOT)

    def run(name, *, before=(), after=()):
        there = children()
        notebook = read(name)
        own = list(notebook.cells)
        left = call(what_is_left)
        notebook.cells = [*before, *own, *after, left]
        where = tmp_path / "notebook"
        where.mkdir()
        NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(where)}},
        ).execute()
        outputs = [output for cell in own for output in cell.get("outputs", ())]
        assert [output for output in outputs if output.output_type == "error"] == []
        assert [output.text for output in outputs if output.get("name") == "stderr"] == []
        assert any("image/png" in output.get("data", {}) for output in outputs)
        assert answer(left) == {"threads": [], "memory": []}
        assert children() <= there
        assert list(where.iterdir()) == []
        return outputs

    return run


@pytest.mark.process
@in_kernel
@pytest.mark.parametrize("name", sorted({*NOTEBOOKS} - {*VIEWS}))
def test_a_notebook_runs_and_cleans_up(name, run):
    run(name)
    assert cf.list_streams() == []


@pytest.mark.process
@in_kernel
@pytest.mark.parametrize("name", sorted(VIEWS))
def test_a_page_sees_what_a_notebook_shows_and_it_cleans_up(name, run):
    seen = call(what_was_seen)
    run(name, before=[call(watch_the_views)], after=[seen])
    assert cf.list_streams() == []
    said = answer(seen)
    assert {*said["shown"]} == VIEWS[name]
    assert min(map(len, said["shown"].values())) > 3
    if name == "03-process-live.ipynb":
        assert "has no attribute 'red'" in said["failures"].pop("motion")
    if name == "05-publish-your-own.ipynb":
        shapes = {width > height for width, height in said["shown"]["own"]}
        assert shapes == {True, False}  # the view followed the stream
    assert said["failures"] == {}


@pytest.mark.process
@in_kernel
def test_the_quickstart_uses_a_demo_that_runs(run):
    with demo_running():
        outputs = run("01-quickstart.ipynb")
        assert [stream.key for stream in cf.list_streams()] == ["demo"]
    assert "it is used" in outputs[0].text
    assert "320 x 180" in "".join(output.get("text", "") for output in outputs)


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_without_outputs(name):
    notebook = read(name)
    nbformat.validate(notebook)
    assert (notebook.nbformat, notebook.nbformat_minor) == (4, 5)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [], cell.id
            assert cell.execution_count is None, cell.id
    assert {*notebook.metadata} <= {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_cells_have_names(name):
    ids = [cell.id for cell in read(name).cells]
    assert len({*ids}) == len(ids)
    assert all(id_.replace("-", "").isalpha() for id_ in ids), ids  # and not a random number


def test_the_notebooks_that_show_something_are_there():
    assert {*VIEWS} < {*NOTEBOOKS}
