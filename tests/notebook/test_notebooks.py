"""The notebooks run from top to bottom as a reader runs them, and are stored without outputs."""

import contextlib
import threading

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

import cuframes_nb as cf
from cuframes_nb.sources import Pattern, play
from tests.helpers.children import ROOT, child, child_env

NOTEBOOKS = sorted(path.name for path in (ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 90


def read(name):
    return nbformat.read(ROOT / "notebooks" / name, as_version=4)


def publish_demo(link):
    """Play a pattern as the stream ``demo`` until the parent leaves."""
    left = threading.Event()
    source = Pattern(320, 180)
    with source.publisher("demo", memory="host") as publisher:
        link.say("ready")
        threading.Thread(target=lambda: (link.wait(), left.set()), daemon=True).start()
        link.say("played", frames=play(source, publisher, stop=left.is_set))


@contextlib.contextmanager
def demo_running(*, wanted):
    """Have the stream ``demo`` published by another process, or not."""
    if not wanted:
        yield
        return
    with child(publish_demo) as publisher:
        publisher.expect("ready")
        yield


def children():
    return {process.pid for process in psutil.Process().children(recursive=True)}


@pytest.fixture
def jupyter(monkeypatch, tmp_path):
    """Keep Jupyter's files out of the user's home, and let the kernel import from here."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", child_env()["PYTHONPATH"])


@pytest.mark.process
@pytest.mark.foreign_fds("pyzmq's context keeps its descriptors until the process ends")
@pytest.mark.parametrize("demo", [False, True], ids=["alone", "with the demo"])
@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_runs_and_cleans_up(name, demo, jupyter, tmp_path):
    notebook = read(name)
    before = children()
    with demo_running(wanted=demo):
        client = NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(tmp_path)}},
        )
        client.execute()
        assert [stream.key for stream in cf.list_streams()] == ["demo"] * demo
    assert cf.list_streams() == []
    assert children() <= before
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    said = "".join(output.text for output in outputs if output.get("name") == "stderr")
    assert said == ""


@pytest.mark.parametrize("name", NOTEBOOKS)
def test_a_notebook_is_stored_without_outputs(name):
    notebook = read(name)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [], cell.id
            assert cell.execution_count is None, cell.id
    assert {*notebook.metadata} <= {"kernelspec", "language_info"}
    assert notebook.metadata.kernelspec.name == "python3"


def test_there_are_notebooks():
    assert NOTEBOOKS
