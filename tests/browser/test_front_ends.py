"""The live view in front ends that carry messages in other ways than JupyterLab does."""

import base64
import json

import comm
import pytest

import cuframes_nb as cf
from tests.browser.cameras import Camera
from tests.browser.front_ends import Comm, Link
from tests.browser.page import Viewer, picture, png
from tests.helpers.shells import shell

__all__ = ["shell"]

pytestmark = pytest.mark.foreign_fds("the browser and its driver keep pipes")

FULL = [0, 0, 640, 360]
BOX = "[role=application]"
FORMS = """
const frame = document.createElement("iframe");
frame.hidden = true;
document.body.append(frame);
const other = frame.contentWindow; // its classes are not those of this page
const array = (u8) => {
  const buffer = new other.ArrayBuffer(u8.length);
  new Uint8Array(buffer).set(u8);
  return buffer;
};
Object.assign(wrap, {
  part: (u8) => {
    const all = new Uint8Array(u8.length + 64);
    all.set(u8, 33);
    return all.subarray(33, 33 + u8.length);
  },
  "array of another window": array,
  "view of another window": (u8) => new other.DataView(array(u8)),
  "bytes of another window": (u8) => new other.Uint8Array(array(u8)),
  nothing: () => null,
  "plain object": (u8) => ({ ...u8 }),
  json: (u8) => ({ type: "Buffer", data: [...u8] }),
  text: (u8) => String.fromCharCode(...u8.subarray(0, 99)),
});
0
"""


@pytest.fixture(scope="module")
def tab(browser):
    context = browser.new_context(viewport={"width": 900, "height": 900})
    yield context.new_page()
    context.close()


@pytest.fixture
def viewer(tab):
    tab.goto("about:blank")
    viewer = Viewer(tab).load()
    tab.evaluate(FORMS)
    yield viewer
    assert viewer.problems == []


def run(viewer):
    """Show a picture and give the view the keyboard."""
    viewer.start()
    viewer.wait_said("visible")
    viewer.status()
    viewer.show(png(picture()), roi=FULL)
    viewer.page.locator(BOX).first.focus()
    viewer.forget()
    return viewer


@pytest.fixture
def running(viewer):
    return run(viewer)


def is_shown(viewer, seed, cam=0):
    return (viewer.pixels(cam)[..., :3] == picture(seed=seed)).all()


# --- Buffers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "form",
    [
        "part",
        "array of another window",
        "view of another window",
        "bytes of another window",
    ],
)
def test_buffers_come_in_many_forms(running, form):
    running.show(png(picture(seed=3)), wrap=form, roi=FULL)
    assert is_shown(running, 3)
    assert not any(hello.get("b64") for hello in running.said("hello"))


@pytest.mark.parametrize("form", ["nothing", "plain object", "json", "text"])
def test_what_is_no_buffer_is_as_good_as_none(running, form):
    for seed in (1, 2):
        running.frame(png(picture(seed=seed)), wrap=form, roi=FULL)
    running.wait_said("ack")
    assert {hello["b64"] for hello in running.said("hello")} == {True}
    data = base64.b64encode(png(picture(seed=4))).decode()
    part = {"cam": 0, "mime": "image/png", "roi": FULL, "b64": True, "data": data}
    running.tell({"t": "frames", "n": 4, "ack": True, "parts": [part]}, b"lost", wrap=form)
    running.wait_painted(4)
    assert is_shown(running, 4)


# --- The order of messages ------------------------------------------------------------------------


@pytest.mark.parametrize("n", [2, 3], ids=["late", "twice"])
def test_a_picture_that_is_not_newer_changes_nothing(running, n):
    for seed in (1, 2):
        running.show(png(picture(seed=seed)), roi=FULL)  # 2 and 3
    running.forget()
    part = {"cam": 0, "mime": "image/png", "roi": FULL}
    running.tell({"t": "frames", "n": n, "ack": True, "parts": [part]}, png(picture(seed=5)))
    running.page.wait_for_timeout(150)
    assert is_shown(running, 2)
    running.show(png(picture(seed=3)), roi=FULL)
    assert is_shown(running, 3)
    assert [ack["n"] for ack in running.said("ack")] == [4]
    assert running.said("ack")[0]["missed"] == 0


def test_who_counts_from_one_again_is_heard(running):
    for n in (5000, 1):
        part = {"cam": 0, "mime": "image/png", "roi": FULL}
        message = {"t": "frames", "n": n, "ack": True, "parts": [part]}
        running.tell(message, png(picture(seed=n)))
        running.page.wait_for_function("(n) => said.some((m) => m.t === 'ack' && m.n === n)", arg=n)
        assert is_shown(running, n)


def test_what_comes_before_the_view_is_made_is_shown(viewer):
    part = {"cam": 0, "seq": 1, "mime": "image/png", "roi": FULL}
    message = {"t": "frames", "n": 1, "ack": True, "parts": [part]}
    viewer.page.evaluate(
        """([message, picture]) => { // a front end that kept it until somebody listens
          const { on } = model;
          model.on = (name, call) => {
            on(name, call);
            if (name === "msg:custom") call(JSON.parse(message), [wrap.view(bytes(picture))]);
          };
        }""",
        [json.dumps(message), base64.b64encode(png(picture(seed=2))).decode()],
    )
    viewer.start()
    viewer.page.wait_for_function("document.querySelector('.layer canvas').width === 160")
    assert is_shown(viewer, 2)
    viewer.n = 1
    viewer.show(png(picture(seed=3)), roi=FULL)
    assert is_shown(viewer, 3)


# --- Sending --------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["throw new Error('gone')", "return Promise.reject('gone')"])
def test_what_cannot_be_sent_is_told_and_forgiven(running, how):
    running.page.evaluate(f"globalThis.send = model.send; model.send = () => {{ {how} }}; 0")
    running.page.keyboard.press("k")
    veil = running.page.locator(".veil")
    running.page.wait_for_selector("text=disconnected")
    running.page.evaluate("model.send = send; 0")
    running.status()
    running.wait_said("hello")
    assert not veil.is_visible()
    running.show(png(picture(seed=2)), roi=FULL)


# --- Being rendered -------------------------------------------------------------------------------


AGAIN = """
(where) => {
  const host = document.querySelector("#host");
  const el = where === "elsewhere" ? document.createElement("div") : host;
  if (el !== host) host.before(el);
  globalThis.first = cleanup;
  globalThis.cleanup = viewer.render({ model, el });
}
"""


@pytest.mark.parametrize("where", ["in its place", "elsewhere"])
def test_a_view_may_be_rendered_again_before_the_first_is_cleaned_up(viewer, where):
    viewer.start()
    before = viewer.wait_said("hello")[0]["view"]
    viewer.page.evaluate(AGAIN, where)
    now = viewer.wait_said("hello", 2)[1]["view"]
    viewer.show(png(picture(seed=1)), roi=FULL)
    viewer.page.evaluate("first()")
    assert [m["view"] for m in viewer.wait_said("bye")] == [before]
    viewer.forget()
    n = viewer.show(png(picture(seed=2)), roi=FULL)
    assert [(ack["view"], ack["n"]) for ack in viewer.said("ack")] == [(now, n)]
    assert viewer.page.locator(".cuframes-view").count() == 1
    assert is_shown(viewer, 2)
    viewer.page.locator(BOX).focus()
    viewer.page.keyboard.press("k")
    assert [m["view"] for m in viewer.wait_said("pause")] == [now]


def test_in_a_shadow_tree_all_is_as_elsewhere(viewer):
    viewer.page.evaluate(
        """() => {
          const css = [...document.querySelectorAll("style")].at(-1);
          const tree = document.querySelector("#host").attachShadow({ mode: "open" });
          const host = document.createElement("div");
          tree.append(css, host);
          globalThis.find = document.querySelector.bind(document);
          document.querySelector = (name) => (name === "#host" ? host : find(name));
        }"""
    )
    page = run(viewer).page
    box = viewer.box()
    assert box["width"] / box["height"] == pytest.approx(16 / 9, abs=0.01)
    page.keyboard.press("k")
    viewer.wait_said("pause")
    page.keyboard.press("?")
    assert page.get_by_role("dialog").count() == 1
    page.keyboard.press("Escape")
    assert page.get_by_role("dialog").count() == 0
    button = page.get_by_role("button", name="Full screen")
    for on in ("true", "false"):
        button.click()
        page.wait_for_function(
            """(on) => document.querySelector("#host").querySelector("[data-command=fullscreen]")
                 .getAttribute("aria-pressed") === on""",
            arg=on,
        )


# --- Browsers that know less ----------------------------------------------------------------------


def test_a_browser_may_know_no_options_and_no_offscreen_canvas(viewer):
    viewer.page.evaluate(
        """() => {
          const decode = createImageBitmap;
          globalThis.calls = 0;
          globalThis.createImageBitmap = (blob, ...options) => {
            calls += 1;
            return options.length ? Promise.reject(new TypeError("no options")) : decode(blob);
          };
          globalThis.kept = OffscreenCanvas;
          delete globalThis.OffscreenCanvas;
        }"""
    )
    viewer.start()
    for seed in range(4):
        viewer.show(png(picture(seed=seed)), roi=FULL)
    viewer.page.evaluate("globalThis.OffscreenCanvas = kept; 0")
    assert is_shown(viewer, 3)
    assert viewer.page.evaluate("calls") == 5  # what failed once is not tried again
    viewer.frame(b"this is no picture", roi=FULL)
    viewer.show(png(picture(seed=5)), roi=FULL)
    assert viewer.said("ack")[-1]["missed"] + viewer.said("ack")[-2]["missed"] == 1


def test_the_size_may_be_known_late(viewer):
    viewer.page.evaluate(
        """() => {
          globalThis.ResizeObserver = class extends ResizeObserver {
            constructor(call) { super((...args) => setTimeout(() => call(...args), 600)); }
          };
        }"""
    )
    viewer.start()
    viewer.status()
    viewer.frame(png(picture(seed=1)), roi=FULL)
    viewer.page.wait_for_timeout(200)
    assert viewer.said() == []
    (hello,) = viewer.wait_said("hello")
    assert hello["w"] > 300
    assert viewer.wait_said("visible")[-1]["on"] is True
    viewer.show(png(picture(seed=2)), roi=FULL)
    assert is_shown(viewer, 2)


# --- With the widget ------------------------------------------------------------------------------


@pytest.fixture
def linked(viewer, monkeypatch):
    """Return a function that makes a widget and shows it on the page."""
    monkeypatch.setattr(comm, "create_comm", Comm)
    views = []

    def show(**options):
        views.append(cf.view("cam1"))
        viewer.start(names=views[-1].names)
        return views[-1], Link(views[-1], viewer, **options)

    yield show
    for view in views:
        view.close()


@pytest.mark.parametrize("wrap", ["part", "json", None])
def test_a_stream_is_seen_whatever_becomes_of_buffers(linked, wrap):
    with Camera(width=640, height=360) as camera:
        _, link = linked(wrap=wrap)
        first = link.carry_until(lambda number: number > 0)
        assert link.carry_until(lambda number: number > first + 30) <= camera.number
    assert not link.goes_back


def test_answers_may_come_all_at_once_when_the_cell_ends(linked, shell):
    with Camera(width=640, height=360) as camera:
        view, link = linked()
        link.carry_until(lambda number: number > 30)

        def cell():
            began = camera.number
            link.carry_until(lambda number: number > began + 100, back=False)
            assert view.stats["safe"]

        shell.names["cell"] = cell
        shell.run("cell()")
        assert len(link.said) >= 2
        last = camera.number
        link.carry_until(lambda number: number > last + 30, seconds=5)
        assert not view.stats["safe"]
    assert not link.goes_back


class Disorder:
    """Brings everything at once in the wrong order, and once more after what comes next."""

    def __init__(self):
        self.late = []

    def __call__(self, messages):
        if not messages:
            return []
        late, self.late = self.late, messages
        return [*reversed(messages), *late]


def test_messages_may_come_twice_and_in_the_wrong_order(linked):
    with Camera(width=640, height=360) as camera:
        view, link = linked(to_page=Disorder(), to_kernel=Disorder())
        first = link.carry_until(lambda number: number > 0)
        last = link.carry_until(lambda number: number > first + 90, seconds=10)
        assert last > camera.number - 30
        assert view.stats["rtt_ms"] < 500
    assert not link.goes_back
