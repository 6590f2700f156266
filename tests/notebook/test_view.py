"""The live view as a widget, without a browser: the test is the front end."""

import contextlib
import contextvars
import functools
import gc
import io
import sys
import threading
import types
import weakref

import comm
import ipywidgets
import numpy as np
import pytest
from comm.base_comm import BaseComm
from PIL import Image

import cuframes_nb as cf
from cuframes_nb._viewer import camera, pipeline
from cuframes_nb.notebook.hearing import Hearing
from tests.helpers.frames import HEIGHT, WIDTH, check, publish, until
from tests.helpers.frames import publisher as publisher_of
from tests.helpers.pages import Page
from tests.helpers.shells import shell

__all__ = ["shell"]

PARENT = contextvars.ContextVar("parent", default=None)

publisher = functools.partial(publisher_of, color=cf.ColorSpec("bt601", "full"))


class FrontEnd(BaseComm):
    """The other end of a widget's comm: hands its messages to a page, and the page's to it."""

    def __init__(self, **options):
        self.page = None
        super().__init__(**options)

    def publish_msg(self, msg_type, data=None, metadata=None, buffers=None, **_):
        if msg_type == "comm_msg" and data["method"] == "custom" and self.page is not None:
            self.page.receive(data["content"], buffers)

    def tell(self, content):
        """Bring a message of the page, as a kernel does."""
        data = {"method": "custom", "content": content}
        self.handle_msg({"content": {"data": data}, "buffers": []})


@pytest.fixture(autouse=True)
def front_end(monkeypatch):
    """Let widgets have a front end."""
    monkeypatch.setattr(comm, "create_comm", FrontEnd)


@pytest.fixture
def quick(monkeypatch):
    """Let what comes after some time come soon."""
    monkeypatch.setattr(pipeline, "_STILL_SECONDS", 0.03)
    monkeypatch.setattr(pipeline, "_STATUS_SECONDS", 0.03)
    monkeypatch.setattr(pipeline, "_REST_SECONDS", 0.03)


@contextlib.contextmanager
def viewing(view):
    """Yield a page that shows the view; close it in the end."""
    page = Page()
    page.viewer, view.comm.page = view.comm, page
    try:
        yield page
    finally:
        view.close()
    assert page.problems == []


def show(pub, page):
    """Publish a frame and return its picture, once the page has it."""
    return page.wait_for(publish(pub))


# --- Making one -----------------------------------------------------------------------------------


def test_a_view_has_the_names_of_its_streams():
    with publisher("b") as pub, cf.subscribe("b") as sub:
        with viewing(view := cf.view("cuframes://a", width=300, controls=False)):
            assert view.names == ["a"]
            assert view.label == "Live view of a"
            assert (view.width, view.controls) == (300, False)
        for made in (cf.view(["a", sub, pub.info.path]), cf.grid(("a", sub, pub.info.path))):
            assert made.names == ["a", "b", "b"]
            made.close()


def test_what_is_wrong_is_refused_and_leaves_nothing(shell):
    before = dict(ipywidgets.widgets.widget._instances)
    for options, text in [
        ({"source": []}, "name at least one stream"),
        ({"source": 7}, "7"),
        ({"source": "cuframes://a/b"}, "a/b"),
        ({"fps": 0}, "fps is 0"),
        ({"fps": float("nan")}, "fps is nan"),
        ({"fps": "fast"}, "fps is 'fast'"),
        ({"width": 5}, "width is 5"),
        ({"width": 300.5}, r"width is 300\.5"),
        ({"quality": 0}, "quality is 0"),
        ({"quality": "best"}, "quality is 'best'"),
    ]:
        with pytest.raises(cf.InvalidArgumentError, match=text):
            cf.view(**{"source": "cam", **options})
        gc.collect()
        assert ipywidgets.widgets.widget._instances == before
        assert not heard_by(shell)


def heard_by(shell):
    """Return what listens to a shell's cells because of views."""
    callbacks = shell.ip.events.callbacks["pre_run_cell"]
    return [each for each in callbacks if "hearing" in getattr(each, "__module__", "")]


def test_a_view_without_an_encoder_leaves_nothing(shell, monkeypatch):
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    with pytest.raises(cf.UnsupportedError, match=r"install 'cuframes-nb\[lab\]'"):
        cf.view("cam")
    gc.collect()
    assert not heard_by(shell)


def test_without_its_libraries_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "anywidget", None)
    monkeypatch.delitem(sys.modules, "cuframes_nb.notebook.widget", raising=False)
    for make in (cf.view, lambda name: cf.grid([name])):
        with pytest.raises(cf.UnsupportedError, match=r"install 'cuframes-nb\[lab\]'"):
            make("cam")


# --- What it shows --------------------------------------------------------------------------------


def test_pictures_come_through_the_widget():
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        assert view.frame is None
        page.hello()
        assert show(pub, page).seq == 1
        check(view.frame)
        assert view.frame.seq == 1
        assert repr(view) == f"<View of cam, live, {view._viewer.sent} pictures sent>"


def test_a_view_is_controlled_from_python():
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        page.hello()
        for _ in range(3):
            show(pub, page)
        assert not view.paused
        view.pause()
        assert view.paused
        assert "paused" in repr(view)
        view.step(-1)
        assert view.frame.seq == 2
        view.step()
        assert view.frame.seq == 3
        view.play()
        assert not view.paused
        assert view.roi is None
        view.roi = [2, 4, np.int64(10), 12.0]
        assert view.roi == (2, 4, 10, 12)
        until(lambda: page.pictures[-1].roi == (2, 4, 10, 12))
        view.roi = None
        until(lambda: page.pictures[-1].roi == (0, 0, WIDTH, HEIGHT))
        assert view.stats["cams"][0]["state"] == "live"


@pytest.mark.parametrize(
    "roi", [5, "abcd", (1, 2, 3), (0, 0, 0, 1), (-1, 0, 5, 5), (0, None, 1, 1)]
)
def test_what_is_no_rectangle_is_refused(roi):
    with viewing(view := cf.view("cam")):
        with pytest.raises(cf.InvalidArgumentError, match="roi is"):
            view.roi = roi
        assert view.roi is None


def test_functions_may_be_replaced(quick):
    def wrong(_):
        raise ValueError("not like this")

    with publisher() as pub, viewing(view := cf.view("cam", process=wrong)) as page:
        assert view.process is wrong
        assert view.overlay is None
        page.hello()
        show(pub, page)
        until(lambda: page.camera["error"] and "not like this" in page.camera["error"]["text"])
        view.process = lambda _: np.full((10, 20), 200, np.uint8)
        until(lambda: page.pictures[-1].still and page.pictures[-1].pixels.min() == 200)
        until(lambda: page.camera["error"] is None)
        view.overlay = lambda frame: cf.Box(0, 0, frame.width, 1)
        until(lambda: page.pictures[-1].shapes)
        view.process = view.overlay = None
        until(lambda: not page.pictures[-1].shapes)


def test_options_reach_every_stream(quick):
    seen = set()
    with (
        publisher("a") as a,
        publisher("b") as b,
        viewing(cf.grid(["a", "b"], process=lambda frame: seen.add(frame.key))) as page,
    ):
        page.hello()
        for pub in (a, b):
            publish(pub)
        until(lambda: seen == {"a", "b"})


# --- Saving ---------------------------------------------------------------------------------------


def test_a_snapshot_has_the_whole_picture(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        with pytest.raises(cf.ClosedError, match="no picture of cam yet"):
            view.snapshot()
        page.hello()
        show(pub, page)
        view.roi = (0, 0, 8, 8)
        path = view.snapshot()
        assert path == tmp_path / "cam-000001.png"
        with Image.open(path) as image:
            assert np.array_equal(np.asarray(image), view.frame.rgb())
        assert view.snapshot("other.png") == tmp_path / "other.png"
        with pytest.raises(FileNotFoundError):
            view.snapshot(tmp_path / "nowhere" / "x.png")


def test_a_snapshot_has_what_process_made(tmp_path):
    made = np.arange(300, dtype=np.uint8).reshape(10, 10, 3)
    with publisher() as pub, viewing(view := cf.view("cam", process=lambda _: made)) as page:
        page.hello()
        show(pub, page)
        with Image.open(view.snapshot(tmp_path / "x.png")) as image:
            assert np.array_equal(np.asarray(image), made)


def test_a_page_may_ask_for_a_snapshot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with publisher() as pub, viewing(cf.view("cam")) as page:
        page.hello()
        page.say("snapshot", cam=0, download=False)
        until(lambda: page.said("told"))
        assert "no picture of cam yet" in page.said("told")[0]["text"]
        show(pub, page)
        for download in (False, True):
            page.forget()
            page.say("snapshot", cam=0, download=download)
            until(lambda: page.said("saved"))
            content, buffers = next(m for m in page.messages if m[0]["t"] == "saved")
            assert content["name"] == "cam-000001.png"
            assert content["path"] == str(tmp_path / "cam-000001.png")
            data = (tmp_path / "cam-000001.png").read_bytes()
            assert buffers == ([data] if download else [])


# --- What pages ask, and what is told -------------------------------------------------------------


def test_a_page_may_ask_for_a_pixel():
    asked = []
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        view.on_probe = lambda frame, x, y: asked.append((frame.seq, x, y))
        page.hello()
        page.say("probe", cam=0, x=0, y=0, id=4)
        assert view.stats  # by now it is heard
        show(pub, page)
        page.say("probe", cam=0, x=3, y=2, id=5)
        page.say("probe", cam=0, x=WIDTH, y=2, id=6)
        page.say("probe", cam=0, x=1, y=1, id=7)
        until(lambda: len(page.said("probe")) == 2)
        assert [said["id"] for said in page.said("probe")] == [5, 7]
        assert page.said("probe")[0]["yuv"] == [1, 1, 1]
        until(lambda: len(asked) >= 2)
        assert asked == [(1, 3, 2), (1, 1, 1)]


def test_a_page_may_ask_for_histograms(monkeypatch):
    monkeypatch.setattr(camera, "_HISTOGRAM_SECONDS", 0.0)
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        page.hello()
        page.say("histogram", cam=0, on=True)
        show(pub, page)
        until(lambda: page.said("histogram"))
        show(pub, page)
        until(lambda: page.said("histogram")[-1]["seq"] == 2)
        page.say("histogram", cam=0, on=False)
        page.say("histogram", cam=77, on=True)
        assert view.stats
        page.forget()
        show(pub, page)
        assert view.stats
        assert page.said("histogram") == []


def test_a_histogram_of_what_stands_comes_at_once():
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        page.hello()
        show(pub, page)
        view.pause()
        page.say("histogram", cam=0, on=True)
        until(lambda: page.said("histogram"))


def test_keys_reach_python():
    pressed = []
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        page.hello()
        page.say("key", key="a", mods=[])
        show(pub, page)
        assert view.stats  # by now it is heard
        view.on_key = lambda key, mods: pressed.append((key, mods))
        page.say("key", key="b", mods=["Shift", "Alt"])
        until(lambda: pressed == [("b", ("Alt", "Shift"))])


def test_each_frame_that_is_shown_is_told():
    seen = []
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        view.on_frame = lambda frame: seen.append(frame.seq)
        page.hello()
        for _ in range(3):
            show(pub, page)
        until(lambda: seen == [1, 2, 3])
        view.on_frame = None
        show(pub, page)
        assert seen == [1, 2, 3]


@pytest.mark.parametrize("name", ["on_frame", "on_probe", "on_key"])
def test_what_goes_wrong_in_functions_is_told_on_the_page(name):
    def wrong(*_):
        raise KeyError("lost")

    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        setattr(view, name, wrong)
        page.hello()
        show(pub, page)
        page.say("key", key="a", mods=[])
        page.say("probe", cam=0, x=0, y=0, id=1)
        until(lambda: page.said("told"))
        assert page.said("told")[0] == {"t": "told", "text": "KeyError: 'lost'", "level": "error"}
        show(pub, page)


def test_functions_may_use_and_close_the_view():
    with publisher() as pub, viewing(view := cf.view("cam")) as page:

        def on_key(key, _):
            view.pause()
            view.roi = (0, 0, 4, 4)
            assert view.stats["paused"]
            if key == "q":
                view.close()

        view.on_key = on_key
        page.hello()
        show(pub, page)
        page.say("key", key="a", mods=[])
        until(lambda: view.paused)
        page.say("key", key="q", mods=[])
        until(lambda: page.said("bye"))
        assert page.said("told") == []


# --- As an output of a notebook -------------------------------------------------------------------


def test_a_view_is_a_widget_with_a_picture_for_where_there_are_none():
    with publisher(width=1280, height=720) as pub, viewing(view := cf.view("cam")):
        publish(pub)
        data, _ = view._repr_mimebundle_()
        model = data["application/vnd.jupyter.widget-view+json"]["model_id"]
        assert ipywidgets.widgets.widget._instances[model] is view
        assert data["text/plain"] == "<View of cam, live, 0 pictures sent>"
        with Image.open(io.BytesIO(data["image/png"])) as image:
            assert image.size == (480, 270)
        assert pub.stats.slots_leased == 0
        until(lambda: pub.stats.subscribers == 0)


def test_a_view_of_nothing_has_no_picture():
    with viewing(view := cf.view("cam")):
        data, _ = view._repr_mimebundle_()
        assert set(data) == {"application/vnd.jupyter.widget-view+json", "text/plain"}
    with publisher(), viewing(view := cf.view("cam")):
        data, _ = view._repr_mimebundle_()
        assert "image/png" not in data


def test_a_stream_that_has_just_begun_has_a_picture(monkeypatch):
    monkeypatch.setattr(camera, "_PEEK_SECONDS", 30)
    with publisher() as pub, viewing(view := cf.view("cam")):
        first = threading.Timer(0.1, publish, (pub,))
        first.start()
        assert "image/png" in view._repr_mimebundle_()[0]
        first.join()


def test_a_subscriber_that_is_given_is_not_read_for_the_picture():
    with publisher() as pub, cf.subscribe("cam") as sub, viewing(view := cf.view(sub)) as page:
        publish(pub)
        assert "image/png" not in view._repr_mimebundle_()[0]
        page.hello()
        page.wait_for(1)
        assert "image/png" in view._repr_mimebundle_()[0]


# --- The end --------------------------------------------------------------------------------------


def test_close_ends_all_and_may_be_repeated():
    with publisher() as pub:
        with viewing(view := cf.view("cam")) as page:
            page.hello()
            show(pub, page)
            view.close()
            view.close()
            assert [said["text"] for said in page.said("bye")] == ["closed"]
            assert view.frame is None
            assert repr(view).startswith("<View of cam, closed")
            for use in (
                view.play,
                view.pause,
                view.step,
                view.snapshot,
                lambda: view.stats,
                lambda: setattr(view, "roi", None),
                lambda: setattr(view, "process", None),
                lambda: setattr(view, "overlay", None),
            ):
                with pytest.raises(cf.ClosedError, match="this view was closed"):
                    use()
            assert pub.stats.slots_leased == 0
            until(lambda: pub.stats.subscribers == 0)
            page.hello()
        assert not view._viewer.running


def test_all_widgets_may_be_closed_at_once():
    views = [cf.view("cam"), cf.grid(["cam", "cam"])]
    ipywidgets.Widget.close_all()
    for view in views:
        with pytest.raises(cf.ClosedError):
            view.play()


def test_a_view_may_be_closed_on_any_thread():
    with publisher() as pub, viewing(view := cf.view("cam")) as page:
        page.hello()
        show(pub, page)
        threads = [threading.Thread(target=view.close) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len(page.said("bye")) == 1


def test_two_hundred_views_leave_nothing(quick, shell):
    with publisher() as pub:
        publish(pub)
        before, gone = dict(ipywidgets.widgets.widget._instances), []
        for i in range(200):
            view = cf.view("cam", process=lambda frame: frame.y)
            with viewing(view) as page:
                if i % 10 == 0:
                    page.hello()
                    page.wait_for(1)
                    view._repr_mimebundle_()
            gone += [weakref.ref(view), weakref.ref(view._viewer)]
        del view, page
        gc.collect()
        assert [ref for ref in gone if ref() is not None] == []
        assert ipywidgets.widgets.widget._instances == before
        assert not heard_by(shell)
        until(lambda: pub.stats.subscribers == pub.stats.slots_leased == 0)


# --- Hearing --------------------------------------------------------------------------------------


def on_another_thread(action):
    thread = threading.Thread(target=action)
    thread.start()
    thread.join()


def test_without_a_shell_everything_is_heard():
    hearing = Hearing()
    assert not hearing.is_deaf()
    hearing.note()
    hearing.send(lambda: None)
    assert not hearing.is_deaf()
    hearing.close()


def test_pages_are_not_heard_while_a_cell_runs_on_the_thread_that_hears(shell):
    shell.run("from cuframes_nb.notebook.hearing import Hearing")
    shell.run("hearing = Hearing(); states = [hearing.is_deaf()]")
    hearing = shell.names["hearing"]
    assert not hearing.is_deaf()
    hearing.note()
    shell.run("states += [hearing.is_deaf()]")
    assert shell.names["states"] == [True, True]
    assert not hearing.is_deaf()
    hearing.close()
    hearing.close()
    shell.run("states += [hearing.is_deaf()]")
    assert shell.names["states"][2] is False


def test_pages_that_are_heard_on_another_thread_always_are(shell):
    shell.run("from cuframes_nb.notebook.hearing import Hearing")
    shell.run("hearing = Hearing(); states = [hearing.is_deaf()]")
    hearing = shell.names["hearing"]
    on_another_thread(hearing.note)
    shell.run("states += [hearing.is_deaf()]")
    assert shell.names["states"] == [True, False]
    hearing.close()


def test_what_is_heard_on_the_main_thread_says_that_no_cell_runs(shell):
    hearing = Hearing()  # by no cell that would end
    assert hearing.is_deaf()
    hearing.note()
    assert not hearing.is_deaf()
    hearing.close()


def test_a_shell_that_has_forgotten_its_listeners_is_no_error(shell):
    hearing = Hearing()
    for name in ("pre_run_cell", "post_run_cell"):
        shell.ip.events.callbacks[name].clear()
    hearing.close()


def kernel_with(subshells):
    """Return what `Hearing` looks at of a kernel with subshells."""
    manager = types.SimpleNamespace(list_subshell=lambda: list(subshells))
    return types.SimpleNamespace(
        get_parent=PARENT.get,
        shell_channel_thread=types.SimpleNamespace(manager=manager),
    )


def test_what_is_sent_counts_as_an_answer_to_the_page_s_own_subshell(shell):
    subshells = ["sub"]
    shell.ip.kernel = kernel_with(subshells)
    hearing = Hearing()
    sent = []

    def send():
        sent.append(PARENT.get())

    hearing.send(send)

    def hear(parent):
        PARENT.set(parent)
        hearing.note()

    parent = {"header": {"subshell_id": "sub"}}
    on_another_thread(lambda: hear(parent))
    on_another_thread(lambda: hearing.send(send))
    on_another_thread(lambda: hear({"header": {}}))
    on_another_thread(lambda: hearing.send(send))
    subshells.clear()
    on_another_thread(lambda: hearing.send(send))
    assert sent == [None, parent, parent, None]
    hearing.close()


def test_views_are_deaf_while_a_cell_runs(shell, quick):
    with publisher() as pub:
        publish(pub)
        shell.run("import cuframes_nb as cf; view = cf.view('cam')")
        view = shell.names["view"]
        with viewing(view) as page:
            page.answers = False  # on the view's own thread, that is
            page.hello()
            until(lambda: page.status.get("safe") is False)
            shell.names["wait"] = lambda: until(lambda: page.status["safe"])
            shell.run("wait()")
            until(lambda: page.status["safe"] is False)
        assert not heard_by(shell)
