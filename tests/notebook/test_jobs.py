"""Background jobs: a cell for each new frame, errors counted, nothing held, all stopped."""

import contextvars
import queue
import subprocess
import sys
import threading

import pytest

import cuframes_nb as cf
from cuframes_nb.notebook import jobs as jobs_module
from cuframes_nb.notebook.cell import function_of
from cuframes_nb.notebook.cell_job import FAILURES_IN_A_ROW, CellJob
from cuframes_nb.notebook.jobs import Jobs
from cuframes_nb.notebook.publish_job import Feature, PublishJob, film, pattern
from cuframes_nb.sources import Pattern
from tests.helpers.children import ROOT, child_env
from tests.helpers.frames import publish, publisher, until, wrong

SECONDS = 30.0


@pytest.fixture
def pub():
    with publisher("cam") as it:
        yield it


@pytest.fixture
def begin():
    """Return what starts a job on the stream ``cam``; all are stopped at the end."""
    jobs = Jobs()

    def start(function, *, name="cam", tell=None, key="cam", **options):
        job = CellJob(name, cf.subscribe(key), function, **options)
        jobs.add(job)
        job.start(tell)
        return job

    start.jobs = jobs
    yield start
    assert jobs.stop_all() == []


def ended(job):
    assert job.wait(SECONDS)
    return job.status


# --- A cell for each frame ------------------------------------------------------------------------


def test_a_job_runs_for_each_new_frame_and_counts(pub, begin):
    runs = queue.SimpleQueue()
    job = begin(lambda frame, n: runs.put((n, frame.seq, wrong(frame.planes, frame.seq))))
    for number in range(1, 4):
        publish(pub)
        assert runs.get(timeout=SECONDS) == (number, number, "")
    assert job.running
    assert job.status.state == "running"
    assert job.stop()
    assert not job.running
    assert job.status.state == "stopped"
    assert job.status.frames == 3


def test_a_frame_is_released_after_its_run(pub, begin):
    kept = []
    ran = threading.Event()
    begin(lambda frame, _: (kept.append(frame), ran.set()))
    publish(pub)
    assert ran.wait(SECONDS)
    until(lambda: pub.stats.slots_leased == 0)
    assert kept[0].released


def test_a_cell_may_release_its_frame_itself(pub, begin):
    ran = threading.Event()
    job = begin(lambda frame, _: (frame.release(), ran.set()))
    publish(pub)
    assert ran.wait(SECONDS)
    job.stop()
    assert job.status.errors == 0


def test_while_the_cell_is_busy_frames_are_skipped(pub, begin):
    seen = queue.SimpleQueue()
    go_on = threading.Event()

    def work(frame, _):
        seen.put(frame.seq)
        assert go_on.wait(SECONDS)

    begin(work)
    publish(pub)
    assert seen.get(timeout=SECONDS) == 1
    publish(pub, 6)
    go_on.set()
    assert seen.get(timeout=SECONDS) == 7


def test_only_each_nth_frame_where_that_is_asked_for(pub, begin):
    seen = queue.SimpleQueue()
    job = begin(lambda frame, _: seen.put(frame.seq), every=3)
    for seq in range(1, 8):
        publish(pub)
        until(lambda seq=seq: job._subscriber.stats.received == seq)
    assert [seen.get(timeout=SECONDS) for _ in range(3)] == [1, 4, 7]
    assert seen.empty()


def test_a_job_ends_after_its_time_without_any_frame(pub, begin):
    status = ended(begin(lambda _frame, _n: None, seconds=0.05))
    assert (status.state, status.frames) == ("finished", 0)


def test_a_job_that_waits_for_a_frame_can_be_stopped(pub, begin):
    job = begin(lambda _frame, _n: None)
    assert job.stop()
    assert job.stop()
    assert job.status.state == "stopped"


def test_a_job_can_stop_itself(pub, begin):
    asked = queue.SimpleQueue()
    job = begin(lambda _frame, _n: asked.put(job.stop()))
    publish(pub)
    assert asked.get(timeout=SECONDS) is False
    assert ended(job).state == "stopped"


def test_a_cell_that_takes_long_is_told_to_stop_and_not_waited_for(pub, begin):
    began, go_on = threading.Event(), threading.Event()
    job = begin(lambda _frame, _n: (began.set(), go_on.wait(SECONDS)))
    publish(pub)
    assert began.wait(SECONDS)
    assert not job.stop(0)
    assert job.status.state == "stopping"
    go_on.set()
    assert ended(job).state == "stopped"


def test_a_job_that_never_began_gives_up_its_subscription(pub):
    job = CellJob("cam", cf.subscribe("cam"), lambda _frame, _n: None)
    assert not job.running
    assert job.stop()
    until(lambda: pub.stats.subscribers == 0)


def test_exit_in_a_cell_ends_the_job(pub, begin):
    job = begin(lambda _frame, _n: sys.exit())
    publish(pub)
    assert ended(job).state == "stopped"
    assert job.status.errors == 0


def test_a_job_works_in_the_context_that_began_it(pub, begin):
    place = contextvars.ContextVar("place")
    place.set("this cell")
    seen = queue.SimpleQueue()
    begin(lambda _frame, _n: seen.put(place.get()))
    publish(pub)
    assert seen.get(timeout=SECONDS) == "this cell"


# --- What goes wrong ------------------------------------------------------------------------------


def test_an_error_is_kept_once_with_its_traceback_and_the_job_goes_on(pub, begin):
    ran = queue.SimpleQueue()
    source = "\nif n < 4:\n    frame.y[0, n - 5], 1 // 0\nran.put(n)"
    job = begin(function_of(source, "<cell>", {"ran": ran}))
    for number in range(1, 5):
        publish(pub)
        until(lambda number=number: job.status.frames == number)
    assert ran.get(timeout=SECONDS) == 4
    job.stop()
    (failure,) = job.status.failures
    assert job.status.errors == failure.count == 3
    assert failure.what.startswith("ZeroDivisionError: ")
    first, place, *_ = failure.traceback.splitlines()
    assert first == "Traceback (most recent call last):"
    assert place == '  File "<cell>", line 3, in cell'
    assert pub.stats.slots_leased == 0


def test_errors_of_other_lines_are_told_apart_up_to_a_few(pub, begin):
    lines = [f"if n == {n}: raise ValueError({n})" for n in range(1, 7)]
    job = begin(function_of("\n".join(lines), "<cell>", {}))
    for number in range(1, 7):
        publish(pub)
        until(lambda number=number: job.status.errors == number)
    assert [failure.what for failure in job.status.failures] == [
        f"ValueError: {n}" for n in range(1, 5)
    ]


def test_a_job_gives_up_after_many_failures_in_a_row(pub, begin):
    def fail(_frame, n):
        if n != 5:  # so that those before do not count
            raise ValueError(n)

    job = begin(fail)
    while job.running:
        frames = job.status.frames
        publish(pub)
        until(lambda frames=frames: job.status.frames > frames or not job.running)
    status = ended(job)
    assert status.state == "failed"
    assert status.note == f"{FAILURES_IN_A_ROW} frames in a row failed, so it gave up"
    assert status.errors == 4 + FAILURES_IN_A_ROW
    until(lambda: pub.stats.subscribers == 0)


def test_arrays_that_a_cell_keeps_stop_it_with_advice_until_they_are_gone(pub, begin):
    kept, ran = [], queue.SimpleQueue()
    job = begin(lambda frame, n: (kept.append(frame.y), ran.put(n)))
    limit = job._subscriber.stats.lease_limit
    for number in range(1, limit + 1):
        publish(pub)
        assert ran.get(timeout=SECONDS) == number
    publish(pub)
    until(lambda: job.status.state == "waiting")
    assert "frame.copy()" in job.status.note
    assert f"hold the {limit} frames" in job.status.note
    kept.clear()
    assert ran.get(timeout=SECONDS) == limit + 1
    until(lambda: job.status.state == "running")
    assert job.status.errors == 0
    job.stop()
    kept.clear()


def test_a_job_goes_on_with_the_next_publisher(begin, monkeypatch):
    from cuframes_nb.notebook import cell_job

    monkeypatch.setattr(cell_job, "REPORT_SECONDS", 0.05)
    seen = queue.SimpleQueue()
    with publisher("cam") as first:
        job = begin(lambda frame, n: seen.put((n, frame.seq)), every=2)
        publish(first)
        assert seen.get(timeout=SECONDS) == (1, 1)
    until(lambda: job.status.state == "waiting")
    assert "cam" in job.status.note
    with publisher("cam", width=32) as second:
        publish(second)
        assert seen.get(timeout=SECONDS) == (2, 1)
        until(lambda: job.status.state == "running")


def test_a_job_whose_subscriber_fails_says_why(pub, begin):
    told = queue.SimpleQueue()
    job = begin(lambda _frame, _n: None, tell=told.put)
    job._subscriber.close()  # by somebody else
    status = told.get(timeout=SECONDS)
    assert status.state == "failed"
    assert status.note.startswith("ClosedError: ")
    assert ended(job).state == "failed"


# --- What is told ---------------------------------------------------------------------------------


def test_the_state_is_told_seldom_and_at_the_end(pub, begin, monkeypatch):
    monkeypatch.setattr(jobs_module, "REPORT_SECONDS", 3600.0)
    told, ran = [], queue.SimpleQueue()
    job = begin(lambda _frame, n: ran.put(n), tell=told.append)
    for number in range(1, 4):
        publish(pub)
        assert ran.get(timeout=SECONDS) == number
    assert told == []
    job.stop()
    assert [(status.state, status.frames) for status in told] == [("stopped", 3)]


def test_the_state_is_told_while_frames_come(pub, begin, monkeypatch):
    monkeypatch.setattr(jobs_module, "REPORT_SECONDS", 0.0)
    told = queue.SimpleQueue()
    begin(lambda _frame, _n: None, tell=told.put)
    publish(pub)
    status = told.get(timeout=SECONDS)
    assert (status.state, status.frames) == ("running", 1)
    assert status.fps > 0


def test_a_page_that_is_gone_does_not_end_the_work(pub, begin, monkeypatch):
    monkeypatch.setattr(jobs_module, "REPORT_SECONDS", 0.0)
    ran = queue.SimpleQueue()
    begin(lambda _frame, n: ran.put(n), tell=lambda _: 1 / 0)
    for number in range(1, 4):
        publish(pub)
        assert ran.get(timeout=SECONDS) == number


# --- Several --------------------------------------------------------------------------------------


def test_a_job_takes_the_place_of_the_one_of_its_name(pub, begin):
    first = begin(lambda _frame, _n: None)
    other = begin(lambda _frame, _n: None, name="other")
    second = begin(lambda _frame, _n: None)
    assert [first.running, second.running, other.running] == [False, True, True]
    assert list(begin.jobs) == [second, other]
    until(lambda: pub.stats.subscribers == 2)


def test_jobs_are_found_by_name_before_they_are_by_stream(pub, begin):
    cam = begin(lambda _frame, _n: None)
    other = begin(lambda _frame, _n: None, name="other")
    assert begin.jobs.matching("cam") == [cam]
    assert begin.jobs.matching("other") == [other]
    assert begin.jobs.matching("nobody") == []
    third = begin(lambda _frame, _n: None, name="third")
    with publisher("cam2") as second:
        fourth = begin(lambda _frame, _n: None, name="fourth", key="cam2")
        assert begin.jobs.matching("cam2") == [fourth]
        fourth.stop()
        assert begin.jobs.matching("cam2") == []
        until(lambda: second.stats.subscribers == 0)
    assert begin.jobs.get("third") is third


def test_those_that_do_not_stop_are_named(pub, begin, monkeypatch):
    monkeypatch.setattr(jobs_module, "_STOP_SECONDS", 1.0)
    began, go_on = threading.Event(), threading.Event()
    stuck = begin(lambda _frame, _n: (began.set(), go_on.wait(SECONDS)), name="stuck")
    begin(lambda _frame, _n: None, name="quick")
    publish(pub)
    assert began.wait(SECONDS)
    assert begin.jobs.stop_all() == [stuck]
    go_on.set()
    ended(stuck)


@pytest.mark.process
def test_an_interpreter_that_ends_stops_its_jobs(runtime_dir):
    code = (
        "import threading, cuframes_nb as cf\n"
        "from cuframes_nb.notebook.cell_job import CellJob\n"
        "from cuframes_nb.notebook.jobs import Jobs\n"
        "from cuframes_nb.notebook.publish_job import PublishJob, pattern\n"
        "jobs, ran = Jobs(), threading.Event()\n"
        "feature = pattern((64, 48), 100)\n"
        "job = PublishJob('p', feature, feature.source.publisher('cam', memory='host'))\n"
        "jobs.add(job)\n"
        "job.start(lambda s: print(f'{s.name} {s.state}\\n', end=''))\n"
        "job = CellJob('c', cf.subscribe('cam'), lambda frame, n: ran.set())\n"
        "jobs.add(job)\n"
        "job.start(lambda s: print(f'{s.name} {s.state}\\n', end=''))\n"
        "assert ran.wait(30)\n"
    )
    run = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        check=False,
        cwd=ROOT,
        env=child_env(),
        text=True,
        timeout=60,
    )
    assert (run.returncode, run.stderr) == (0, "")
    assert {"p stopped", "c stopped"} <= set(run.stdout.splitlines())
    assert list(runtime_dir.glob("*.sock")) == []


# --- Publishing -----------------------------------------------------------------------------------


def publishing(source, key="film"):
    job = PublishJob(f"publish-{key}", Feature(source, "it"), source.publisher(key, memory="host"))
    job.start()
    return job


def test_a_source_is_published_until_it_ends():
    status = ended(publishing(Pattern(64, 48, fps=500, frames=5)))
    assert (status.state, status.frames, status.errors) == ("finished", 5, 0)
    assert status.note == "it, 64x48 nv12 in host memory, 0 subscribers"
    assert cf.list_streams() == []


def test_a_source_is_published_until_it_is_stopped():
    job = publishing(Pattern(64, 48, fps=200))
    with cf.subscribe("film") as subscriber:
        subscriber.next(SECONDS).release()
        until(lambda: ", 1 subscriber" in job.status.note)
    assert job.stop()
    assert job.status.state == "stopped"
    assert job.status.frames > 0
    assert cf.list_streams() == []


def test_a_source_that_fails_says_why():
    class Broken(Pattern):
        def write(self, slot, frame):
            raise OSError("the lens cap is on")

    status = ended(publishing(Broken(64, 48)))
    assert status.state == "failed"
    assert status.note == "OSError: the lens cap is on"
    assert cf.list_streams() == []


@pytest.fixture
def small_film(tmp_path):
    av = pytest.importorskip("av")
    path = tmp_path / "small.mp4"
    with av.open(str(path), "w") as container:
        stream = container.add_stream("mpeg4", rate=25)
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        for _ in range(3):
            container.mux(stream.encode(av.VideoFrame(64, 48, "yuv420p")))
        container.mux(stream.encode())
    return path


def test_a_film_is_played_as_it_is(small_film):
    feature = film(small_film, loop=False)
    assert feature.title == "small.mp4"
    assert (feature.source.width, feature.source.height, feature.source.fps) == (64, 48, 25)
    assert [at // 1_000_000 for at, _ in feature.source.frames()] == [0, 40, 80]


def test_a_film_can_have_another_size_and_rate(small_film):
    source = film(small_film, size=(32, 20), fps=100, loop=False).source
    assert (source.width, source.height, source.fps) == (32, 20, 100)
    assert [at // 1_000_000 for at, _ in source.frames()] == [0, 10, 20]
    with source.publisher("film", memory="host", policy="strict-wait") as pub:
        info = pub.info
        assert (info.width, info.height, info.fps) == (32, 20, 100)
        _, frame = next(source.frames())
        with pub.acquire() as slot:
            source.write(slot, frame)
        assert pub.stats.published == 1


def test_an_address_is_not_told_whole():
    assert film("rtsp://user:secret@camera.local/1").title == "rtsp://camera.local/1"


def test_a_pattern_has_usual_and_asked_for_sizes():
    usual = pattern().source
    assert (usual.width, usual.height, usual.fps) == (1280, 720, 30)
    assert pattern((64, 48), 5).source.fps == 5


# --- Cells as functions ---------------------------------------------------------------------------


def run(source, names=None, frame="the frame", n=1):
    names = {"frame": "the user's own", "n": -1} if names is None else names
    function_of(source, "<cell>", names)(frame, n)
    return names


def test_what_a_cell_assigns_is_the_users():
    names = run(
        "import math, os.path as path\n"
        "from math import pi as number\n"
        "a = frame\n"
        "b: int = n\n"
        "c: str\n"
        "for d in range(3): e = d\n"
        "with open(os.devnull) as f: pass\n"
        "try: 1 / 0\n"
        "except ZeroDivisionError as error: g = repr(error)\n"
        "if (h := 5): pass\n"
        "i = [last := x for x in range(3)]\n"
        "def double(x): y = 2 * x; return y\n"
        "class Thing: size = n\n"
        "(j, *k), l = (1, 2, 3), 4\n",
        {"os": __import__("os")},
    )
    assert {"frame", "n", "c", "x", "y", "error"} & set(names) == set()
    assert (names["a"], names["b"], names["d"], names["e"]) == ("the frame", 1, 2, 2)
    assert names["g"].startswith("ZeroDivisionError")
    assert (names["h"], names["i"], names["last"]) == (5, [0, 1, 2], 2)
    assert names["double"](4) == 8
    assert names["double"].__qualname__ == "double"
    assert names["Thing"].size == 1
    assert (names["j"], names["k"], names["l"]) == (1, [2, 3], 4)
    assert names["math"].pi == names["number"]


def test_frame_and_n_are_the_cells_own():
    names = run("seen = frame, n\nframe = n = None")
    assert names["seen"] == ("the frame", 1)
    assert (names["frame"], names["n"]) == ("the user's own", -1)


def test_frame_is_seen_everywhere_in_a_cell():
    names = run(
        "a = [frame for _ in range(1)]\n"
        "b = (lambda: n)()\n"
        "def f(): return frame, n\n"
        "c = f()\n"
        "class K: d = frame\n"
        "e = eval('frame')\n"
    )
    assert names["a"] == ["the frame"]
    assert names["b"] == 1
    assert names["c"] == ("the frame", 1)
    assert names["K"].d == "the frame"
    assert names["e"] == "the frame"


def test_a_cell_reads_changes_and_deletes_variables():
    names = run("total += n\ndel old", {"total": 41, "old": 0})
    assert names["total"] == 42
    assert "old" not in names


def test_a_cell_of_comments_does_nothing():
    assert run("# nothing", {}).keys() <= {"__builtins__"}


def test_what_is_no_cell_is_refused_before_it_runs():
    wrong_cells = ["x = = 1", "return", "yield 1", "await x", "break", "  x = 1", "global n"]
    for source in [*wrong_cells, "from os import *"]:
        with pytest.raises(SyntaxError):
            function_of(source, "<cell>", {})
