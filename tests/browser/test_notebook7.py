"""The live view in Jupyter Notebook 7, in a real browser, through a real kernel."""

import time

import pytest

from tests.browser.cameras import Camera, server_folder, shown, until, wait_shown
from tests.browser.lab import lab_server
from tests.helpers import stamps

pytestmark = [
    pytest.mark.process,
    pytest.mark.foreign_fds("the browser and its driver keep pipes"),
]

VIEW = "import cuframes_nb as cf, threading, time\nw = cf.view('cam1'); w"
THREADS = "[t.name for t in threading.enumerate() if t.name.startswith('cuframes')]"


@pytest.fixture(scope="module")
def server():
    """Run the server, which has Notebook 7's pages where that is installed."""
    with (
        server_folder() as (root, run, env),
        lab_server(root, env, ["--JupyterNotebookApp.expose_app_in_browser=True"]) as server,
    ):
        server.run = run
        yield server


@pytest.fixture
def page(browser, server, monkeypatch, runtime_dir):
    """Open a tab in a profile of its own, with the kernels' runtime directory here, too."""
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(server.run))
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.add_init_script(stamps.JAVASCRIPT)
    yield page
    context.close()
    server.end_kernels()


def test_the_view_works_as_in_jupyterlab(server, page):
    # All on one page: to open one takes longer than what is tested.
    name = server.write("view.ipynb", VIEW, "time.sleep(4)")
    with Camera() as camera:
        notebook = server.open(page, name, app="notebooks")
        assert page.evaluate("jupyterapp.name") == "Jupyter Notebook"
        notebook.execute(0)
        what_is_published_is_on_screen(page, camera)
        keys_pause_and_play(page, notebook)
        the_picture_moves_while_a_cell_sleeps(page, notebook, camera)
        notebook.command("notebook:clear-all-cell-outputs")
        until(lambda: camera.pub.stats.subscribers == 0)
        assert camera.pub.stats.slots_leased == 0
        assert notebook.kernel_value(THREADS) == "[]"
    assert "cuframes_nb/" not in server.log()  # as a traceback of ours would have it


def what_is_published_is_on_screen(page, camera):
    first = wait_shown(page, lambda number: number > 0)
    wait_shown(page, lambda number: number > first + 30)
    assert shown(page) <= camera.number


def keys_pause_and_play(page, notebook):
    page.locator(".cuframes-view [role=application]").first.focus()
    page.keyboard.press("k")
    until(lambda: notebook.kernel_value("w.paused") == "True")
    # A picture may have been on its way when the key was pressed: it is the last.
    seq = int(notebook.kernel_value("w.frame.seq"))
    wait_shown(page, lambda number: number == seq)
    time.sleep(0.5)
    assert shown(page) == seq
    page.keyboard.press("k")
    until(lambda: notebook.kernel_value("w.paused") == "False")
    wait_shown(page, lambda number: number > seq + 10)


def the_picture_moves_while_a_cell_sleeps(page, notebook, camera):
    notebook.run(1)
    until(lambda: "[*]" in notebook.prompt(1))
    began = camera.number
    wait_shown(page, lambda number: number > began + 30)
    assert "[*]" in notebook.prompt(1)  # it still sleeps
    assert "safe rate" not in page.locator(".cuframes-view").inner_text()  # yet pages are heard
    notebook.wait_done(1)
