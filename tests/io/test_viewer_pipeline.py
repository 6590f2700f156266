"""The thread of a view: real publishers, a real thread, and a page that the test plays."""

import base64
import contextlib
import functools
import gc
import math
import threading
import weakref

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

import cuframes_nb as cf
from cuframes_nb._viewer import accounts, messages, pipeline
from cuframes_nb._viewer import camera as camera_module
from cuframes_nb._viewer.answers import histogram_of, pixel_of, write_snapshot
from cuframes_nb._viewer.camera import Camera
from cuframes_nb._viewer.pacing import Pacer, Plan
from cuframes_nb._viewer.pipeline import Viewer
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.frames import HEIGHT, WIDTH, check, publish, until
from tests.helpers.frames import publisher as publisher_of
from tests.helpers.leaks import live_threads
from tests.helpers.pages import Page, looking

WHOLE = (0, 0, WIDTH, HEIGHT)

publisher = functools.partial(publisher_of, color=cf.ColorSpec("bt601", "full"))
"""Of frames that look different: in the full range no value is too dark to be seen."""


@pytest.fixture(autouse=True)
def best(monkeypatch):
    """Let pictures be as good as they can be from the first on."""
    monkeypatch.setattr(Pacer, "plan", Plan(95, 1.0))


@pytest.fixture
def quick(monkeypatch):
    """Let what comes after some time come soon."""
    monkeypatch.setattr(pipeline, "_STILL_SECONDS", 0.03)
    monkeypatch.setattr(pipeline, "_STATUS_SECONDS", 0.03)
    monkeypatch.setattr(pipeline, "_REST_SECONDS", 0.03)
    monkeypatch.setattr(pipeline, "_REST_HIDDEN_SECONDS", 0.03)
    monkeypatch.setattr(camera_module, "_RETRY_SECONDS", 0.03)


@pytest.fixture
def patient(monkeypatch):
    """Let a page that does not answer be waited for."""
    monkeypatch.setattr(accounts, "_PATIENCE_US", 60_000_000)
    monkeypatch.setattr(accounts, "_LAPSE_US", 60_000_000)


def show(pub, page, count=1):
    """Publish frames, waiting for each picture; return the last one's number."""
    seq = 0
    for _ in range(count):
        seq = publish(pub)
        page.wait_for(seq)
    return seq


def flat(pub, value=100):
    """Publish a frame that looks like the last."""
    with pub.acquire() as slot:
        for plane in slot.planes:
            plane[...] = value
        return pub.publish(slot)


def turn(page, times=1):
    """Return once the viewer's thread has gone round."""
    for _ in range(times):
        assert page.viewer.do(lambda: None, wait=30)


def states(page, count):
    """Return once the page was sent its state so many times."""
    before = len(page.said("status")) + sum("status" in m for m in page.said("frames"))
    until(
        lambda: (
            len(page.said("status")) + sum("status" in m for m in page.said("frames"))
            >= before + count
        )
    )


@contextlib.contextmanager
def publishing(pub, pause=0.002):
    """Publish all the while."""
    stop = threading.Event()

    def work():
        while not stop.wait(pause):
            with contextlib.suppress(cf.RingFullError):
                publish(pub)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def encoded(viewer):
    """Return the list to which each picture that is encoded from now on is added."""
    made, encode = [], viewer._encoder.encode
    viewer._encoder.encode = lambda *args: made.append(args) or encode(*args)
    return made


# --- Pictures -------------------------------------------------------------------------------------


def test_a_page_has_the_newest_picture_after_hello():
    with publisher() as pub, looking("cam") as page:
        publish(pub, 3)
        page.hello()
        picture = page.wait_for(3)
        assert (picture.n, picture.cam, picture.roi, picture.still) == (1, 0, WHOLE, False)
        assert picture.size == (WIDTH, HEIGHT)
        assert picture.mime == "image/jpeg"
        first = page.said("frames")[0]
        assert first["ack"] is True
        assert first["status"]["cams"][0]["state"] == "live"
        assert page.viewer.sent >= 1  # perhaps the still, too


def test_each_new_frame_becomes_a_picture():
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page, 10)
        assert [picture.seq for picture in page.lossy] == list(range(1, 11))
        assert [picture.n for picture in page.lossy] == list(range(1, 11))


def test_a_page_that_comes_while_nothing_is_published_sees_the_last_frame(quick):
    with publisher() as pub, looking("cam") as page:
        publish(pub)
        for _ in range(3):
            page.hello()
            page.wait_for(1)
            page.forget()
            page.bye()
            until(lambda: not page.viewer.running)
        page.hello()
        page.wait_for(1)
        page.say("visible", on=False)
        until(lambda: page.viewer.cameras[0].shown is None)
        page.forget()
        page.say("visible", on=True)
        page.wait_for(1)


def test_the_newest_frame_wins_on_a_slow_page(patient):
    page = Page(answers=False)
    with publisher() as pub, looking("cam", page=page) as page:
        page.hello()
        show(pub, page)
        assert publish(pub, 10) == 11
        page.acknowledge(1)
        page.wait_for(11)
        assert [picture.seq for picture in page.pictures] == [1, 11]


def test_what_is_taken_is_never_older_than_the_newest_then(monkeypatch):
    taken = []
    take = Camera.take

    def noting(camera, seconds):
        newest = pub.stats.published
        frame = take(camera, seconds)
        if frame is not None:
            taken.append((newest, frame.seq))
        return frame

    monkeypatch.setattr(Camera, "take", noting)
    with publisher() as pub, looking("cam") as page, publishing(pub):
        page.hello()
        page.wait_for_more(30)
    assert all(seq >= newest for newest, seq in taken)
    seqs = [picture.seq for picture in page.lossy]
    assert seqs == sorted(set(seqs))


def test_a_slow_page_slows_no_publisher(patient):
    page = Page(answers=False)
    with publisher(ring_size=2) as pub, looking("cam", page=page) as page:
        page.hello()
        show(pub, page)
        for _ in range(200):
            publish(pub)
        assert pub.stats.dropped == 0


def test_pictures_are_what_is_published():
    with publisher() as pub, looking("cam") as page:
        page.hello()
        for seq in range(1, 5):
            with pub.acquire() as slot:
                slot.y[...], slot.uv[...] = 40 * seq, 128
                pub.publish(slot)
            pixels = page.wait_for(seq).pixels.astype(int)
            assert abs(pixels - 40 * seq).max() <= 3


def test_identical_pictures_are_not_sent_again(quick):
    shown = []
    with publisher() as pub, looking("cam", on_frame=lambda _, f: shown.append(f.seq)) as page:
        page.hello()
        for seq in range(1, 11):
            assert flat(pub) == seq
            until(lambda: shown[-1:] == [seq])  # noqa: B023
        assert [picture.seq for picture in page.lossy] == [1]
        assert shown == list(range(1, 11))
        until(lambda: page.stills)
        flat(pub, 101)
        page.wait_for(11)
        page.hello()
        until(lambda: [picture.seq for picture in page.lossy] == [1, 11, 11])


def test_frames_that_look_the_same_are_looked_at_no_more_often_than_pictures_may_be_sent(quick):
    with publisher() as pub, looking("cam", fps=5) as page:
        made = encoded(page.viewer)
        page.hello()
        flat(pub)
        page.wait_for(1)
        with publishing_flat(pub):
            states(page, 3)
        assert 10 * len(made) < pub.stats.published


@contextlib.contextmanager
def publishing_flat(pub):
    """Publish the same picture all the while."""
    stop = threading.Event()

    def work():
        while not stop.wait(0.001):
            flat(pub)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def test_several_pages_are_sent_the_same_and_the_largest_decides_the_size():
    with publisher(width=640, height=480) as pub, looking("cam", page=Page(size=(64, 48))) as page:
        page.hello()
        publish(pub)
        assert page.wait_for(1).size == (64, 48)
        other = Page("other" * 4, (320, 240))
        other.viewer = page.viewer
        other.hello()
        until(lambda: page.pictures[-1].size == (320, 240))
        other.bye()
        publish(pub)
        assert page.wait_for(2).size == (64, 48)
        page.say("size", w=160, h=400)
        until(lambda: page.pictures[-1].size == (160, 120))


def test_a_view_that_is_hidden_does_not_decide_the_size():
    with publisher(width=640, height=480) as pub, looking("cam", page=Page(size=(64, 48))) as page:
        page.hello()
        other = Page("other" * 4, (320, 240))
        other.viewer = page.viewer
        other.hello()
        publish(pub)
        until(lambda: page.pictures and page.pictures[-1].size == (320, 240))
        other.say("visible", on=False)
        publish(pub)
        assert page.wait_for(2).size == (64, 48)


def test_only_the_camera_that_is_shown_alone_is_taken_made_and_sent():
    with publisher("a") as first, publisher("b") as second, looking("a", "b") as page:
        page.hello()
        publish(first)
        publish(second)
        page.wait_for(1, cam=0)
        page.wait_for(1, cam=1)
        page.say("solo", cam=1)
        until(lambda: first.stats.slots_leased == 0)
        publish(first)
        publish(second)
        page.wait_for(2, cam=1)
        assert page.viewer.do(lambda: None, wait=10)
        assert {(p.cam, p.seq) for p in page.pictures} == {(0, 1), (1, 1), (1, 2)}
        other = Page("other" * 4)
        other.viewer = page.viewer
        other.hello()  # and shows both
        page.wait_for(2, cam=0)
        other.bye()
        publish(first)
        publish(second)
        page.wait_for(3, cam=1)
        page.say("solo", cam=None)
        page.wait_for(3, cam=0)


def test_who_shows_a_camera_that_there_is_not_keeps_nobody_from_looking(quick):
    with publisher() as pub, looking("cam") as page:
        other = Page("other" * 4)
        other.viewer = page.viewer
        other.hello()
        other.say("solo", cam=200)
        page.hello()
        publish(pub)
        page.wait_for(1)


def test_pictures_come_as_text_alone_for_who_loses_buffers():
    with publisher() as pub, looking("cam") as page:
        page.say("hello", w=640, h=480, b64=True)
        show(pub, page)
        content, buffers = next(m for m in page.messages if m[0]["t"] == "frames")
        assert content["parts"][0]["b64"] is True
        assert base64.b64decode(content["parts"][0]["data"]).startswith(b"\xff\xd8")  # a JPEG
        assert buffers == []
        page.say("hello", w=640, h=480, b64=False)
        turn(page)
        show(pub, page)
        assert "data" not in page.said("frames")[-1]["parts"][0]


def test_who_asks_for_the_state_all_the_time_does_not_keep_it_from_pages(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.forget()

        def told():
            assert page.viewer.do(page.viewer.status, wait=30)
            return len(page.said("status")) >= 5

        until(told)


# --- Nobody looks ---------------------------------------------------------------------------------


def test_nothing_is_taken_without_a_view():
    with publisher() as pub, looking("cam") as page:
        publish(pub)
        for kind in ("play", "pause", "bye"):
            page.say(kind)
        page.say("visible", on=True)
        page.say("size", w=10, h=10)
        assert not page.viewer.running
        assert pub.stats.subscribers == pub.stats.slots_leased == 0
        assert page.messages == []


def test_nothing_is_taken_made_or_sent_while_the_view_is_hidden():
    with publisher() as pub, looking("cam") as page:
        made = encoded(page.viewer)
        page.hello()
        show(pub, page)
        page.say("visible", on=False)
        until(lambda: pub.stats.slots_leased == 0)
        count, sent = len(made), len(page.messages)
        for _ in range(20):
            publish(pub)
            turn(page)
            assert pub.stats.slots_leased == 0
        assert (len(made), len(page.messages)) == (count, sent)
        page.say("visible", on=True)
        page.wait_for(21)


def test_thread_and_subscription_end_with_the_last_view_and_begin_again(quick):
    with publisher() as pub, looking("cam") as page:
        for seq in range(1, 6):
            page.hello()
            publish(pub)
            page.wait_for(seq)
            assert pub.stats.subscribers == 1
            page.bye()
            until(lambda: not page.viewer.running)
            assert pub.stats.slots_leased == 0
            until(lambda: pub.stats.subscribers == 0)


def test_thread_and_subscription_end_when_nobody_has_looked_for_long(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.say("visible", on=False)
        until(lambda: not page.viewer.running)
        until(lambda: pub.stats.subscribers == 0)
        publish(pub)
        page.say("probe", cam=0, x=0, y=0, id=1)
        assert not page.viewer.running
        page.say("visible", on=True)
        page.wait_for(2)


def test_who_says_goodbye_while_there_is_no_thread_is_forgotten(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.say("visible", on=False)
        until(lambda: not page.viewer.running)
        page.bye()
        assert len(page.viewer._audience) == 0
        page.say("visible", on=True)
        assert not page.viewer.running


def test_whoever_talks_while_there_is_no_thread_keeps_nobody_away(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.say("visible", on=False)
        until(lambda: not page.viewer.running)
        for _ in range(3000):
            page.say("play")
        page.hello()
        page.wait_for(1)


# --- Pausing and stepping -------------------------------------------------------------------------


def test_pause_holds_the_picture_and_play_goes_on(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.say("pause")
        until(lambda: page.viewer.paused and page.status["paused"])
        for _ in range(20):
            publish(pub)
            turn(page)
        assert {picture.seq for picture in page.pictures} == {1}
        assert pub.stats.dropped == 0
        check(page.viewer.cameras[0].shown)
        page.say("play")
        page.wait_for(21)
        until(lambda: not page.status["paused"])


@pytest.mark.parametrize(("ring_size", "back"), [(2, 0), (3, 0), (4, 1), (8, 5)])
def test_frames_that_are_still_in_the_ring_can_be_stepped_to(ring_size, back):
    with publisher(ring_size=ring_size) as pub, looking("cam") as page:
        page.hello()
        last = show(pub, page, 10)
        camera = page.viewer.cameras[0]
        for steps, seq in [(1, max(last - 1, last - back)), (64, last - back), (1, last - back)]:
            page.say("step", by=-steps)
            turn(page)
            assert camera.shown.seq == seq
            check(camera.shown)
            page.wait_for(seq)
        page.say("step", by=64)
        turn(page)
        assert camera.shown.seq == last
        page.say("step", by=1)
        turn(page)
        assert camera.shown.seq == last  # there is nothing newer
        page.say("step", by=-64)
        turn(page)
        assert camera.shown.seq == last - back
        assert page.viewer.paused


def test_play_goes_on_with_the_newest_frame(patient):
    page = Page(answers=False)
    with publisher(ring_size=8) as pub, looking("cam", page=page) as page:
        page.hello()
        show(pub, page)
        publish(pub, 3)
        page.say("step", by=-1)
        page.say("play")
        turn(page)
        assert page.viewer.cameras[0].shown.seq == 4
        page.acknowledge(1)
        page.wait_for(4)
        until(lambda: pub.stats.slots_leased == 1)


@pytest.mark.parametrize("ring_size", [2, 3, 4, 8])
def test_frames_that_come_later_can_be_stepped_to(ring_size):
    with publisher(ring_size=ring_size) as pub, looking("cam") as page:
        page.hello()
        show(pub, page, 3)
        page.say("pause")
        turn(page)
        camera = page.viewer.cameras[0]
        for seq in range(4, 20):
            assert publish(pub) == seq
            page.say("step", by=1)
            page.wait_for(seq)
            check(camera.shown)
        page.say("step", by=-1)
        page.wait_for(18)
        check(camera.shown)
        assert publish(pub, 2) == 21
        page.say("step", by=2)
        turn(page)
        assert camera.shown.seq == 19
        assert pub.stats.dropped == 0
        assert camera.status()["error"] is None
        page.say("play")
        page.wait_for(21)
        turn(page)
        assert pub.stats.slots_leased <= 1


def test_a_step_takes_what_was_published_between_picture_and_pause(patient):
    page = Page(answers=False)
    with publisher(ring_size=8) as pub, looking("cam", page=page) as page:
        page.hello()
        show(pub, page)
        publish(pub, 3)
        page.say("pause")
        turn(page)
        camera = page.viewer.cameras[0]
        for seq in (2, 3, 4):
            page.say("step", by=1)
            turn(page)
            assert camera.shown.seq == seq
            check(camera.shown)


def test_stepping_with_nothing_to_step_to_is_harmless(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        for by in (-1, 1, 0, 64):
            page.say("step", by=by)
        turn(page)
        assert page.viewer.paused
        publish(pub)
        page.wait_for(1)  # a page that shows nothing gets what there is, and holds that
        publish(pub, 2)
        for by in (0, -64, -64, 0):
            page.say("step", by=by)
            turn(page)
            check(page.viewer.cameras[0].shown)


def test_a_page_that_comes_back_while_paused_sees_a_picture(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.say("pause")
        turn(page)
        page.bye()
        until(lambda: not page.viewer.running)
        assert pub.stats.slots_leased == 0
        publish(pub)
        page.hello()
        page.wait_for(2)
        assert page.viewer.paused
        publish(pub)
        states(page, 2)
        assert page.pictures[-1].seq == 2


def test_who_releases_the_frame_that_is_held_does_no_harm(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page, 3)
        page.say("pause")
        turn(page)
        page.viewer.cameras[0].shown.release()
        page.hello()
        for by in (0, -1, 1, 1):
            page.say("step", by=by)
        turn(page)
        page.say("play")
        publish(pub)
        page.wait_for(4)


def test_a_new_publisher_s_frames_come_after_those_of_the_one_before():
    with looking("cam") as page:
        page.hello()
        with publisher(ring_size=8) as pub:
            show(pub, page, 9)
        with publisher(ring_size=8) as pub:
            show(pub, page, 2)
            page.say("step", by=-1)
            turn(page)
            assert page.viewer.cameras[0].shown.seq == 1
            check(page.viewer.cameras[0].shown)


# --- Stills ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["paused", "the publisher stops", "nothing moves"])
def test_a_picture_that_stands_is_sent_once_without_loss(how, quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        with pub.acquire() as slot:
            slot.y[...] = np.arange(WIDTH)
            slot.uv[...] = np.arange(HEIGHT // 2)[:, None, None] * 5
            pub.publish(slot)
        page.wait_for(1)
        if how == "paused":
            page.say("pause")
            turn(page)
            publish(pub)
        still = page.wait_for(1, still=True)
        assert (still.mime, still.roi, still.size) == ("image/png", WHOLE, (WIDTH, HEIGHT))
        assert np.array_equal(still.pixels, page.viewer.cameras[0].shown.rgb())
        if how == "nothing moves":
            with pub.acquire() as slot:
                slot.y[...], slot.uv[...] = np.arange(WIDTH), 0
                slot.uv[...] = np.arange(HEIGHT // 2)[:, None, None] * 5
                pub.publish(slot)
        states(page, 3)
        assert len(page.stills) == len(page.lossy) == 1


def test_a_still_that_would_take_long_is_not_sent(quick, monkeypatch):
    monkeypatch.setattr(Pacer, "still_bytes", 50)
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.say("pause")
        states(page, 4)
        assert page.stills == []


def test_a_better_picture_follows_where_a_still_would_take_long(quick, monkeypatch):
    plans = [Plan(40, 0.5)]
    monkeypatch.setattr(Pacer, "still_bytes", 50)
    monkeypatch.setattr(Pacer, "plan", property(lambda _: plans[-1]))
    with publisher() as pub, looking("cam") as page:
        page.hello()
        publish(pub)
        assert page.wait_for(1).size == (WIDTH // 2, HEIGHT // 2)
        plans.append(Plan(80, 1.0))
        until(lambda: page.pictures[-1].size == (WIDTH, HEIGHT))
        states(page, 4)
        assert [picture.size for picture in page.pictures].count((WIDTH, HEIGHT)) == 1


def test_a_better_picture_follows_a_late_answer(quick, monkeypatch):
    plans = [Plan(40, 0.5)]
    monkeypatch.setattr(Pacer, "next_send_us", lambda _, now_us: now_us)
    monkeypatch.setattr(Pacer, "still_bytes", 50)
    monkeypatch.setattr(Pacer, "plan", property(lambda _: plans[-1]))
    page = Page(answers=False)
    with publisher() as pub, looking("cam", page=page):
        page.hello()
        publish(pub)
        page.wait_for(1)
        until(lambda: page.viewer._still_at == math.inf)  # a still would be due
        assert page.viewer.do(lambda: None, wait=10)  # and was not sent
        plans.append(Plan(80, 1.0))
        page.acknowledge(1)
        until(lambda: page.pictures[-1].size == (WIDTH, HEIGHT))


def test_a_still_is_followed_by_nothing_when_it_is_answered(quick, monkeypatch):
    plans = [Plan(40, 0.5)]
    monkeypatch.setattr(Pacer, "still_bytes", 10**9)
    monkeypatch.setattr(Pacer, "plan", property(lambda _: plans[-1]))
    with publisher() as pub, looking("cam") as page:
        page.hello()
        publish(pub)
        until(lambda: page.stills)
        plans.append(Plan(80, 1.0))
        page.acknowledge(page.pictures[-1].n)
        states(page, 4)
        assert len(page.stills) == 1


def test_a_still_fits_into_its_place(quick):
    with publisher(width=640, height=480) as pub, looking("cam", page=Page(size=(100, 99))) as page:
        page.hello()
        publish(pub)
        assert page.wait_for(1, still=True).size == (100, 74)


# --- A part of the frame --------------------------------------------------------------------------


def test_a_part_of_the_frame_is_shown_when_a_page_asks():
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        asked = [
            ([0, 0, 10, 10], (0, 0, 10, 10)),
            ([3, 5, 10, 10], (2, 4, 12, 12)),
            ([60, 40, 1000, 1000], (60, 40, 4, 8)),
            ([1000, 1000, 1, 1], (62, 46, 2, 2)),
            (None, WHOLE),
        ]
        for roi, shown in asked:
            page.say("roi", cam=0, roi=roi)
            until(lambda: page.pictures[-1].roi == shown)  # noqa: B023
            assert page.pictures[-1].size == shown[2:]
            assert page.viewer.cameras[0].roi == (None if roi is None else tuple(roi))
        page.say("roi", cam=9, roi=[0, 0, 2, 2])
        turn(page)
        assert page.viewer.cameras[0].roi is None


def test_a_part_stays_when_the_frames_become_smaller():
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        page.say("roi", cam=0, roi=[40, 30, 20, 10])
        until(lambda: page.pictures[-1].roi == (40, 30, 20, 10))
        pub.reconfigure(width=8, height=6)
        publish(pub)
        assert page.wait_for(2).roi == (6, 4, 2, 2)


# --- Functions of the user's ----------------------------------------------------------------------

GRAY = np.full((HEIGHT, WIDTH), 200, np.uint8)


@pytest.mark.parametrize(
    ("made", "size", "color"),
    [
        (GRAY, (WIDTH, HEIGHT), (200, 200, 200)),
        (GRAY[::2, ::2], (WIDTH // 2, HEIGHT // 2), (200, 200, 200)),
        (np.full((HEIGHT, WIDTH, 3), (200, 40, 60), np.uint8), (WIDTH, HEIGHT), (200, 40, 60)),
        (np.full((HEIGHT, WIDTH, 4), (200, 40, 60, 0), np.uint8), (WIDTH, HEIGHT), (200, 40, 60)),
        (np.full((3, 20, 30), 0.5), (30, 20), (128, 128, 128)),
        (np.ones((5, 7), bool), (7, 5), (255, 255, 255)),
        (np.zeros((480, 1280), np.uint8), (640, 240), (0, 0, 0)),
        (cf.Heatmap(np.zeros((9, 9)), "viridis"), (9, 9), (68, 1, 84)),
        ([[1, 1], [1, 1]], (2, 2), (68, 1, 84)),
    ],
)
def test_what_process_returns_is_shown_in_its_own_size(made, size, color):
    with publisher() as pub, looking("cam", process=lambda _: made) as page:
        page.hello()
        publish(pub)
        picture = page.wait_for(1)
        assert picture.size == size
        assert picture.roi == WHOLE
        assert abs(picture.pixels.astype(int) - color).max() <= 3
        assert page.camera["error"] is None


def test_a_part_of_what_process_returns_is_shown():
    made = np.zeros((HEIGHT * 2, WIDTH * 2), np.uint8)
    made[20:40, 60:100] = 255
    with publisher() as pub, looking("cam", process=lambda _: made) as page:
        page.hello()
        show(pub, page)
        page.say("roi", cam=0, roi=[30, 10, 20, 10])
        until(lambda: page.pictures[-1].roi == (30, 10, 20, 10))
        assert page.pictures[-1].size == (40, 20)
        assert page.pictures[-1].pixels.min() >= 253


@pytest.mark.parametrize("ring_size", [2, 3, 4])
def test_process_may_return_the_frame_s_own_plane(ring_size):
    size = {"width": 256, "height": 64, "format": "gray8", "ring_size": ring_size}
    with publisher(**size) as pub, looking("cam", process=lambda frame: frame.y) as page:
        page.hello()
        assert show(pub, page, 10) == 10
        assert page.viewer.cameras[0].status()["error"] is None
        assert pub.stats.dropped == 0


def test_process_may_keep_the_frame_before():
    kept = []

    def process(frame):
        kept.append(frame.y)
        before = kept.pop(0) if len(kept) > 1 else frame.y
        assert before.min() == before.max()
        return np.full_like(before, 10 * frame.seq)

    with publisher() as pub, looking("cam", process=process) as page:
        page.hello()
        show(pub, page, 10)
        assert page.viewer.cameras[0].status()["error"] is None
        kept.clear()


@pytest.mark.parametrize("what", [None, "text", object(), np.zeros((2, 2, 2)), [[1], [1, 2]], 5])
def test_what_is_no_picture_is_told_and_the_frame_is_shown(what, quick):
    with publisher() as pub, looking("cam", process=lambda _: what) as page:
        page.hello()
        publish(pub)
        assert page.wait_for(1).size == (WIDTH, HEIGHT)
        until(lambda: page.camera["error"] is not None)
        error = page.camera["error"]
        assert error["where"] == "process"
        assert "is no picture" in error["text"]


@pytest.mark.parametrize("where", ["process", "overlay"])
def test_errors_are_counted_until_the_function_is_replaced(where, quick):
    def wrong(frame):
        raise RuntimeError(f"no\udc80 {frame.seq}" + "x" * 100_000)

    with publisher() as pub, looking("cam", **{where: wrong}) as page:
        page.hello()
        show(pub, page, 3)
        until(lambda: page.camera["error"]["count"] == 3)
        error = page.camera["error"]
        assert error["where"] == where
        assert len(error["text"]) <= 4000
        camera = page.viewer.cameras[0]
        page.viewer.do(functools.partial(camera.set_functions, None, None), wait=30)
        until(lambda: page.camera["error"] is None)
        show(pub, page)


def test_process_is_called_once_for_each_frame_and_may_be_replaced(quick):
    first, second = [], []

    def process(frame, seen=first):
        seen.append(frame.seq)
        return GRAY + np.uint8(frame.seq)

    with publisher() as pub, looking("cam", process=process) as page:
        page.hello()
        show(pub, page)
        page.wait_for(1, still=True)
        page.hello()
        page.say("roi", cam=0, roi=[0, 0, 8, 8])
        page.say("pause")
        states(page, 2)
        assert first == [1]
        camera = page.viewer.cameras[0]
        replacement = functools.partial(process, seen=second)

        def replace():
            camera.set_functions(replacement, None)
            page.viewer.redraw()

        page.viewer.do(replace, wait=30)
        until(lambda: second == [1])
        page.say("play")
        show(pub, page)
        assert first == [1]
        assert second == [1, 2]


def test_process_may_be_replaced_while_it_runs():
    entered, leave = threading.Event(), threading.Event()

    def process(frame):
        entered.set()
        assert leave.wait(30)
        return GRAY

    with publisher() as pub, looking("cam", process=process) as page:
        page.hello()
        publish(pub)
        assert entered.wait(30)
        camera = page.viewer.cameras[0]
        assert not page.viewer.do(lambda: camera.set_functions(None, None))
        leave.set()
        show(pub, page)
        assert page.camera["error"] is None


def test_a_process_that_keeps_frames_is_told_and_the_view_goes_on_once_they_are_let_go(quick):
    kept = []

    def process(frame):
        kept.append(frame.planes)
        return GRAY

    with publisher(ring_size=4) as pub, looking("cam", process=process) as page:
        page.hello()
        until(lambda: publish(pub) and page.camera.get("error"))
        assert "keep frame.copy()" in page.camera["error"]["text"]
        assert pub.stats.dropped == 0
        seen = len(kept)
        kept.clear()
        until(lambda: len(kept) == 1 <= seen)
        until(lambda: page.camera["error"] is None)
        kept.clear()


def test_functions_that_release_the_frame_do_no_harm(quick):
    def release(frame):
        frame.release()

    with publisher() as pub, looking("cam", overlay=release) as page:
        page.hello()
        publish(pub)
        until(lambda: "was released" in (page.camera.get("error") or {}).get("text", ""))
        page.viewer.do(lambda: page.viewer.cameras[0].set_functions(None, None), wait=30)
        show(pub, page)


def test_an_overlay_is_in_step_with_its_frame():
    def overlay(frame):
        return cf.Text(1, 2, f"#{frame.seq}")

    with publisher() as pub, looking("cam", overlay=overlay) as page, publishing(pub):
        page.hello()
        page.wait_for_more(30)
    for picture in page.pictures:
        assert [shape["text"] for shape in picture.shapes] == [f"#{picture.seq}"]


def test_shapes_go_away_although_the_picture_is_the_same():
    drawn = {1: [cf.Box(1, 2, 3, 4)], 2: [cf.Box(1, 2, 3, 5)], 3: [], 4: None}
    shown = []
    with (
        publisher() as pub,
        looking(
            "cam",
            overlay=lambda frame: drawn.get(frame.seq),
            on_frame=lambda _, frame: shown.append(frame.seq),
        ) as page,
    ):
        page.hello()
        for seq in range(1, 6):
            flat(pub)
            until(lambda: shown[-1:] == [seq])  # noqa: B023
        assert [(p.seq, len(p.shapes)) for p in page.lossy] == [(1, 1), (2, 1), (3, 0)]


def test_shapes_count_among_the_bytes_that_are_sent():
    boxes = [cf.Box(i, i, 1, 1) for i in range(1000)]
    with publisher() as pub, looking("cam", overlay=lambda _: boxes) as page:
        page.hello()
        show(pub, page)
        assert page.viewer._pacer.bytes_per_s > 50_000


def test_on_frame_has_each_frame_once_and_its_errors_are_told():
    seen = []

    def on_frame(camera, frame):
        check(frame)
        seen.append(frame.seq)
        raise ValueError("not today")

    with publisher() as pub, looking("cam", on_frame=on_frame) as page:
        page.hello()
        show(pub, page, 3)
        page.hello()
        turn(page, 3)
        assert seen == [1, 2, 3]
        assert page.said("told")[0] == {
            "t": "told", "text": "ValueError: not today", "level": "error",
        }  # fmt: skip


# --- Publishers come and go -----------------------------------------------------------------------


def test_a_stream_is_waited_for(quick):
    with looking("cam") as page:
        page.hello()
        until(lambda: page.camera.get("state") == "waiting")
        assert "there is no stream 'cam'" in page.camera["text"]
        with publisher() as pub:
            publish(pub)
            page.wait_for(1)
            until(lambda: page.camera["state"] == "live")
            assert page.camera["width"] == WIDTH


def test_a_publisher_may_go_and_come_back_as_another(quick):
    with looking("cam") as page:
        page.hello()
        with publisher() as pub:
            show(pub, page, 3)
        until(lambda: page.camera["text"] == "the publisher is away")
        assert page.camera["state"] == "waiting"
        page.forget()
        page.hello()
        page.wait_for(3)  # which is still there
        with publisher(width=30, height=20, format="p010") as pub:
            publish(pub)
            assert page.wait_for(1).size == (30, 20)
            until(lambda: page.camera["format"] == "p010")


@pytest.mark.process
def test_a_publisher_may_be_killed(quick):
    with looking("cam") as page:
        page.hello()
        with child(programs.publish_until_told, "cam") as other:
            other.expect("ready")
            page.wait_for_more(2)
            other.kill()
            until(lambda: page.camera["text"] == "the publisher is away")
        with publisher() as pub:
            flat(pub, 200)
            page.wait_for(1)


def test_size_and_format_may_change(quick):
    with publisher() as pub, looking("cam") as page:
        page.hello()
        for change in ({"width": 20}, {"format": "p010"}, {"height": 11}, {"format": "gray8"}):
            pub.reconfigure(**change)
            seq = publish(pub)
            assert page.wait_for(seq).size == (pub.layout.width, pub.layout.height)


def test_a_subscriber_that_is_given_stays_its_owner_s(quick):
    with publisher() as pub, cf.subscribe("cam") as sub:
        with looking(sub) as page:
            page.hello()
            show(pub, page, 3)
            page.bye()
            until(lambda: not page.viewer.running)
            assert pub.stats.slots_leased == 0
            page.hello()
            page.wait_for(3)
        assert not sub.closed
        assert pub.stats.slots_leased == 0
        publish(pub)
        check(sub.next(timeout=10))


def test_a_subscriber_that_is_given_may_be_closed_by_its_owner(quick):
    with publisher() as pub, cf.subscribe("cam") as sub, looking(sub) as page:
        page.hello()
        show(pub, page)
        sub.close()
        until(lambda: page.camera["state"] == "closed")
        assert page.camera["text"] == "the subscriber was closed"
        page.hello()
        page.wait_for_more()
        page.say("step", by=-1)
        page.say("step", by=1)
        turn(page)


def test_a_subscriber_that_does_not_come_back_is_no_error(quick):
    with cf.Publisher("cam", width=8, height=8, memory="host") as pub:
        sub = cf.subscribe("cam", reconnect=False)
        publish(pub)
    with sub, looking(sub) as page:
        page.hello()
        until(lambda: page.camera.get("state") == "waiting")


def test_a_subscriber_that_is_given_and_used_elsewhere_is_told_of(quick):
    with publisher() as pub, cf.subscribe("cam") as sub, looking(sub) as page:
        thread = threading.Thread(target=sub.next)
        thread.start()
        until(lambda: sub._use() is not None)
        page.hello()
        until(lambda: page.camera.get("state") == "error")
        assert "subscribe once more" in page.camera["text"]
        publish(pub)
        thread.join()
        page.wait_for(1)
        until(lambda: page.camera["state"] == "live")


def test_errors_of_the_system_are_told_and_do_not_end_the_view(quick, monkeypatch):
    subscribe, next_ = camera_module.subscribe, cf.Subscriber.next

    def full(*_, **__):
        raise OSError(24, "Too many open files")

    with publisher() as pub, looking("cam") as page:
        monkeypatch.setattr(camera_module, "subscribe", full)
        page.hello()
        until(lambda: page.camera.get("state") == "error")
        assert "Too many open files" in page.camera["text"]
        monkeypatch.setattr(camera_module, "subscribe", subscribe)
        show(pub, page)
        until(lambda: page.camera["state"] == "live")
        monkeypatch.setattr(cf.Subscriber, "next", full)
        until(lambda: page.camera["state"] == "error")
        monkeypatch.setattr(cf.Subscriber, "next", next_)
        show(pub, page)


# --- What pages may ask ---------------------------------------------------------------------------


def answer(frame, x, y):
    """Return the answer to a probe, as a page has it."""
    return pixel_of(frame, messages.Probe("page" * 4, 0, x, y, 7))


@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
def test_a_probe_has_the_frame_s_code_values_and_its_color(format_):
    for width, height in [(8, 6), (7, 5), (1, 1), (2, 2)]:
        check_probes(format_, width, height)


def check_probes(format_, width, height):
    with (
        publisher_of(width=width, height=height, format=format_) as pub,
        cf.subscribe("cam") as sub,
    ):
        with pub.acquire() as slot:
            for plane in slot.planes:
                codes = np.arange(plane.size).reshape(plane.shape) % 200
                plane[...] = codes << (6 if format_ == "p010" else 0)
            pub.publish(slot)
        with sub.next(timeout=10) as frame:
            rgb = frame.rgb()
            for y, x in np.ndindex(height, width):
                said = answer(frame, x, y)
                assert (said["id"], said["x"], said["y"], said["seq"]) == (7, x, y, 1)
                assert said["rgb"] == rgb[y, x].tolist()
                if format_ in {"rgb24", "rgba32"}:
                    assert said["yuv"] is None
                    continue
                assert said["yuv"][0] == (y * width + x) % 200
                if format_ != "gray8":
                    at = 2 * (y // 2 * -(-width // 2) + x // 2)
                    assert said["yuv"][1:] == [at % 200, (at + 1) % 200]
            assert answer(frame, width, 0) is None
            assert answer(frame, 0, height) is None


@pytest.mark.parametrize("format_", ["nv12", "p010", "gray8", "rgb24", "rgba32"])
def test_a_histogram_counts_luma_and_colors(format_):
    with publisher_of(width=640, height=480, format=format_) as pub, cf.subscribe("cam") as sub:
        pub.write(np.full((480, 640, 3), 128, np.uint8)) if format_ != "gray8" else flat(pub, 126)
        with sub.next(timeout=10) as frame:
            said = histogram_of(frame, 3)
            luma = frame.y[0, 0] >> 8 if format_ == "p010" else np.ravel(frame.y)[0]
    assert (said["t"], said["cam"], said["seq"]) == ("histogram", 3, 1)
    for channel in "rgb":
        assert len(said[channel]) == 256
        assert sum(said[channel][126:130]) == sum(said[channel]) > 10_000
    assert len(said["y"]) == 256
    assert said["y"][luma] == sum(said["y"]) > 10_000


def test_a_histogram_of_a_frame_of_any_size():
    for width, height in [(1, 1), (2, 3), (1, 900), (900, 1), (641, 2)]:
        with publisher_of(width=width, height=height) as pub, cf.subscribe("cam") as sub:
            publish(pub)
            with sub.next(timeout=10) as frame:
                assert sum(histogram_of(frame, 0)["y"]) > 0


def test_a_snapshot_is_the_picture_as_it_is(tmp_path):
    pixels = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)
    path, data = write_snapshot(pixels, tmp_path / "x" / ".." / "y.png")
    assert path == tmp_path / "y.png"
    assert path.read_bytes() == data
    with Image.open(path) as image:
        assert np.array_equal(np.asarray(image), pixels)


# --- Several cameras ------------------------------------------------------------------------------


def test_a_grid_shows_all_and_one_that_is_dead_holds_up_nobody(quick):
    with (
        publisher("a") as a,
        publisher("b", width=32, height=32) as b,
        looking("a", "dead", "b") as page,
    ):
        page.hello()
        for seq in range(1, 6):
            publish(a)
            publish(b)
            assert page.wait_for(seq, cam=0).roi == WHOLE
            assert page.wait_for(seq, cam=2).roi == (0, 0, 32, 32)
        until(lambda: [c["state"] for c in page.status["cams"]] == ["live", "waiting", "live"])
        assert {picture.cam for picture in page.pictures} == {0, 2}


def test_in_a_grid_only_what_is_new_is_sent_and_each_has_its_own_part(quick):
    seen = []
    with (
        publisher("a") as a,
        publisher("b") as b,
        looking("a", "b", on_frame=lambda c, f: seen.append((c.name, f.seq))) as page,
    ):
        page.hello()
        flat(b)
        page.wait_for(1, cam=1)
        for seq in range(1, 6):
            publish(a)
            flat(b)
            page.wait_for(seq, cam=0)
            until(lambda: ("camera 1", seq + 1) in seen)  # noqa: B023
        assert [p.seq for p in page.lossy if p.cam == 1] == [1]
        assert len(seen) == len(set(seen))
        page.say("roi", cam=1, roi=[0, 0, 4, 4])
        until(lambda: [p.roi for p in page.lossy if p.cam == 1][-1] == (0, 0, 4, 4))
        assert [p.roi for p in page.lossy if p.cam == 0][-1] == WHOLE


def test_in_a_grid_each_fits_into_a_tile():
    with (
        publisher("a", width=640, height=480) as a,
        publisher("b", width=480, height=640) as b,
        looking("a", "b", page=Page(size=(200, 200))) as page,
    ):
        page.hello()
        publish(a)
        publish(b)
        assert page.wait_for(1, cam=0).size == (200, 150)
        assert page.wait_for(1, cam=1).size == (150, 200)


def test_pictures_of_one_camera_go_on_while_another_s_function_fails(quick):
    def overlay(frame):
        if frame.key == "a":
            frame.release()

    with publisher("a") as a, publisher("b") as b, looking("a", "b", overlay=overlay) as page:
        page.hello()
        publish(a)
        for seq in range(1, 4):
            publish(b)
            page.wait_for(seq, cam=1)
        until(lambda: page.status["cams"][0]["error"] is not None)
        assert page.status["cams"][1]["error"] is None


# --- Pages that mean harm -------------------------------------------------------------------------

VIEWS = st.sampled_from(["page" * 4, "evil" * 4, "x" * 16, "short", 5])
NUMBERS = st.sampled_from([0, 1, -1, 2, 64, -64, 255, 256, 2**53, 2**60, 0.5, float("nan"), "1"])
MESSAGES = st.fixed_dictionaries(
    {
        "t": st.sampled_from([*messages._FORMS, "frames"]),
        "view": VIEWS,
    },
    optional={
        "w": NUMBERS, "h": NUMBERS, "on": st.booleans() | NUMBERS, "n": NUMBERS, "by": NUMBERS,
        "painted": NUMBERS, "missed": NUMBERS, "held_us": NUMBERS, "bytes": NUMBERS,
        "span_us": NUMBERS, "decode_us": NUMBERS, "cam": NUMBERS, "x": NUMBERS, "y": NUMBERS,
        "id": NUMBERS, "download": st.booleans(), "key": st.text(max_size=40),
        "mods": st.lists(st.sampled_from(["Alt", "Shift", "x"]), max_size=5),
        "roi": st.none() | st.lists(NUMBERS, min_size=3, max_size=5),
    },
)  # fmt: skip
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(said=st.lists(MESSAGES | ANYTHING, max_size=60))
def test_whatever_a_page_says_the_view_goes_on(tmp_path, said):
    events = []
    recorded_here = contextlib.chdir(tmp_path)  # films of what it says to record
    with recorded_here, publisher() as pub, looking("cam", on_event=events.append) as page:
        publish(pub)
        page.hello()
        page.wait_for(1)
        for content in said:
            page.viewer.tell(content)
        page.say("play")
        page.say("roi", cam=0, roi=None)
        publish(pub)
        page.hello()
        page.wait_for(2)
        assert page.said("told") == []


def test_a_flood_of_messages_is_not_kept():
    entered, leave = threading.Event(), threading.Event()

    def process(_):
        entered.set()
        assert leave.wait(30)
        return GRAY

    with publisher() as pub, looking("cam", process=process) as page:
        page.hello()
        publish(pub)
        assert entered.wait(30)

        def flood():
            for n in range(2000):
                page.viewer.tell({"t": "step", "view": page.view, "by": n % 64})

        threads = [threading.Thread(target=flood) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert page.viewer._inbox.qsize() <= 1000
        leave.set()
        turn(page)
        assert page.viewer._inbox.qsize() == 0
        page.say("play")
        show(pub, page)


def test_a_page_that_talks_all_the_time_does_not_keep_the_picture_from_moving():
    stop = threading.Event()
    with publisher() as pub, looking("cam") as page:
        page.hello()

        def talk():
            while not stop.is_set():
                page.acknowledge(1)

        thread = threading.Thread(target=talk)
        thread.start()
        try:
            show(pub, page, 5)
        finally:
            stop.set()
            thread.join()


def test_a_thousand_views_keep_nobody_away():
    with publisher() as pub, looking("cam") as page:
        page.hello()
        show(pub, page)
        for i in range(1000):
            view = f"view-{i:016d}"
            page.viewer.tell({"t": "hello", "view": view, "w": 16384, "h": 16384})
            page.viewer.tell({"t": "visible", "view": view, "on": False})
            if i % 20 == 0:
                turn(page)
        assert len(page.viewer._audience) <= 64
        page.hello()
        show(pub, page)


# --- Sending fails --------------------------------------------------------------------------------


def test_a_kernel_that_cannot_send_ends_nothing():
    page = Page()
    with publisher() as pub, looking("cam", page=page):
        receive, wrong = page.receive, []

        def broken(*_):
            wrong.append(1)
            raise RuntimeError("the comm is closed")

        page.viewer._send = broken
        page.hello()
        publish(pub)
        until(lambda: len(wrong) == 1)
        page.viewer._send = receive
        page.hello()
        show(pub, page)
        page.viewer._send = broken
    assert not page.viewer.running


# --- Doing something, closing ---------------------------------------------------------------------


def test_what_is_to_be_done_is_done_with_and_without_a_thread(quick):
    with publisher() as pub, looking("cam") as page:
        done = []
        assert page.viewer.do(lambda: done.append(threading.current_thread()))
        assert done == [threading.current_thread()]
        page.hello()
        show(pub, page)
        assert page.viewer.do(lambda: done.append(threading.current_thread()), wait=30)
        assert done[1].name == "cuframes-view"
        assert page.viewer.do(
            lambda: page.viewer.do(lambda: done.append(1)) and done.append(2), wait=30
        )
        assert done[2:] == [1, 2]
    assert page.viewer.do(lambda: done.append(3))
    assert done[4:] == [3]


@pytest.mark.parametrize("running", [False, True])
def test_who_has_something_done_has_what_it_raises(running):
    def wrong():
        raise KeyError("no")

    with publisher() as pub, looking("cam") as page:
        if running:
            page.hello()
            show(pub, page)
        with pytest.raises(KeyError, match="no"):
            page.viewer.do(wrong, wait=30)
        page.hello()
        show(pub, page)


def test_what_is_asked_of_a_view_that_begins_and_ends_is_done(monkeypatch):
    monkeypatch.setattr(pipeline, "_REST_SECONDS", 0.001)
    with publisher() as pub, looking("cam") as page:
        publish(pub)
        done, stop = [], threading.Event()

        def ask():
            while not stop.is_set():
                done.append(page.viewer.do(lambda: None, wait=30))

        threads = [threading.Thread(target=ask) for _ in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(100):
            page.hello()
            page.bye()
            until(lambda: not page.viewer.running)
        stop.set()
        for thread in threads:
            thread.join()
        assert all(done)
        assert pub.stats.slots_leased == 0


def test_close_says_goodbye_once_and_lets_everything_go():
    with publisher() as pub:
        with looking("cam") as page:
            page.hello()
            show(pub, page)
            page.viewer.close("over")
            page.viewer.close()
            assert page.said("bye") == [{"t": "bye", "text": "over"}]
            assert not page.viewer.running
            assert pub.stats.slots_leased == 0
            until(lambda: pub.stats.subscribers == 0)
            page.hello()
            page.say("step", by=1)
            assert not page.viewer.running
            assert page.viewer._inbox.qsize() <= 1
        assert page.messages[-1][0]["t"] == "bye"


def test_close_while_pictures_are_made_from_many_threads():
    with publisher() as pub, publishing(pub):
        for _ in range(10):
            with looking("cam") as page:
                page.hello()
                page.wait_for_more()
                threads = [threading.Thread(target=page.viewer.close) for _ in range(4)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
                until(lambda: not page.viewer.running)
            assert len(page.said("bye")) == 1


@pytest.mark.parametrize("where", ["process", "overlay", "on_frame", "on_event", "do"])
def test_close_on_the_viewer_s_own_thread(where, quick):
    closed = threading.Event()

    def close(*_):
        page.viewer.do(lambda: None, wait=30)
        page.viewer.tell({"t": "pause", "view": page.view})
        page.viewer.close()
        closed.set()

    functions = {where: close} if where != "do" else {}
    before = live_threads()
    with publisher() as pub, looking("cam", **functions) as page:
        page.hello()
        publish(pub)
        if where == "do":
            page.viewer.do(close, wait=30)
        page.say("key", key="q", mods=[])
        assert closed.wait(30)
        until(lambda: not page.viewer.running and not live_threads() - before - {*_publishers(pub)})
        assert page.messages[-1][0]["t"] == "bye"
        until(lambda: pub.stats.slots_leased == pub.stats.subscribers == 0)


def _publishers(pub):
    """Return the threads there are because of a publisher."""
    return [thread for thread in threading.enumerate() if thread.name != "cuframes-view"]


def test_close_while_somebody_waits_for_something_to_be_done():
    entered, leave = threading.Event(), threading.Event()

    def process(_):
        entered.set()
        assert leave.wait(30)

    with publisher() as pub, looking("cam", process=process) as page:
        page.hello()
        publish(pub)
        assert entered.wait(30)
        done = []
        threads = [
            threading.Thread(target=lambda: done.append(page.viewer.do(lambda: None, wait=30)))
            for _ in range(3)
        ] + [threading.Thread(target=page.viewer.close) for _ in range(2)]
        for thread in threads:
            thread.start()
        until(lambda: page.viewer._closed and page.viewer._inbox.qsize() >= 4)
        leave.set()
        for thread in threads:
            thread.join()
        assert done == [True] * 3


def test_two_hundred_views_leave_nothing(quick):
    with publisher() as pub:
        publish(pub)
        gone, before = [], live_threads()
        for i in range(200):
            with looking("cam", process=lambda frame: frame.y) as page:
                page.hello()
                if i % 10 == 0:
                    page.wait_for(1)
            gone.append(weakref.ref(page.viewer))
            gone.append(weakref.ref(page.viewer.cameras[0]))
        del page
        gc.collect()
        assert [ref for ref in gone if ref() is not None] == []
        assert live_threads() <= before
        assert pub.stats.slots_leased == 0
        until(lambda: pub.stats.subscribers == 0)


def test_a_viewer_needs_an_encoder(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "simplejpeg", None)
    with pytest.raises(cf.UnsupportedError, match=r"cuframes-nb\[lab\]"):
        Viewer([], lambda *_: None)
