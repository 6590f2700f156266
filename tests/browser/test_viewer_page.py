"""The browser's side of the live view, closely: what it counts, where it points, what it leaves."""

import base64
import io
import itertools

import numpy as np
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image

from tests.browser.page import Viewer, picture, png

pytestmark = pytest.mark.foreign_fds("the browser and its driver keep pipes")

FULL = [0, 0, 640, 360]
BOX = "[role=application]"


VIEWPORT = {"width": 900, "height": 900}
BITMAPS = """
globalThis.bitmaps = [];
const decode = createImageBitmap;
globalThis.createImageBitmap = (...args) => {
  const coming = decode(...args);
  coming.then((bitmap) => bitmaps.push(bitmap), () => {});
  return coming;
};
0
"""


@pytest.fixture(scope="module")
def tab(browser):
    context = browser.new_context(viewport=VIEWPORT, accept_downloads=True)
    yield context.new_page()
    context.close()


@pytest.fixture
def viewer(tab):
    tab.goto("about:blank")
    tab.set_viewport_size(VIEWPORT)
    tab.emulate_media(color_scheme="light", reduced_motion="no-preference")
    viewer = Viewer(tab).load()
    yield viewer
    assert viewer.problems == []


@pytest.fixture
def running(viewer):
    """Return a view of 640x360 that has shown a picture and has the keyboard."""
    return run(viewer)


def run(viewer, **traits):
    viewer.start(**traits)
    viewer.wait_said("visible")
    viewer.status(cams=len(traits.get("names", "1")))
    viewer.show(png(picture()), roi=FULL)
    viewer.page.locator(BOX).first.focus()
    viewer.forget()
    return viewer


@pytest.fixture
def clocked(browser):
    """Return a running view whose time stands still until it is told to pass."""
    context = browser.new_context(viewport=VIEWPORT)
    viewer = Viewer(context.new_page())
    viewer.page.clock.install(time=0)
    viewer.load().page.evaluate(BITMAPS)
    run(viewer)
    viewer.page.clock.pause_at(60_000)
    viewer.status()
    viewer.forget()
    yield viewer
    context.close()
    assert viewer.problems == []


def press(viewer, *keys):
    for key in keys:
        viewer.page.keyboard.press(key)


def drag(viewer, *points, shift=False):
    mouse, keyboard = viewer.page.mouse, viewer.page.keyboard
    mouse.move(*points[0])
    if shift:
        keyboard.down("Shift")
    mouse.down()
    for point in points[1:]:
        mouse.move(*point, steps=3)
    mouse.up()
    if shift:
        keyboard.up("Shift")


def settled(viewer, kind):
    """Return the last of what the view says of a kind, once it says no more."""
    viewer.wait_said(kind)
    viewer.page.wait_for_timeout(250)
    return viewer.said(kind)[-1]


def frame_decoded(viewer, data, **keys):
    """Send a picture and wait until it is decoded, with a clock that stands."""
    before = viewer.page.evaluate("bitmaps.length")
    n = viewer.frame(data, **keys)
    viewer.page.wait_for_function("(before) => bitmaps.length > before", arg=before)
    return n


def text_of(viewer, selector):
    return viewer.page.locator(selector).first.inner_text()


def shares(viewer, selector, within=".frame"):
    """Return where an element is, as shares of another: left, top, width, height."""
    return viewer.page.evaluate(
        """([a, b]) => {
          const [r, c] = [a, b].map((s) => document.querySelector(s).getBoundingClientRect());
          const size = [r.width / c.width, r.height / c.height];
          return [(r.x - c.x) / c.width, (r.y - c.y) / c.height, ...size];
        }""",
        [selector, within],
    )


# --- Acknowledging --------------------------------------------------------------------------------


def test_what_is_not_painted_is_acknowledged_after_100_ms(clocked):
    clocked.page.evaluate("globalThis.requestAnimationFrame = () => 1; 0")
    n = frame_decoded(clocked, png(picture(seed=1)), roi=FULL)
    clocked.page.clock.run_for(90)
    assert clocked.said("ack") == []
    clocked.page.clock.run_for(20)
    (ack,) = clocked.said("ack")
    assert ack["n"] == n
    assert ack["painted"] == n - 1
    assert 95_000 <= ack["held_us"] <= 115_000


def test_a_picture_that_is_superseded_is_acknowledged_at_once(clocked):
    parts = [
        {"cam": 0, "b64": True, "mime": "image/png", "roi": FULL}
        | {"data": base64.b64encode(png(picture(seed=seed))).decode()}
        for seed in range(5)
    ]
    messages = [
        {"t": "frames", "n": i + 10, "ack": i < 4, "parts": [part]} for i, part in enumerate(parts)
    ]
    clocked.page.evaluate("(all) => { for (const m of all) tell('msg:custom', m, []) }", messages)
    # The first is being decoded; each of the others takes the place of the one before.
    acks = clocked.said("ack")[:3]
    assert [ack["n"] for ack in acks] == [12, 13, 14]
    assert [ack["missed"] for ack in acks] == [1, 1, 1]
    clocked.page.wait_for_function("bitmaps.length >= 3")
    clocked.page.clock.run_for(40)
    assert (clocked.pixels()[..., :3] == picture(seed=4)).all()


def test_an_acknowledgement_counts_bytes_and_the_time_they_took(clocked):
    data = png(picture(seed=1))
    clocked.frame(data, roi=FULL)
    clocked.page.clock.run_for(110)
    clocked.forget()
    for _ in range(3):
        clocked.page.clock.run_for(40)
        n = clocked.frame(data, ack=False, roi=FULL)
    clocked.page.clock.run_for(40)
    clocked.frame(data, roi=FULL)
    clocked.page.clock.run_for(110)
    ack = clocked.said("ack")[-1]
    assert ack["n"] == n + 1
    assert ack["bytes"] == 4 * len(data)
    assert 260_000 <= ack["span_us"] <= 275_000  # from the receipt before: 110 and 4 times 40 ms


def test_each_message_that_asks_is_answered_once(running):
    for i in range(4):
        running.show(png(picture(seed=i)), roi=FULL)
    running.page.wait_for_timeout(200)
    assert [ack["n"] for ack in running.said("ack")] == [2, 3, 4, 5]


# --- Being there ----------------------------------------------------------------------------------


def test_a_covered_tab_paints_nothing_and_then_the_newest(running):
    running.page.evaluate(
        """globalThis.state = "hidden";
           Object.defineProperty(document, "visibilityState", { get: () => state });
           document.dispatchEvent(new Event("visibilitychange"))"""
    )
    assert running.wait_said("visible")[-1]["on"] is False
    for seed in (1, 2, 3):
        n = running.frame(png(picture(seed=seed)), roi=FULL)
    running.page.wait_for_timeout(150)
    assert running.said("ack")[-1]["painted"] < n - 2
    assert (running.pixels()[..., :3] == picture()).all()
    running.page.evaluate(
        "state = 'visible'; document.dispatchEvent(new Event('visibilitychange'))"
    )
    assert running.said("visible")[-1]["on"] is True
    running.page.wait_for_timeout(200)
    assert (running.pixels()[..., :3] == picture(seed=3)).all()
    assert running.show(png(picture(seed=4)), roi=FULL) == n + 1


def test_a_short_absence_is_not_worth_a_word(clocked):
    hide = "document.querySelector('#host').style.display = '%s'"
    clocked.page.evaluate(hide % "none")
    clocked.page.wait_for_timeout(100)
    clocked.page.clock.run_for(200)
    clocked.page.evaluate(hide % "")
    clocked.page.wait_for_timeout(100)
    clocked.page.clock.run_for(400)
    assert clocked.said("visible") == []


def test_out_of_the_page_a_view_is_gone_and_back_in_it_there_again(running):
    running.page.evaluate(
        """globalThis.host = document.querySelector("#host");
           globalThis.main = host.parentNode;
           host.remove()"""
    )
    running.wait_said("bye")
    assert running.page.evaluate("[...listeners.values()].flat().length") == 0
    running.forget()
    running.page.evaluate("main.append(host)")
    (hello,) = running.wait_said("hello")
    assert hello["w"] > 300
    running.wait_said("visible")
    running.show(png(picture(seed=2)), roi=FULL)
    assert (running.pixels()[..., :3] == picture(seed=2)).all()


def test_a_view_that_is_made_out_of_the_page_says_hello_when_it_is_in_it(viewer):
    viewer.page.evaluate(
        """globalThis.host = document.querySelector("#host");
           globalThis.main = host.parentNode;
           host.remove();
           document.querySelector = () => host"""
    )
    viewer.start()
    viewer.page.wait_for_timeout(400)
    assert viewer.said() == []
    viewer.page.evaluate("delete document.querySelector; main.append(host)")
    viewer.wait_said("hello")
    assert viewer.wait_said("visible")[-1]["on"] is True


def test_a_page_that_is_left_says_goodbye_and_hello_when_it_comes_back(running):
    running.page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide'))")
    assert [m["t"] for m in running.said()] == ["bye"]
    running.page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    running.wait_said("hello")


COUNTING = """
globalThis.counts = { observers: 0, timers: new Set(), listeners: 0, urls: new Set() };
for (const name of ["IntersectionObserver", "ResizeObserver"]) {
  const { observe, disconnect } = globalThis[name].prototype;
  globalThis[name].prototype.observe = function (...args) {
    this.counted ||= (counts.observers += 1);
    return observe.apply(this, args);
  };
  globalThis[name].prototype.disconnect = function () {
    if (this.counted) counts.observers -= 1;
    this.counted = 0;
    return disconnect.apply(this);
  };
}
for (const [set, clear] of [["setTimeout", "clearTimeout"], ["setInterval", "clearInterval"]]) {
  const [start, stop] = [globalThis[set], globalThis[clear]];
  globalThis[set] = (call, ms) => {
    const id = start(() => { if (set === "setTimeout") counts.timers.delete(id); call(); }, ms);
    counts.timers.add(id);
    return id;
  };
  globalThis[clear] = (id) => { counts.timers.delete(id); stop(id); };
}
for (const target of [window, document]) {
  const add = target.addEventListener.bind(target);
  target.addEventListener = (type, call, options) => {
    if (options?.signal) { // Playwright's own have none
      counts.listeners += 1;
      options.signal.addEventListener("abort", () => { counts.listeners -= 1; });
    }
    return add(type, call, options);
  };
}
const { createObjectURL, revokeObjectURL } = URL;
URL.createObjectURL = (blob) => {
  const url = createObjectURL(blob);
  counts.urls.add(url);
  return url;
};
URL.revokeObjectURL = (url) => { counts.urls.delete(url); revokeObjectURL(url); };
0
"""


def test_nothing_outlives_a_view(viewer):
    viewer.page.evaluate(COUNTING)
    run(viewer)
    press(viewer, "s", "p", "h")
    viewer.tell({"t": "saved", "name": "a.png", "path": "", "mime": "image/png"}, png(picture()))
    press(viewer, "+", "+")
    viewer.wait_said("roi")
    viewer.frame(png(picture(seed=1)), roi=FULL)
    assert viewer.page.evaluate("counts.listeners") >= 5
    viewer.page.evaluate("cleanup(); cleanup()")
    viewer.page.wait_for_timeout(50)
    counts = viewer.page.evaluate(
        "({ ...counts, timers: counts.timers.size, urls: counts.urls.size - 1 })"
    )  # the module is one address
    assert counts == {"observers": 0, "timers": 0, "listeners": 0, "urls": 0}
    assert viewer.page.evaluate("[...listeners.values()].flat().length") == 0


def test_bitmaps_are_closed(viewer):
    viewer.page.evaluate(BITMAPS)
    run(viewer)
    for seed in range(6):
        viewer.frame(png(picture(seed=seed)), ack=False, roi=FULL)
    viewer.show(png(picture(seed=7)), roi=FULL)
    assert viewer.page.evaluate("bitmaps.length") >= 2
    assert viewer.page.evaluate("bitmaps.every((b) => b.width === 0)")  # closed, or handed over


@pytest.mark.parametrize("how", ["front end", "kernel"])
def test_what_went_away_is_said_over_the_picture_and_taken_back(running, how):
    if how == "front end":
        running.page.evaluate("tell('comm_live_update')")
    else:
        running.tell({"t": "bye", "text": "cam1 was closed"})
    veil = running.page.locator(".veil")
    assert veil.inner_text() == ("disconnected" if how == "front end" else "cam1 was closed")
    press(running, "k", "s")
    assert running.said() == []
    running.status()
    running.wait_said("hello")
    assert not veil.is_visible()


# --- Zoom, pan, regions ---------------------------------------------------------------------------


def test_until_the_sharp_picture_comes_the_one_there_is_moves(running):
    drag(running, running.point(0.25, 0.25), running.point(0.75, 0.75), shift=True)
    roi = running.wait_said("roi")[-1]["roi"]
    left, top, width, height = shares(running, ".layer")
    assert np.allclose([width, height], [640 / roi[2], 360 / roi[3]], atol=0.02)
    assert np.allclose([left, top], [-roi[0] / roi[2], -roi[1] / roi[3]], atol=0.02)
    running.show(png(picture(seed=1)), roi=roi)
    assert np.allclose(shares(running, ".layer"), [0, 0, 1, 1], atol=0.01)


def test_dragging_pans_and_the_last_place_is_always_said(running):
    press(running, "+", "+", "+", "+")
    before = settled(running, "roi")["roi"]
    running.show(png(picture(seed=1)), roi=before)
    running.forget()
    box = running.box()
    drag(running, running.point(0.5, 0.5), *(running.point(0.5 - i / 40, 0.5) for i in range(1, 9)))
    after = settled(running, "roi")["roi"]
    assert after[1:] == before[1:]
    assert after[0] - before[0] == pytest.approx(0.2 * before[2], abs=2)
    assert box == running.box()
    said = running.said("roi")
    assert all(b["at"] - a["at"] > 80 for a, b in itertools.pairwise(said))


def test_arrows_with_shift_pan_within_the_source(running):
    press(running, "+", "+", *["Shift+ArrowRight"] * 12)
    x, _, width, _ = settled(running, "roi")["roi"]
    assert x + width == 640


def test_the_wheel_is_the_page_s_until_the_view_has_the_keyboard(running):
    running.page.evaluate("document.activeElement.blur(); document.body.style.height = '3000px'")
    running.page.mouse.move(*running.point(0.25, 0.25))
    running.page.mouse.wheel(0, 30)
    running.page.wait_for_function("scrollY > 0")
    assert running.said("roi") == []
    running.page.locator(BOX).focus()
    running.page.evaluate("scrollTo(0, 0)")
    running.page.mouse.wheel(0, -300)
    x, y, width, height = settled(running, "roi")["roi"]
    assert width < 640
    assert (x + 0.25 * width, y + 0.25 * height) == pytest.approx((160, 90), abs=2)
    assert running.page.evaluate("scrollY") == 0


def test_one_to_one_shows_a_pixel_of_the_source_for_each_of_the_screen(viewer):
    viewer.start()
    viewer.wait_said("visible")
    viewer.status(cam={"width": 3840, "height": 2160})
    viewer.show(png(picture()), roi=[0, 0, 3840, 2160])
    viewer.page.locator(BOX).focus()
    press(viewer, "1")
    roi = viewer.wait_said("roi")[-1]["roi"]
    box = viewer.box()
    assert roi[2:] == pytest.approx([box["width"], box["height"]], abs=1)
    assert roi[0] + roi[2] / 2 == pytest.approx(1920, abs=1)
    assert (
        viewer.page.get_by_role("button", name="One to one").get_attribute("aria-pressed") == "true"
    )
    viewer.forget()
    press(viewer, "0")
    assert settled(viewer, "roi")["roi"] is None


def test_a_region_that_the_kernel_shows_is_followed(running):
    running.show(png(picture(seed=1)), roi=[100, 50, 320, 180])
    assert np.allclose(shares(running, ".layer"), [0, 0, 1, 1], atol=0.01)
    press(running, "p")
    running.page.mouse.move(*running.point(0.5, 0.5))
    probe = settled(running, "probe")
    assert (probe["x"], probe["y"]) == pytest.approx((260, 140), abs=1)


def test_beside_a_letterboxed_picture_there_is_no_pixel(running):
    running.show(
        png(picture(80, 90)), roi=[0, 0, 320, 360]
    )  # half of the source: bars at its sides
    left, _, width, _ = shares(running, ".frame", ".box")
    assert (left, width) == pytest.approx((0.25, 0.5), abs=0.01)
    press(running, "p")
    running.page.mouse.move(*running.point(0.375, 0.5))
    probe = settled(running, "probe")
    assert (probe["x"], probe["y"]) == pytest.approx((80, 180), abs=1)
    assert running.page.locator(".probe").is_visible()
    running.page.mouse.move(*running.point(0.1, 0.5))
    assert not running.page.locator(".probe").is_visible()


def test_escape_drops_a_region_half_drawn(running):
    running.page.mouse.move(*running.point(0.2, 0.2))
    running.page.keyboard.down("Shift")
    running.page.mouse.down()
    running.page.mouse.move(*running.point(0.8, 0.8), steps=3)
    press(running, "Escape")
    running.page.mouse.up()
    running.page.keyboard.up("Shift")
    running.page.wait_for_timeout(100)
    assert running.said("roi") == []


# --- The probe and the histogram ------------------------------------------------------------------


def test_arrows_move_the_probe_and_say_what_is_there(running):
    press(running, "p")
    start = settled(running, "probe")
    running.forget()
    press(running, "ArrowRight", "Shift+ArrowDown")
    probe = settled(running, "probe")
    assert (probe["x"], probe["y"]) == (start["x"] + 1, start["y"] + 10)
    running.tell({**probe, "seq": 1, "yuv": None, "rgb": [1, 2, 3]})
    assert f"pixel {probe['x']}, {probe['y']}" in text_of(running, "[role=status]")
    running.tell(
        {**probe, "id": probe["id"] + 1, "rgb": [9, 9, 9], "yuv": [7, 7, 7]}
    )  # another view's
    assert "9" not in text_of(running, ".probe .rows > div:last-child")


def test_probes_are_asked_for_sparingly(running):
    press(running, "p")
    running.page.mouse.move(*running.point(0.1, 0.1))
    running.page.mouse.move(*running.point(0.9, 0.9), steps=60)
    last = settled(running, "probe")
    assert (last["x"], last["y"]) == pytest.approx((576, 324), abs=1)
    said = running.said("probe")
    assert all(b["at"] - a["at"] > 55 for a, b in itertools.pairwise(said))


def test_a_histogram_has_its_figures_as_text(running):
    press(running, "h")
    counts = [0] * 256
    counts[10], counts[100], counts[200] = 10, 80, 10
    running.tell({"t": "histogram", "cam": 0, "seq": 1, "y": counts, "r": counts, "g": 5, "b": []})
    label = running.page.locator(".histogram canvas").get_attribute("aria-label")
    assert label == "Histogram of Y: mean 101.0, 5 % 10, median 100, 95 % 200"
    press(running, "h")
    assert [m["on"] for m in running.said("histogram")] == [True, False]
    assert not running.page.locator(".histogram").is_visible()


# --- Overlays -------------------------------------------------------------------------------------


def test_shapes_change_with_their_picture_and_not_before(clocked):
    box = {"kind": "box", "xywh": [64, 36, 64, 36], "label": "one"}
    frame_decoded(clocked, png(picture(seed=1)), roi=FULL, shapes=[box])
    labels = clocked.page.locator(".labels span")
    assert labels.count() == 0
    clocked.page.clock.run_for(20)
    assert labels.all_inner_texts() == ["one"]
    assert (clocked.pixels()[..., :3] == picture(seed=1)).all()
    frame_decoded(clocked, png(picture(seed=2)), roi=FULL)
    assert labels.count() == 1
    clocked.page.clock.run_for(20)
    assert labels.count() == 0


def test_shapes_are_placed_in_what_the_picture_shows(running):
    box = {"kind": "box", "xywh": [200, 100, 80, 45], "label": "b", "color": "rgb(1 2 3)"}
    running.show(png(picture(seed=1)), roi=[160, 90, 320, 180], shapes=[box])
    assert np.allclose(shares(running, ".overlay path"), [0.125, 1 / 18, 0.25, 0.25], atol=0.02)
    left, *_ = shares(running, ".labels span")
    assert left == pytest.approx(0.125, abs=0.01)
    path = running.page.locator(".overlay path")
    assert path.get_attribute("stroke") == "rgb(1 2 3)"
    path.evaluate("(node) => { globalThis.kept = node }")
    running.show(png(picture(seed=2)), roi=FULL, shapes=[box, box])
    assert running.page.evaluate("kept === document.querySelector('.overlay path')")


@pytest.mark.parametrize("colour", ["url(x)", "red;}", "nonsense", None, 7, "x" * 99])
def test_a_colour_that_is_none_is_the_default(running, colour):
    shape = {"kind": "line", "points": [[0, 0], [9, 9]], "color": colour}
    running.show(png(picture(seed=1)), roi=FULL, shapes=[shape])
    assert running.page.locator(".overlay path").get_attribute("stroke") == "#ffb300"


def test_a_mask_colours_what_is_white_in_it(running):
    out = io.BytesIO()
    bits = np.zeros((4, 8), np.uint8)
    bits[1:3, 2:4] = 255
    Image.fromarray(bits).convert("1").save(out, "PNG")
    mask = {
        "kind": "mask", "size": [8, 4], "bits": base64.b64encode(out.getvalue()).decode(),
        "roi": [320, 0, 320, 360], "color": "rgb(255 0 0)",
    }  # fmt: skip
    running.show(png(picture(seed=1)), roi=FULL, shapes=[mask])
    data = running.page.evaluate(
        """() => { const c = document.querySelector(".masks canvas");
             return [...c.getContext("2d").getImageData(0, 0, 8, 4).data]; }"""
    )
    rgba = np.array(data).reshape(4, 8, 4)
    assert (rgba[..., 3] == bits).all()
    assert (rgba[1, 2] == [255, 0, 0, 255]).all()
    assert np.allclose(shares(running, ".masks canvas"), [0.5, 0, 0.5, 1], atol=0.01)


def test_shapes_that_make_no_sense_are_left_out(running):
    nonsense = [
        {"kind": "box", "xywh": [1, 2, "x", 4]}, {"kind": "points", "points": "no"},
        {"kind": "line", "points": [[None, 1], "ab", 5]}, {"kind": "mask", "bits": "!"},
        {"kind": "text", "at": 5, "text": "never"}, {"kind": 5}, 7, None, {"kind": "polygon"},
    ]  # fmt: skip
    good = {"kind": "text", "at": [5, 5], "text": "good"}
    running.show(png(picture(seed=1)), roi=FULL, shapes=[*nonsense, good])
    assert running.page.locator(".overlay path").count() == 0
    assert running.page.locator(".labels span").all_inner_texts() == ["good"]


def test_overlays_can_be_hidden(running):
    box = {"kind": "box", "xywh": [64, 36, 64, 36]}
    running.show(png(picture(seed=1)), roi=FULL, shapes=[box])
    assert running.page.locator(".overlay path").is_visible()
    press(running, "o")
    assert not running.page.locator(".overlay path").is_visible()
    running.show(png(picture(seed=2)), roi=FULL, shapes=[box, box])
    press(running, "o")
    assert running.page.locator(".overlay path").count() == 2


# --- Controls -------------------------------------------------------------------------------------


def test_buttons_say_what_they_do_and_do_it(running):
    page = running.page
    page.get_by_role("button", name="Pause", exact=True).click()
    running.wait_said("pause")
    page.get_by_role("button", name="Play", exact=True).click()
    running.wait_said("play")
    page.get_by_role("button", name="Step back").click()
    assert running.wait_said("step")[-1]["by"] == -1
    page.get_by_role("button", name="Record").click()
    assert running.wait_said("record")[-1]["on"] is True
    assert text_of(running, ".rec") == "rec"
    for button in page.get_by_role("button").all():
        assert button.get_attribute("title")


def test_after_a_click_keys_are_the_picture_s(running):
    running.page.get_by_role("button", name="Zoom in").click()
    press(running, "Space")
    running.wait_said("pause")
    running.page.get_by_role("button", name="Play", exact=True).focus()
    press(running, "Space")  # a button that has the keyboard is pressed, and once
    running.wait_said("play")
    assert len(running.said("pause")) + len(running.said("play")) == 2


def test_arrows_step_while_it_is_paused(running):
    press(running, "ArrowLeft")
    assert running.wait_said("key")[-1]["key"] == "ArrowLeft"
    running.status(paused=True)
    press(running, "ArrowLeft")
    assert running.wait_said("step")[-1]["by"] == -1
    press(running, *["."] * 6)
    running.page.wait_for_timeout(150)
    assert sum(m["by"] for m in running.said("step")) == 5
    assert len(running.said("step")) < 7


def test_what_was_just_asked_for_is_not_undone_by_an_older_status(running):
    press(running, "k")
    running.status(paused=False)
    assert running.page.get_by_role("button", name="Play", exact=True).count() == 1


def test_keys_of_the_browser_and_of_jupyterlab_stay_theirs(running):
    press(running, "Control+b", "Meta+x", "Tab", "Shift")
    assert running.said("key") == []
    press(running, "Alt+Shift+J")
    key = running.wait_said("key")[-1]
    assert (key["key"], key["mods"]) == ("J", ["Alt", "Shift"])
    root = running.page.locator(".cuframes-view")
    press(running, "j")
    assert root.get_attribute("data-lm-suppress-shortcuts") is not None
    press(running, "Control+b")
    assert root.get_attribute("data-lm-suppress-shortcuts") is None


def test_recording_is_offered_where_it_can_be_done(running):
    running.status(can_record=False)
    assert running.page.get_by_role("button", name="Record").count() == 0
    press(running, "r")
    assert running.wait_said("key")[-1]["key"] == "r"
    assert running.said("record") == []


def test_a_file_that_another_view_asked_for_is_only_named(running):
    running.page.on("download", lambda _: running.problems.append("downloaded"))
    running.tell({"t": "saved", "name": "a.png", "path": "/x/a.png", "mime": "image/png"}, b"123")
    assert text_of(running, "[role=status]") == "saved /x/a.png"
    running.page.wait_for_timeout(150)


def test_the_keys_are_listed(running):
    page = running.page
    press(running, "?")
    assert "save a snapshot" in page.get_by_role("dialog").inner_text()
    press(running, "Escape")
    assert page.get_by_role("dialog").count() == 0
    page.get_by_role("button", name="Keys").click()
    assert page.get_by_role("dialog").count() == 1
    page.get_by_role("button", name="Keys").click()
    assert page.get_by_role("dialog").count() == 0


# --- What is read ---------------------------------------------------------------------------------


def test_the_read_out_changes_at_most_twice_a_second_and_moves_nothing(clocked):
    clocked.page.evaluate(
        """globalThis.changes = 0;
           const all = { subtree: true, childList: true, characterData: true };
           new MutationObserver(() => { changes += 1 })
             .observe(document.querySelector(".figures"), all)"""
    )
    before = clocked.page.locator(".line").bounding_box()
    for seq in range(20):
        clocked.frame(png(picture(seed=seq)), roi=FULL, seq=seq + 100)
        clocked.page.clock.run_for(100)
    assert 1 <= clocked.page.evaluate("changes") <= 5
    clocked.tell({"t": "told", "text": "a long story " * 40, "level": "info"})
    assert clocked.page.locator(".line").bounding_box() == before
    assert "a long story" in text_of(clocked, "[role=status]")
    clocked.page.clock.run_for(9000)
    assert text_of(clocked, "[role=status]") == ""


def test_a_picture_is_described_at_rest(clocked):
    canvas = clocked.page.get_by_role("img").first
    clocked.page.clock.run_for(6000)
    assert canvas.get_attribute("aria-label") == "cam1, live, 640 by 360 pixels"
    clocked.status(cam={"state": "closed"})
    clocked.status(cam={"state": "waiting", "text": "for the publisher"})
    clocked.page.clock.run_for(1000)
    assert canvas.get_attribute("aria-label") == "cam1, closed, 640 by 360 pixels"
    assert text_of(clocked, ".chip") == "waiting: for the publisher"
    clocked.page.clock.run_for(6000)
    assert canvas.get_attribute("aria-label") == "cam1, waiting, 640 by 360 pixels"


def test_an_error_that_was_put_away_stays_away_until_there_is_another(running):
    error = {"where": "process", "text": "Traceback\nValueError: one", "count": 1}
    running.status(cam={"error": error})
    summary = running.page.locator("summary")
    assert summary.inner_text() == "process failed: ValueError: one"
    running.page.get_by_role("button", name="Dismiss").click()
    running.status(cam={"error": error | {"count": 1200}})
    assert not summary.is_visible()
    running.status(cam={"error": error | {"text": "ValueError: two", "count": 3}})
    assert summary.inner_text() == "process failed 3 times: ValueError: two"


def test_before_the_first_picture_it_says_what_it_waits_for(viewer):
    viewer.start()
    viewer.wait_said("visible")
    before = viewer.box()
    assert before["width"] / before["height"] == pytest.approx(16 / 9, abs=0.01)
    assert text_of(viewer, ".note") == "waiting for cam1 …"
    viewer.status(cam={"state": "waiting", "text": "nobody publishes cam1"})
    assert "nobody publishes cam1" in text_of(viewer, ".note")
    viewer.status()
    viewer.show(png(picture()), roi=FULL)
    assert viewer.box() == before
    assert not viewer.page.locator(".note").is_visible()


def test_the_widget_s_traits_are_followed(running):
    change = "([name, value]) => { traits[name] = value; tell(`change:${name}`) }"
    running.page.evaluate(change, ["width", 400])
    assert running.page.locator(".cuframes-view").bounding_box()["width"] == 400
    running.page.evaluate(change, ["controls", False])
    assert not running.page.locator(".toolbar").is_visible()
    running.page.evaluate(change, ["label", "the gate"])
    assert running.page.get_by_role("group", name="the gate").count() == 1
    running.page.evaluate(change, ["names", ["a", "b"]])
    assert running.page.locator(".caption .name").all_inner_texts() == ["a", "b"]
    running.tell(
        {
            "t": "frames",
            "n": 90,
            "ack": True,
            "parts": [{"cam": 1, "mime": "image/png", "roi": FULL}],
        },
        png(picture(seed=4)),
    )
    running.wait_painted(90)
    assert (running.pixels(1)[..., :3] == picture(seed=4)).all()


def test_beside_others_a_view_has_a_size_of_its_own(viewer):
    viewer.page.evaluate(
        """document.querySelector("main").style.display = "flex";
           document.querySelector("main").append("beside it")"""
    )
    run(viewer)
    assert 400 < viewer.box()["width"] <= 640


# --- The grid -------------------------------------------------------------------------------------


def test_a_camera_of_a_grid_can_be_enlarged(viewer):
    run(viewer, names=("cam1", "cam2", "cam3"))
    width = viewer.box(1)["width"]
    viewer.page.mouse.click(*viewer.point(0.5, 0.5, cam=1))
    assert viewer.wait_said("solo")[-1]["cam"] == 1
    assert viewer.box(1)["width"] > 1.8 * width
    assert settled(viewer, "size")["w"] > 1.8 * width
    press(viewer, "s")
    assert viewer.wait_said("snapshot")[-1]["cam"] == 1
    press(viewer, "Escape")
    assert viewer.said("solo")[-1]["cam"] is None
    assert viewer.box(1)["width"] == width
    viewer.page.get_by_role("button", name="cam3: enlarge").focus()
    press(viewer, "Enter")
    assert viewer.said("solo")[-1]["cam"] == 2
    viewer.page.get_by_role("button", name="cam3: back to all").click()
    assert viewer.said("solo")[-1]["cam"] is None


def test_a_grid_acknowledges_when_all_of_a_message_is_painted(viewer):
    run(viewer, names=("cam1", "cam2"))
    parts = [{"cam": i, "mime": "image/png", "roi": FULL} for i in (0, 1)]
    viewer.tell({"t": "frames", "n": 7, "ack": True, "parts": parts}, png(picture()), b"none")
    (ack,) = viewer.wait_said("ack")
    assert (ack["n"], ack["painted"], ack["missed"]) == (7, 7, 1)


def test_a_grid_fits_where_there_is_little_room(viewer):
    viewer.page.set_viewport_size({"width": 320, "height": 900})
    run(viewer, names=tuple(f"camera {i}" for i in range(4)))
    assert viewer.page.evaluate("document.documentElement.scrollWidth") <= 320


# --- For everybody --------------------------------------------------------------------------------


def busy(viewer):
    press(viewer, "+", "p", "h")
    box = {"kind": "box", "xywh": [264, 136, 64, 36], "label": "one"}
    viewer.show(png(picture(seed=1)), roi=FULL, shapes=[box])
    viewer.status(recording=True)
    viewer.tell({"t": "told", "text": "something went wrong", "level": "error"})


def failed_grid(viewer):
    error = {"where": "overlay", "text": "Traceback\n" + "ValueError: x\n" * 60, "count": 5}
    viewer.status(cams=2, cam={"state": "error", "text": "it broke", "error": error})
    viewer.page.locator("summary").first.click()


def enlarged(viewer):
    viewer.page.mouse.click(*viewer.point(0.5, 0.5, cam=1))


ONE, TWO = ("cam1",), ("cam1", "cam2")
STATES = {
    "busy": (ONE, busy),
    "keys listed": (ONE, lambda viewer: press(viewer, "?")),
    "lost": (ONE, lambda viewer: viewer.page.evaluate("tell('comm_live_update')")),
    "closed": (ONE, lambda viewer: viewer.status(cam={"state": "closed", "text": "it ended"})),
    "failed grid": (TWO, failed_grid),
    "enlarged": (TWO, enlarged),
}


@pytest.mark.parametrize("state", STATES)
def test_axe_finds_nothing_whatever_happens(viewer, state):
    names, happen = STATES[state]
    run(viewer, names=names)
    happen(viewer)
    for scheme in ("light", "dark"):
        viewer.page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
        results = Axe().run(viewer.page)
        assert results.violations_count == 0, f"{scheme}: {results.generate_report()}"


def test_nothing_moves_for_those_who_want_it_so(running):
    seconds = """[...document.querySelectorAll(".cuframes-view *")]
      .map((node) => getComputedStyle(node).transitionDuration)"""
    running.page.emulate_media(reduced_motion="reduce")
    assert set(running.page.evaluate(seconds)) == {"0s"}


def test_the_keyboard_is_seen(running):
    press(running, "Tab")
    style = running.page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert style == "solid"
