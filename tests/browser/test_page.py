"""The browser's side of the live view, on a page with a stand-in for the kernel."""

import json

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe

from tests.browser.page import Viewer, jpeg, picture, png

pytestmark = pytest.mark.foreign_fds("the browser and its driver keep pipes")

SIZE = (160, 90)
FULL = [0, 0, 640, 360]
HOSTILE = [
    None, 7, "x", [], {}, {"t": None}, {"t": "frames"}, {"t": "frames", "n": "x", "parts": 5},
    {"t": "frames", "n": 1e308, "ack": True, "parts": [{"cam": 99}, None, 3]},
    {"t": "frames", "n": -1, "parts": [{"cam": 0, "roi": "abc", "shapes": 7, "mime": "text/html"}]},
    {"t": "status", "status": {"cams": "no", "fps": {}, "mbit": []}},
    {"t": "status", "status": {"cams": [{"error": 5, "width": "wide", "name": {}}]}},
    {"t": "probe", "id": 1, "cam": 0, "yuv": "x", "rgb": None},
    {"t": "histogram", "cam": 0, "y": 3},
    {"t": "saved", "name": 4, "path": [], "mime": 2}, {"t": "told", "text": {}, "level": 9},
    {"t": "unheard of"},
]  # fmt: skip


@pytest.fixture
def page(browser):
    context = browser.new_context(viewport={"width": 900, "height": 900}, accept_downloads=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def viewer(page):
    viewer = Viewer(page).load()
    yield viewer
    assert viewer.problems == []


@pytest.fixture
def running(viewer):
    """Return a view that shows a picture of 640x360 at a quarter of its size."""
    viewer.start()
    viewer.wait_said("visible")
    viewer.status()
    viewer.show(png(picture(*SIZE)), roi=FULL, w=SIZE[0], h=SIZE[1])
    viewer.forget()
    return viewer


def focus(viewer):
    viewer.page.locator("[role=application]").first.focus()


def press(viewer, *keys):
    focus(viewer)
    for key in keys:
        viewer.page.keyboard.press(key)


# --- Painting and acknowledging -------------------------------------------------------------------


@pytest.mark.parametrize("wrap", ["view", "array", "bytes"])
def test_the_pixels_on_the_canvas_are_those_sent(viewer, wrap):
    viewer.start()
    viewer.show(png(picture(seed=3)), wrap=wrap)
    assert (viewer.pixels()[..., :3] == picture(seed=3)).all()
    viewer.show(jpeg(picture(seed=4)), wrap=wrap)
    difference = viewer.pixels()[..., :3].astype(int) - picture(seed=4)
    assert np.abs(difference).mean() < 3


def test_a_view_says_hello_with_its_size_and_that_it_is_seen(viewer):
    viewer.start()
    (hello,) = viewer.wait_said("hello")
    assert hello["w"] > 300
    assert hello["h"] > 100
    assert len(hello["view"]) >= 16
    assert viewer.wait_said("visible")[0]["on"] is True


def test_what_is_painted_is_acknowledged_with_what_it_took(running):
    data = png(picture(seed=1))
    n = running.show(data, roi=FULL)
    ack = running.said("ack")[-1]
    assert (ack["n"], ack["painted"], ack["missed"], ack["bytes"]) == (n, n, 0, len(data))
    assert ack["held_us"] >= 0
    assert ack["decode_us"] > 0


def test_what_need_not_be_acknowledged_is_not(running):
    running.frame(png(picture(seed=1)), ack=False, roi=FULL)
    n = running.show(png(picture(seed=2)), roi=FULL)
    assert [ack["n"] for ack in running.said("ack")] == [n]


def test_only_the_newest_picture_is_painted_and_the_others_are_missed(running):
    frames = [png(picture(seed=seed)) for seed in range(8)]
    running.page.evaluate(
        """() => {
          const decode = createImageBitmap;
          const gate = new Promise((open) => { globalThis.goOn = open; });
          globalThis.createImageBitmap = async (...args) => { await gate; return decode(...args); };
        }"""
    )
    for data in frames[:-1]:
        running.frame(data, ack=False, roi=FULL)
    running.page.evaluate("goOn()")
    n = running.show(frames[-1], roi=FULL)
    assert (running.pixels()[..., :3] == picture(seed=7)).all()
    acks = running.said("ack")
    assert acks[-1]["painted"] == n
    assert sum(ack["missed"] for ack in acks) >= 5  # the first was being decoded


def test_a_picture_that_is_none_is_acknowledged_too(running):
    n = running.frame(b"\xff\xd8 this is no picture", roi=FULL)
    running.wait_said("ack")
    assert running.said("ack")[-1]["n"] == n
    running.show(png(picture(seed=5)), roi=FULL)


def test_pictures_may_come_in_base64(running):
    import base64

    data = base64.b64encode(png(picture(seed=6))).decode()
    part = {"cam": 0, "seq": 1, "mime": "image/png", "roi": FULL, "b64": True, "data": data}
    running.tell({"t": "frames", "n": 50, "ack": True, "parts": [part]})
    running.wait_painted(50)
    assert (running.pixels()[..., :3] == picture(seed=6)).all()


def test_where_buffers_are_lost_base64_is_asked_for(running):
    part = {"cam": 0, "seq": 1, "mime": "image/png", "roi": FULL}
    running.tell({"t": "frames", "n": 51, "ack": True, "parts": [part]})
    assert running.wait_said("hello")[0]["b64"] is True


def test_a_view_that_hears_nothing_says_hello_again(viewer):
    viewer.page.clock.install()
    viewer.start()
    viewer.page.clock.run_for(2000)
    viewer.wait_said("visible")
    viewer.status()
    viewer.forget()
    viewer.page.clock.run_for(6500)
    viewer.wait_said("hello")
    assert "no word" in viewer.page.locator("body").inner_text()
    viewer.status()
    assert "no word" not in viewer.page.locator("body").inner_text()


# --- Being seen -----------------------------------------------------------------------------------


def test_a_view_that_is_scrolled_away_says_so(running):
    running.page.evaluate("document.body.style.paddingTop = '4000px'")
    assert running.wait_said("visible")[-1]["on"] is False
    running.page.evaluate("document.body.style.paddingTop = '0'")
    running.wait_said("visible", 2)
    assert running.said("visible")[-1]["on"] is True


def test_a_view_that_changes_its_size_says_so(running):
    running.page.evaluate("document.querySelector('#host').style.width = '400px'")
    size = running.wait_said("size")[-1]
    assert 300 < size["w"] <= 400


def test_after_cleaning_up_nothing_is_left(running):
    running.page.evaluate("cleanup()")
    assert running.wait_said("bye")
    assert running.page.evaluate("document.querySelector('#host').childElementCount") == 0
    running.forget()
    assert running.page.evaluate("[...listeners.values()].flat().length") == 0
    running.frame(png(picture()), roi=FULL)
    running.page.set_viewport_size({"width": 500, "height": 500})
    running.page.wait_for_timeout(300)
    assert running.said() == []


def test_a_comm_that_is_closed_is_told_calmly(running):
    running.page.evaluate("dead = true")
    running.frame(png(picture(seed=2)), roi=FULL)
    running.page.wait_for_selector("text=disconnected")


# --- Controls -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("k", {"t": "pause"}),
        ("Space", {"t": "pause"}),
        (",", {"t": "step", "by": -1}),
        (".", {"t": "step", "by": 1}),
        ("s", {"t": "snapshot", "cam": 0, "download": True}),
        ("r", {"t": "record", "on": True}),
        ("h", {"t": "histogram", "cam": 0, "on": True}),
        ("x", {"t": "key", "key": "x", "mods": []}),
    ],
)
def test_keys(running, key, said):
    press(running, key)
    message = running.wait_said(said["t"])[0]
    assert {name: message[name] for name in said} == said


def test_keys_outside_of_the_view_are_not_ours(running):
    running.page.evaluate(
        "document.body.insertAdjacentHTML('afterbegin', '<label>t <input id=t></label>')"
    )
    running.page.locator("#t").focus()
    running.page.keyboard.press("k")
    running.page.wait_for_timeout(150)
    assert running.said("pause") == []
    assert running.page.locator("#t").input_value() == "k"


def test_zooming_asks_for_a_part_and_fit_for_all(running):
    press(running, "+")
    x, y, width, height = running.wait_said("roi")[-1]["roi"]
    assert width < 640
    assert height < 360
    assert 0 <= x <= 640 - width
    assert 0 <= y <= 360 - height
    assert abs(width / height - 16 / 9) < 0.1
    running.forget()
    press(running, "f")
    assert running.wait_said("roi")[-1]["roi"] is None


def test_a_rectangle_drawn_with_shift_is_the_region(running):
    focus(running)
    running.page.keyboard.down("Shift")
    running.page.mouse.move(*running.point(0.25, 0.25))
    running.page.mouse.down()
    running.page.mouse.move(*running.point(0.75, 0.75), steps=4)
    running.page.mouse.up()
    running.page.keyboard.up("Shift")
    roi = running.wait_said("roi")[-1]["roi"]
    assert np.abs(np.array(roi) - [160, 90, 320, 180]).max() <= 12


def test_the_probe_names_the_pixel_under_the_pointer_and_shows_the_answer(running):
    press(running, "p")
    running.page.mouse.move(*running.point(0.5, 0.5))
    probe = running.wait_said("probe")[-1]
    assert abs(probe["x"] - 320) <= 3
    assert abs(probe["y"] - 180) <= 3
    running.tell(
        {"t": "probe", "id": probe["id"], "cam": 0, "x": probe["x"], "y": probe["y"], "seq": 1,
         "yuv": [81, 90, 240], "rgb": [254, 3, 7]}
    )  # fmt: skip
    running.page.wait_for_selector("text=254")
    running.forget()
    press(running, "ArrowRight")
    assert running.wait_said("probe")[-1]["x"] == probe["x"] + 1


def test_a_snapshot_is_offered_as_a_file(running):
    press(running, "s")
    running.wait_said("snapshot")
    with running.page.expect_download() as download:
        running.tell(
            {"t": "saved", "name": "cam1-7.png", "path": "/x/cam1-7.png", "mime": "image/png"},
            png(picture()),
        )
    assert download.value.suggested_filename == "cam1-7.png"


# --- Overlays, status, errors ---------------------------------------------------------------------


def test_shapes_are_drawn_with_the_picture_they_belong_to(running):
    shapes = [
        {"kind": "box", "xywh": [64, 36, 128, 72], "label": "cat <b>", "color": "red"},
        {"kind": "points", "points": [[1, 2], [3, 4]], "radius": 3},
        {"kind": "line", "points": [[0, 0], [640, 360]], "closed": False},
        {"kind": "polygon", "points": [[0, 0], [64, 0], [64, 64]], "fill": 0.5},
        {"kind": "text", "at": [10, 20], "text": "<img src=x onerror=alert(1)>"},
        {"kind": "nonsense"},
    ]
    running.show(png(picture(seed=1)), roi=FULL, shapes=shapes)
    page = running.page
    assert page.evaluate("document.querySelectorAll('.overlay path').length") == 4
    text = page.locator(".overlay").text_content()
    assert "cat <b>" in text
    assert "<img src=x onerror=alert(1)>" in text
    assert page.evaluate("document.querySelectorAll('.overlay img, .overlay b').length") == 0
    box = page.evaluate(
        """() => { const r = document.querySelector('.overlay path').getBoundingClientRect(),
             c = document.querySelector('.layer canvas').getBoundingClientRect();
             return [(r.x - c.x) / c.width, (r.y - c.y) / c.height, r.width / c.width]; }"""
    )
    assert np.abs(np.array(box) - [0.1, 0.1, 0.2]).max() < 0.02
    running.show(png(picture(seed=2)), roi=FULL)
    assert "cat" not in page.locator(".overlay").text_content()


def test_the_read_out_says_what_is_known(running):
    running.show(png(picture(seed=1)), roi=FULL, seq=4711)
    running.status(cam={"dropped": 3, "skipped": 5})
    running.page.wait_for_function("document.body.innerText.includes('#4711')")
    text = running.page.locator("body").inner_text()
    for part in ("30", "NV12", "640×360", "host", "Mbit/s"):
        assert part in text


def test_an_error_is_shown_as_text_with_a_count(running):
    text = "Traceback (most recent call last):\nValueError: <script>x</script>"
    error = {"where": "process", "text": text, "count": 12}
    running.status(cam={"error": error})
    summary = running.page.locator("details summary").first
    assert "12" in summary.inner_text()
    summary.click()
    assert "<script>x</script>" in running.page.locator("details pre").first.inner_text()


def test_a_hostile_kernel_breaks_nothing(running):
    for message in HOSTILE:
        running.page.evaluate(
            "(text) => tell('msg:custom', JSON.parse(text), [])", json.dumps(message)
        )
    running.show(png(picture(seed=9)), roi=FULL)
    assert (running.pixels()[..., :3] == picture(seed=9)).all()
    running.problems.clear()  # a message that was not understood is a warning, no more


def test_a_grid_shows_each_camera_in_its_place(viewer):
    viewer.start(names=("cam1", "cam2", "cam3"))
    viewer.wait_said("visible")
    viewer.status(cams=3)
    parts = [{"cam": i, "seq": 1, "mime": "image/png", "roi": FULL, "age_us": 1} for i in (0, 2)]
    viewer.tell(
        {"t": "frames", "n": 1, "ack": True, "parts": parts},
        png(picture(seed=1)),
        png(picture(seed=2)),
    )
    viewer.wait_painted(1)
    assert (viewer.pixels(0)[..., :3] == picture(seed=1)).all()
    assert (viewer.pixels(2)[..., :3] == picture(seed=2)).all()


# --- For everybody --------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("state", ["waiting", "running", "paused and failed", "grid"])
def test_axe_finds_nothing(viewer, scheme, state):
    viewer.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    viewer.start(
        names=("cam1", "cam2") if state == "grid" else ("cam1",), label="Live view of cam1"
    )
    viewer.wait_said("visible")
    if state != "waiting":
        error = {"where": "overlay", "text": "Traceback ...", "count": 2}
        failed = state == "paused and failed"
        viewer.status(
            cams=2 if state == "grid" else 1,
            cam={"error": error if failed else None},
            paused=failed,
        )
        viewer.show(png(picture(*SIZE)), roi=FULL)
        if failed:
            press(viewer, "h", "p")
    results = Axe().run(viewer.page)
    assert results.violations_count == 0, results.generate_report()
