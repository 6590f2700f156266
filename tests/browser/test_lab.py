"""The live view in a real JupyterLab, in a real browser, through a real kernel."""

import contextlib
import json
import os
import re
import threading
import time

import av
import numpy as np
import pytest
from PIL import Image

import cuframes_nb as cf
from cuframes_nb.convert.reference import rgb_reference
from tests.browser.cameras import PICTURE, Camera, server_folder, shown, until, wait_shown
from tests.browser.lab import lab_server
from tests.helpers import stamps

pytestmark = [
    pytest.mark.process,
    pytest.mark.foreign_fds("the browser and its driver keep pipes"),
]

IMPORTS = "import cuframes_nb as cf, threading, time\n"
VIEW = IMPORTS + "w = cf.view('cam1'); w"
THREADS = (
    "[t.name for t in threading.enumerate() if t.name.startswith('cuframes')]"
    " + [s.state for s in cf.list_streams()]"
)


@pytest.fixture(scope="module")
def lab():
    """Run JupyterLab, with a runtime directory that the tests publish in, too."""
    with (
        server_folder() as (root, run, env),
        lab_server(root, env, ["--expose-app-in-browser"]) as server,
    ):
        server.run = run
        yield server


@pytest.fixture
def page(browser, lab):
    """Open a tab in a profile of its own."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000}, accept_downloads=True)
    page = context.new_page()
    page.add_init_script(stamps.JAVASCRIPT)
    yield page
    context.close()
    lab.end_kernels()


@pytest.fixture(autouse=True)
def lab_runtime(lab, monkeypatch, runtime_dir):
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(lab.run))


def wait_aspect(page, aspect):
    """Wait until the picture on screen has these proportions."""
    page.wait_for_function(
        """([selector, aspect]) => {
          const canvas = document.querySelector(selector);
          return Math.abs(canvas.width / canvas.height - aspect) < 0.02;
        }""",
        arg=[PICTURE, aspect],
        timeout=30_000,
    )


def open_view(lab, page, *cells, name="view.ipynb"):
    notebook = lab.open(page, lab.write(name, VIEW, *cells))
    notebook.execute(0)
    return notebook


# --- The picture ----------------------------------------------------------------------------------


def test_what_is_on_screen_is_what_is_published(lab, page):
    with Camera() as camera:
        notebook = open_view(lab, page, "w.stats['cams'][0]['state']", "w.close()")
        first = wait_shown(page, lambda number: number > 0)
        wait_shown(page, lambda number: number > first + 30)
        assert shown(page) <= camera.number
        assert "live" in notebook.execute(1)
        notebook.execute(2)
        until(lambda: camera.pub.stats.subscribers == 0)
    assert "cuframes_nb/" not in lab.log()  # as a traceback of ours would have it


def test_the_picture_moves_while_a_cell_computes(lab, page):
    busy = "t = time.monotonic()\nwhile time.monotonic() - t < 6: pass"
    with Camera() as camera:
        notebook = open_view(lab, page, busy, "w.close()")
        wait_shown(page, lambda number: number > 20)
        notebook.run(1)
        until(lambda: "[*]" in notebook.prompt(1))
        began = camera.number
        wait_shown(page, lambda number: number > began + 20)
        assert "[*]" in notebook.prompt(1)  # it still computes
        notebook.wait_done(1)
        notebook.execute(2)


def test_colours_on_screen_are_right(lab, page):
    codes = [(y, u, v) for y in (40, 120, 200) for u in (90, 128, 165) for v in (100, 150)]
    notebook = open_view(lab, page)
    wanted = "(w.frame.color.matrix, w.frame.color.range, w.stats['quality'], w.stats['scale'])"
    for matrix in ("bt601", "bt709"):
        for range_ in ("limited", "full"):
            color = cf.ColorSpec(matrix, range_)
            with stripes("cam1", codes, color):
                page.wait_for_function(
                    "(s) => document.querySelector(s)?.width > 100", arg=PICTURE, timeout=30_000
                )
                sent = str((matrix, range_, 80, 1.0))
                until(lambda sent=sent: notebook.kernel_value(f"w.frame and {wanted}") == sent)
                time.sleep(0.5)  # such a picture is on its way
                seen = page.evaluate(PICK, [PICTURE, len(codes)])
            off = np.abs(np.array(seen, int) - reference_rgb(codes, color)).max()
            assert off <= 3, f"{color}: {off} codes off"
    notebook.kernel_value("w.close()")


PICK = """
([selector, count]) => {
  const c = document.querySelector(selector);
  const copy = new OffscreenCanvas(c.width, c.height);
  const ctx = copy.getContext("2d");
  ctx.drawImage(c, 0, 0);
  return Array.from({length: count}, (_, i) => {
    const x = Math.round((i + 0.5) * c.width / count), y = c.height / 2 | 0;
    return Array.from(ctx.getImageData(x, y, 1, 1).data).slice(0, 3);
  });
}
"""
"""Returns the colours in the middle of that many stripes of the picture on screen."""


@contextlib.contextmanager
def stripes(key, codes, color):
    """Publish stripes of these colours, the top of which moves, so that they are sent as JPEG."""
    side, stop = 64, threading.Event()
    with cf.Publisher(
        key, width=side * len(codes), height=side * 2, memory="host", color=color
    ) as pub:

        def publish():
            number = 0
            while not stop.wait(0.05):
                number += 1
                with pub.acquire() as slot:
                    for i, (y, u, v) in enumerate(codes):
                        slot.y[:, i * side : (i + 1) * side] = y
                        slot.uv[:, i * side // 2 : (i + 1) * side // 2] = (u, v)
                    slot.y[:8] = number % 200

        thread = threading.Thread(target=publish)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def reference_rgb(codes, color):
    """Return RGB of single colours by the float64 reference."""
    y, u, v = np.array(codes, np.uint8).T
    planes = (y.repeat(2)[None, :].repeat(2, axis=0), np.stack([u, v], axis=1)[None])
    rgb = rgb_reference(planes, cf.PixelFormat.NV12, color)[0, ::2]
    return np.clip(np.round(rgb * 255), 0, 255)


# --- Controls -------------------------------------------------------------------------------------


def test_controls_do_what_they_say(lab, page):
    with Camera(ring_size=8) as camera:
        notebook = open_view(
            lab, page, "w.paused, w.frame.seq, w.roi", "w.snapshot('full.png').name", "w.close()"
        )
        wait_shown(page, lambda number: number > 10)
        page.locator(".cuframes-view [role=application]").first.focus()
        page.keyboard.press("k")
        until(lambda: notebook.kernel_value("w.paused") == "True")
        # A picture may have been on its way when the key was pressed: it is the last.
        seq = int(notebook.kernel_value("w.frame.seq"))
        still = wait_shown(page, lambda number: number == seq)
        time.sleep(1.0)
        assert shown(page) == still
        assert camera.number > still + 10
        page.keyboard.press(",")
        assert wait_shown(page, lambda number: number != still) == still - 1
        page.keyboard.press(".")
        wait_shown(page, lambda number: number == still)
        assert "full.png" in notebook.execute(2)
        with Image.open(lab.root / "full.png") as picture:
            assert picture.size == (1920, 1080)
        with page.expect_download() as download:
            page.locator(".cuframes-view [role=application]").first.focus()
            page.keyboard.press("s")
        assert re.fullmatch(r"cam1-\d+\.png", download.value.suggested_filename)
        page.keyboard.press("k")
        wait_shown(page, lambda number: number > still + 30)
        notebook.execute(3)


def test_the_record_button_makes_a_film(lab, page):
    with Camera(width=640, height=360) as camera:
        notebook = open_view(lab, page, "w.close()")
        wait_shown(page, lambda number: number > 5)
        page.get_by_role("button", name="Record").click()
        until(lambda: camera.pub.stats.subscribers == 2)
        last = camera.number
        wait_shown(page, lambda number: number > last + 15)
        page.get_by_role("button", name="Record").click()
        page.wait_for_selector(".cuframes-view >> text=/saved .*cam1-.*mp4/", timeout=20_000)
        [film] = lab.root.glob("cam1-*.mp4")
        with av.open(str(film)) as container:
            assert sum(1 for _ in container.decode(video=0)) > 10
        notebook.execute(1)


# --- Life and death -------------------------------------------------------------------------------


def test_a_stream_that_goes_comes_back_with_another_size(lab, page):
    notebook = open_view(lab, page, "w.close()")
    with Camera():
        wait_shown(page, lambda number: number > 5)
    with Camera(width=1280, height=1080) as camera:
        wait_aspect(page, 1280 / 1080)
        until(lambda: camera.pub.stats.subscribers == 1)
        camera.pub.reconfigure(width=1920)
        wait_aspect(page, 16 / 9)
        notebook.execute(1)


def test_a_view_that_nobody_sees_costs_nothing(lab, page):
    with Camera() as camera:
        notebook = open_view(lab, page, *["pass"] * 40)
        wait_shown(page, lambda number: number > 10)
        notebook.scroll_to(39)
        until(lambda: camera.pub.stats.slots_leased == 0)
        sent = notebook.kernel_value("w._viewer.sent")
        time.sleep(1.5)
        assert notebook.kernel_value("w._viewer.sent") == sent
        notebook.scroll_to(0)
        last = camera.number
        wait_shown(page, lambda number: number > last)
        notebook.kernel_value("w.close()")


def test_clearing_the_output_leaves_nothing_behind(lab, page):
    with Camera() as camera:
        notebook = open_view(lab, page)
        wait_shown(page, lambda number: number > 5)
        notebook.command("notebook:clear-all-cell-outputs")
        until(lambda: camera.pub.stats.subscribers == 0)
        assert camera.pub.stats.slots_leased == 0
        assert "cuframes-view" not in str(notebook.kernel_value(THREADS))


def test_closing_the_page_leaves_nothing_behind_and_opening_it_again_shows_it(lab, page):
    with Camera() as camera:
        notebook = open_view(lab, page, name="again.ipynb")
        wait_shown(page, lambda number: number > 5)
        notebook.save()
        page.goto("about:blank")
        until(lambda: camera.pub.stats.subscribers == 0)
        notebook = lab.open(page, "again.ipynb")
        last = camera.number
        wait_shown(page, lambda number: number > last)
        notebook.kernel_value("w.close()")


def test_restarting_the_kernel_and_running_all_shows_it_again(lab, page):
    with Camera() as camera:
        notebook = open_view(lab, page)
        wait_shown(page, lambda number: number > 5)
        notebook.restart_and_run_all()
        last = camera.number
        wait_shown(page, lambda number: number > last + 5)
        until(lambda: camera.pub.stats.subscribers == 1)
        notebook.kernel_value("w.close()")


def test_an_error_in_a_function_is_shown_and_the_picture_goes_on(lab, page):
    with Camera() as camera:
        notebook = open_view(lab, page, "w.process = lambda frame: 1 / 0", "w.close()")
        wait_shown(page, lambda number: number > 5)
        notebook.execute(1)
        page.wait_for_selector(".cuframes-view details >> text=ZeroDivisionError", timeout=20_000)
        last = camera.number
        wait_shown(page, lambda number: number > last + 5)
        notebook.execute(2)
    assert "cuframes_nb/" not in lab.log()  # as a traceback of ours would have it


def test_a_saved_notebook_has_a_picture_for_where_there_are_no_widgets(lab, page):
    with Camera():
        notebook = open_view(lab, page, "w.close()", name="saved.ipynb")
        until(lambda: notebook.save() or lab.png_in("saved.ipynb") is not None)
        size = lab.png_in("saved.ipynb").size
        assert size == (480, 270)
        notebook.execute(1)


# --- For long -------------------------------------------------------------------------------------

SOAK_FPS = 60
SOAK_SECONDS = float(os.environ.get("CUFRAMES_SOAK_SECONDS", "1800"))
"""As many frames as an hour has at 30 a second."""

SIZES = (
    "[psutil.Process().memory_info().rss / 1e6, threading.active_count(),"
    " psutil.Process().num_fds()]"
)


@pytest.mark.soak
@pytest.mark.timeout(SOAK_SECONDS + 600)
def test_an_hour_s_frames_leave_everything_as_it_was(lab, page):
    with Camera(width=640, height=360, fps=SOAK_FPS) as camera:
        notebook = open_view(lab, page, "import psutil", "w.close()")
        notebook.execute(1)
        wait_shown(page, lambda number: number > 30)
        devtools = page.context.new_cdp_session(page)
        rows, end = [], time.monotonic() + SOAK_SECONDS
        while time.monotonic() < end:
            time.sleep(SOAK_SECONDS / 120)
            last = camera.number
            wait_shown(page, lambda number, last=last: number >= last)
            devtools.send("HeapProfiler.collectGarbage")
            heap = devtools.send("Runtime.getHeapUsage")["usedSize"] / 1e6
            rows.append((heap, *json.loads(notebook.kernel_value(SIZES))))
            assert camera.pub.stats.slots_leased <= 2
        notebook.execute(2)
    # The first sixth is for caches to fill.
    early, late = (np.median(part, axis=0) for part in (rows[20:50], rows[-30:]))
    heap, rss, threads, fds = late - early
    print(f"page {heap:+.1f} MB, kernel {rss:+.1f} MB from {early} to {late}")  # noqa: T201
    assert heap < 5
    assert rss < 5
    assert threads == fds == 0
