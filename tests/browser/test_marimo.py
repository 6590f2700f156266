"""The live view in marimo, in a real browser, through a real kernel."""

import time

import pytest

from tests.browser.cameras import Camera, server_folder, shown, until, wait_shown
from tests.browser.marimo_server import marimo_server
from tests.helpers import stamps

pytestmark = [
    pytest.mark.process,
    pytest.mark.foreign_fds("the browser and its driver keep pipes"),
]

NOTEBOOK = """
import marimo

app = marimo.App()


@app.cell
def _():
    import cuframes_nb as cf
    import marimo as mo

    return cf, mo


@app.cell
def _(cf, mo):
    view = mo.ui.anywidget(cf.view("cam1"))
    view
    return (view,)


if __name__ == "__main__":
    app.run()
"""


@pytest.fixture(scope="module")
def server():
    """Run the server, with a runtime directory that the tests publish in, too."""
    with server_folder() as (root, run, env), marimo_server(root, NOTEBOOK, env) as server:
        server.run = run
        yield server


@pytest.fixture
def page(browser, server, monkeypatch, runtime_dir):
    """Open a tab in a profile of its own."""
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(server.run))
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    page = context.new_page()
    page.add_init_script(stamps.JAVASCRIPT)
    yield page
    context.close()


def test_what_is_published_is_on_screen_and_keys_work(server, page):
    with Camera() as camera:
        page.goto(server.url)
        first = wait_shown(page, lambda number: number > 0)
        wait_shown(page, lambda number: number > first + 30)
        assert shown(page) <= camera.number
        page.locator(".cuframes-view [role=application]").first.focus()
        page.keyboard.press("k")
        time.sleep(1)
        still = shown(page)
        time.sleep(1)
        assert shown(page) == still
        assert camera.number > still + 30
        page.keyboard.press("k")
        wait_shown(page, lambda number: number > still + 60)
        page.goto("about:blank")
        until(lambda: camera.pub.stats.slots_leased == 0)  # nobody looks any more
    assert "cuframes_nb/" not in server.log()  # as a traceback of ours would have it
