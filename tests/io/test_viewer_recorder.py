"""The record button: films of what a view shows, whether anybody looks or not."""

import threading
import time

import av
import pytest

import cuframes_nb as cf
from cuframes_nb._viewer import pipeline
from tests.helpers.frames import publish, publisher, until
from tests.helpers.pages import Page, looking

SIZE = {"width": 64, "height": 48}


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(pipeline, "_STATUS_SECONDS", 0.02)
    return tmp_path


@pytest.fixture
def live():
    """Publish all the while."""
    stop = threading.Event()

    def work(pub):
        while not stop.wait(0.01):
            publish(pub)

    with publisher(**SIZE) as pub:
        thread = threading.Thread(target=work, args=(pub,))
        thread.start()
        yield pub
        stop.set()
        thread.join()


def frames_in(path):
    with av.open(str(path)) as film:
        return sum(1 for _ in film.decode(video=0))


def begin(page, seconds=0.3):
    page.say("record", on=True)
    until(lambda: page.status.get("recording"))
    time.sleep(seconds)


def test_a_film_is_made_from_on_to_off(live, folder):
    with looking("cam") as page:
        page.hello()
        page.wait_for_more()
        assert page.status["can_record"]
        assert not page.status["recording"]
        begin(page)
        page.say("record", on=True)  # twice is once
        page.say("pause")  # what is shown does not matter
        time.sleep(0.3)
        page.say("record", on=False)
        until(lambda: page.said("saved"))
        [saved] = page.said("saved")
        [film] = folder.iterdir()
        assert saved["path"] == str(film)
        assert saved["name"] == film.name
        assert film.name.startswith("camera 0-")
        assert saved["mime"] == "video/mp4"
        assert frames_in(film) > 10
        until(lambda: not page.status["recording"])
        until(lambda: live.stats.subscribers == 1)


def test_it_goes_on_when_nobody_looks_and_ends_with_the_view(live, folder):
    with looking("cam") as page:
        page.hello()
        page.wait_for_more()
        begin(page, 0.1)
        page.bye()
        time.sleep(0.3)
    [film] = folder.iterdir()
    assert frames_in(film) > 10


def test_a_grid_is_recorded_stream_by_stream(live, folder):
    with publisher("other", **SIZE) as other, looking("cam", "other", "absent") as page:
        page.hello()
        publish(other)
        until(lambda: {picture.cam for picture in page.pictures} == {0, 1})
        begin(page)
        until(lambda: page.said("told"))
        assert "camera 2" in page.said("told")[0]["text"]
        page.say("record", on=False)
        until(lambda: len(page.said("saved")) == 2)
        assert len(list(folder.iterdir())) == 2


def test_a_subscriber_s_stream_is_subscribed_to_once_more(live, folder):
    with cf.subscribe("cam") as sub, looking(sub) as page:
        page.hello()
        page.wait_for_more()
        begin(page)
        assert live.stats.subscribers == 2
        page.say("record", on=False)
        until(lambda: page.said("saved"))
        assert frames_in(next(folder.iterdir())) > 10


def test_what_cannot_be_written_is_told(live, folder, monkeypatch):
    with looking("cam") as page:
        page.hello()
        page.wait_for_more()
        gone = folder / "gone"
        gone.mkdir()
        monkeypatch.chdir(gone)
        gone.rmdir()
        page.say("record", on=True)
        until(lambda: page.said("told"))
        assert page.said("told")[0]["level"] == "error"
        assert "not recorded" in page.said("told")[0]["text"]
        assert not page.status["recording"]
        monkeypatch.chdir(folder)


def test_one_that_ends_by_itself_is_told(folder):
    with looking("cam") as page:
        with publisher(**SIZE) as pub:
            page.hello()
            publish(pub)
            page.wait_for(1)
            page.say("record", on=True)
            until(lambda: pub.stats.subscribers == 2)
            publish(pub)
            until(lambda: any(film.stat().st_size for film in folder.iterdir()))
        until(lambda: page.said("saved"))
    assert frames_in(next(folder.iterdir())) >= 1


def test_what_was_never_begun_may_be_ended():
    page = Page()
    with publisher(**SIZE) as pub, looking("cam", page=page) as page:
        page.hello()
        page.say("record", on=False)
        publish(pub)
        page.wait_for(1)
