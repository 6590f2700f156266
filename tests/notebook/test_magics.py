"""``%cuframes`` and ``%%cuframes``: each command, wrong usage, jobs, completion, a real kernel."""

import contextlib
import io
import subprocess
import sys
import threading
import types

import av
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient
from PIL import Image

import cuframes_nb as cf
from cuframes_nb._doctor.checks import Check, Status
from cuframes_nb.notebook import arguments
from cuframes_nb.notebook import jobs as jobs_module
from cuframes_nb.notebook import magics as magics_module
from cuframes_nb.sources import sample_video
from tests.helpers.children import ROOT, child_env
from tests.helpers.films import stamped_jpegs
from tests.helpers.frames import publish, publisher, until
from tests.helpers.gst_server import Sink
from tests.helpers.http_camera import HttpCamera
from tests.helpers.shells import SECONDS, shell

__all__ = ["shell"]


@pytest.fixture
def pub():
    with publisher("cam", fps=25) as it:
        publish(it)
        yield it


@pytest.fixture
def often(monkeypatch):
    """Have the state of jobs told with each frame."""
    monkeypatch.setattr(jobs_module, "REPORT_SECONDS", 0.0)


@pytest.fixture
def viewers(monkeypatch):
    """Stand in for the live viewer; return what it was asked for."""
    asked = []
    stand_in = types.ModuleType("cuframes_nb.notebook.viewing")
    stand_in.view = lambda source, **options: asked.append(("view", source, options)) or "widget"
    stand_in.grid = lambda sources, **options: asked.append(("grid", sources, options)) or "widgets"
    monkeypatch.setitem(sys.modules, stand_in.__name__, stand_in)
    return asked


@pytest.fixture
def terminal(shell):
    """Return the shell as one whose outputs are only printed."""
    shell.ip.kernel = None
    return shell


# --- Help and wrong usage -------------------------------------------------------------------------


def test_help_teaches_every_command(shell):
    told = shell.told("%cuframes")
    assert told == shell.told("%cuframes help") == shell.told("%cuframes --help")
    for command in arguments.COMMANDS:
        assert f"  %cuframes {command}" in told
    assert "  %%cuframes KEY [--every N] [--for TIME] [--name NAME]\n" in told
    assert "brightness = float(frame.y.mean())" in told


def test_help_explains_each_command(shell):
    for command, parser in arguments.COMMANDS.items():
        told = shell.told(f"%cuframes {command} --help")
        assert told.startswith(f"usage: %cuframes {command}")
        assert parser.about in told
        assert told == shell.told(f"%cuframes help {command}")


def test_a_wrong_command_gets_the_right_one(shell):
    assert shell.usage_error("%cuframes vew cam").startswith(
        "there is no command 'vew'; did you mean 'view'? The commands: ls, view, "
    )
    assert "'%cuframes help' explains each" in shell.usage_error("%cuframes 42")
    assert "there is no command 'vew'" in shell.usage_error("%cuframes help vew")


WRONG = [
    ("view", "the following arguments are required: KEY\nusage: %cuframes view KEY [KEY ...]"),
    ("view cam --width wide", "'wide' is no whole number from 1 up"),
    ("view cam --width 0", "'0' is no whole number from 1 up"),
    ("view cam --fps -1", "--fps"),
    ("view cam --fps fast", "'fast' is no number of frames a second"),
    ("view cam --hight 3", "unrecognized arguments: --hight"),
    ("snapshot", "required: KEY\nusage: %cuframes snapshot KEY [PATH]"),
    ("snapshot a b c", "unrecognized arguments: c"),
    ("info", "required: KEY"),
    ("ls cam", "unrecognized arguments: cam\nusage: %cuframes ls"),
    ("publish", "required: KEY"),
    ("publish cam --size big", "'big' is no size; write width and height in pixels"),
    ("publish cam --memory disk", "invalid choice: 'disk'"),
    ("publish cam film.mp4 --pattern", "--pattern is a test pattern without end"),
    ("publish cam --loop --once", "cannot both be"),
    ("publish 'a b' --pattern", "a b"),
    ("stop", "name the jobs to stop, or say --all; no job is running"),
    ("stop cam --all", "name the jobs to stop, or say --all"),
    ("stop cam", "there is no job 'cam' in this kernel; the jobs: none was started"),
    ("view 'cam", "No closing quotation"),
]

WRONG_CELLS = [
    ("", "required: KEY\nusage: %%cuframes KEY"),
    ("cam --every 0", "'0' is no whole number"),
    ("cam --for 10x", "'10x' is no time; write 10s, 500ms, 2m or 1h"),
    ("cam more", "unrecognized arguments: more"),
]


def test_wrong_usage_is_told_in_a_paragraph(shell):
    for line, said in WRONG:
        assert said in shell.usage_error(f"%cuframes {line}")
    assert list(shell.magics.jobs) == []


def test_wrong_usage_of_a_cell_is_told_in_a_paragraph(shell, pub):
    for line, said in WRONG_CELLS:
        assert said in shell.usage_error(f"%%cuframes {line}\nx = 1")
    assert list(shell.magics.jobs) == []


def test_a_cell_without_code_is_refused(shell, pub):
    assert "no code to run for each frame of 'cam'" in shell.usage_error("%%cuframes cam\n\n")


def test_a_stream_that_is_not_there_is_told_with_those_that_are(shell, pub, viewers):
    for line in ("view no", "grid cam no", "snapshot no", "info no", "stats no", "view cam no"):
        said = shell.usage_error(f"%cuframes {line}")
        assert "there is no stream 'no'" in said
        assert "the streams there are: cam" in said
    assert viewers == []


def test_a_cell_for_a_stream_that_is_not_there_starts_no_job(shell, pub):
    said = shell.usage_error("%%cuframes no\nx = 1")
    assert "the streams there are: cam" in said
    assert list(shell.magics.jobs) == []


# --- Looking --------------------------------------------------------------------------------------


def test_ls(shell, pub):
    assert [info.key for info in shell.run("%cuframes ls").streams] == ["cam"]
    pub.close()
    assert shell.run("%cuframes ls").streams == ()


def test_a_line_can_be_assigned(shell, pub):
    shell.run("there = %cuframes ls")
    assert len(shell.names["there"]) == 1


def test_stats(shell, pub):
    with publisher("other"):
        assert "2 streams" in repr(shell.run("%cuframes stats"))
        assert "1 stream" in repr(shell.run("%cuframes stats cam"))


def test_info(shell, pub, runtime_dir):
    assert "Stream cam" in repr(shell.run("%cuframes info cam"))
    assert "Stream cam" in repr(shell.run(f"%cuframes info {runtime_dir}/cam.sock"))


def test_a_pipeline_of_gstreamer_is_looked_at_like_a_stream(shell, runtime_dir, monkeypatch):
    address = f"gst://{runtime_dir}/pipeline"
    with Sink(runtime_dir / "pipeline") as sink:
        sink.render()
        assert "gst (mmap)" in repr(shell.run(f"%cuframes info {address}"))
        monkeypatch.setenv("CUFRAMES_STREAMS", address)
        assert address in repr(shell.run("%cuframes ls"))
        assert shell.magics.names("streams") == [address]


def test_devices(shell, monkeypatch):
    monkeypatch.setattr(cf, "devices", list)
    assert "host memory" in repr(shell.run("%cuframes devices"))


def test_doctor(shell, monkeypatch):
    checks = [Check("system", "Python", Status.OK, "<3.11>", needed=True)]
    monkeypatch.setattr(magics_module, "examine", lambda: checks)
    report = shell.run("%cuframes doctor")
    assert (report.works, report.checks) == (True, tuple(checks))
    assert "&lt;3.11&gt;" in shell.html(report)


def test_view(shell, pub, viewers):
    assert shell.run("%cuframes view cam") == "widget"
    assert shell.run("%cuframes view --width 640 cam --fps 12.5") == "widget"
    assert viewers == [("view", "cam", {}), ("view", "cam", {"width": 640, "fps": 12.5})]


def test_view_of_several_and_grid(shell, pub, viewers):
    with publisher("b"):
        assert shell.run("%cuframes view cam b --fps 5") == "widgets"
        assert shell.run("%cuframes view cam --fps 5 b") == "widgets"
        assert shell.run("%cuframes grid cam --width 9") == "widgets"
    assert viewers[:2] == [("grid", ["cam", "b"], {"fps": 5})] * 2
    assert viewers[2] == ("grid", ["cam"], {"width": 9})


def test_variables_can_be_used_in_a_line(shell, pub, viewers):
    shell.run("key = 'cam'\n%cuframes view {key}")
    assert viewers == [("view", "cam", {})]


def test_view_without_widgets_says_what_to_install(shell, pub, monkeypatch):
    monkeypatch.setitem(sys.modules, "cuframes_nb.notebook.widget", None)
    said = shell.usage_error("%cuframes view cam")
    assert "pip install 'cuframes-nb[lab]'" in said


def test_view_in_a_terminal_that_is_none_tells_facts(terminal, pub, viewers):
    told = terminal.told("%cuframes view cam")
    assert "cam #1: 64x48 nv12 on cpu" in told
    assert "cuframes_nb.view('cam')" in told
    assert "\x1b" not in told
    assert viewers == []


def test_view_in_a_terminal_shows_a_still(terminal, pub, monkeypatch):
    tty = io.StringIO()
    tty.isatty = lambda: True
    with publisher("b") as other, contextlib.redirect_stdout(tty):
        publish(other)
        terminal.ip.run_line_magic("cuframes", "view cam b")
    assert tty.getvalue().count("▀") == 2 * 64 * 24
    assert "cuframes_nb.grid(['cam', 'b'])" in tty.getvalue()


def test_snapshot(shell, pub):
    snapshot = shell.run("%cuframes snapshot cam")
    assert snapshot.rgb.shape == (48, 64, 3)
    until(lambda: pub.stats.slots_leased == 0)


def test_snapshot_to_a_file(shell, pub, tmp_path):
    for name in ("still.png", "still.jpg"):
        snapshot = shell.run(f"%cuframes snapshot cam '{tmp_path}/{name}'")
        seen = np.asarray(Image.open(tmp_path / name)).astype(int)
        assert abs(seen - snapshot.rgb).max() <= 3
        assert str(tmp_path / name) in repr(snapshot)


def test_snapshot_where_it_cannot_be_written(shell, pub, tmp_path):
    assert "is written as .png or .jpg" in shell.usage_error(
        f"%cuframes snapshot cam {tmp_path}/still.bmp"
    )
    said = shell.usage_error(f"%cuframes snapshot cam {tmp_path}/no/still.png")
    assert said == f"{tmp_path}/no/still.png: No such file or directory"


def test_snapshot_of_a_stream_without_frames(shell, monkeypatch):
    monkeypatch.setattr(magics_module, "_FRAME_SECONDS", 0.05)
    with publisher("new"):
        said = shell.usage_error("%cuframes snapshot new")
    assert said == "stream 'new' is there, but its publisher published nothing within 0.05 s"


# --- Recording ------------------------------------------------------------------------------------


def frames_in(path):
    with av.open(str(path)) as film:
        return sum(1 for _ in film.decode(video=0))


def test_record_until_it_is_stopped(shell, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shell.run("%cuframes publish demo --pattern --size 64x48 --fps 200 --memory host")
    shell.run("%cuframes record demo")
    job = shell.magics.jobs.get("record-demo")
    until(lambda: job.status.frames > 20)
    assert (job.status.kind, job.status.key, job.status.state) == ("record", "demo", "running")
    shell.run("%cuframes stop record-demo")
    assert job.status.state == "stopped"
    [film] = tmp_path.glob("*.mp4")
    assert film.name.startswith("demo-")
    assert job.status.note.startswith(film.name)
    assert frames_in(film) == job.status.frames
    shell.run("%cuframes stop --all")


def test_record_for_a_time_and_once_more(shell, tmp_path):
    shell.run("%cuframes publish demo --pattern --size 64x48 --fps 200 --memory host")
    for _ in range(2):
        shell.run(f"%cuframes record demo '{tmp_path}/a film.mkv' --for 200ms --codec ffv1")
        job = shell.magics.jobs.get("record-demo")
        assert job.wait(SECONDS)
        assert job.status.state == "finished"
        assert frames_in(tmp_path / "a film.mkv") == job.status.frames > 0
    shell.run("%cuframes stop --all")


def test_record_what_cannot_be(shell, pub, tmp_path):
    assert "nobody" in shell.usage_error(f"%cuframes record nobody {tmp_path}/a.mp4")
    assert ".mkv" in shell.usage_error(f"%cuframes record cam {tmp_path}/a.gif")
    assert "invalid choice" in shell.usage_error("%cuframes record cam --codec vhs")
    assert list(shell.magics.jobs) == []


# --- Publishing -----------------------------------------------------------------------------------


def test_publish_a_pattern_until_it_is_stopped(shell, often):
    shell.run("%cuframes publish demo --pattern --size 64x48 --fps 200 --memory host")
    with cf.subscribe("demo") as subscriber, subscriber.next(SECONDS) as frame:
        assert (frame.width, frame.height) == (64, 48)
    shell.outputs.wait_for("running, ")
    (job,) = shell.run("%cuframes jobs").statuses
    assert (job.name, job.kind, job.key) == ("publish-demo", "publish", "demo")
    assert job.state == "running"
    assert job.note.startswith("a test pattern, 64x48 nv12 in host memory")
    (job,) = shell.run("%cuframes stop demo").statuses
    assert job.state == "stopped"
    shell.outputs.wait_for("publisher publish-demo: stopped")
    assert cf.list_streams() == []


def test_publish_again_takes_the_place_of_the_first(shell):
    shell.run("%cuframes publish demo --pattern --size 64x48")
    shell.run("%cuframes publish demo --pattern --size 32x24")
    (info,) = cf.list_streams()
    assert (info.width, info.height) == (32, 24)
    assert [job.running for job in shell.magics.jobs] == [True]


def test_publish_a_film(shell):
    film = sample_video()
    if film is None:
        pytest.skip("Big Buck Bunny is not installed")
    shell.run(f"%cuframes publish bunny {film} --fps 500 --size 64x36 --once")
    assert shell.magics.jobs.get("publish-bunny").wait(SECONDS)
    (job,) = shell.run("%cuframes jobs").statuses
    assert job.state == "finished"
    assert job.frames > 0
    assert job.note.startswith("bigbuckbunny.mp4, 64x36 nv12")
    shell.run("%cuframes publish bunny")
    (info,) = cf.list_streams()
    assert (info.width, info.height, info.fps) == (1280, 720, 25)


def test_publish_a_camera(shell):
    with HttpCamera(stamped_jpegs(50)) as camera:
        shell.run(f"%cuframes publish gate {camera.url} --memory host")
        with cf.subscribe("gate") as subscriber, subscriber.next(SECONDS) as frame:
            assert (frame.width, frame.height) == (320, 192)
        (job,) = shell.run("%cuframes jobs").statuses
        assert job.note.startswith(f"http://127.0.0.1:{camera.port}/video.mjpg, 320x192 nv12")
        (job,) = shell.run("%cuframes stop gate").statuses
        assert job.state == "stopped"
        with cf.Publisher("gate", width=8, height=8, memory="host"):
            assert "'gate'" in shell.usage_error(f"%cuframes publish gate {camera.url}")


def test_publish_where_no_film_is_installed(shell, monkeypatch):
    monkeypatch.setattr("cuframes_nb.notebook.publish_job.sample_video", lambda: None)
    shell.run("%cuframes publish demo --size 64x48")
    (job,) = shell.run("%cuframes jobs").statuses
    assert job.note.startswith("a test pattern")


def test_a_film_that_is_not_there_leaves_what_was_published(shell, tmp_path):
    pytest.importorskip("av")
    shell.run("%cuframes publish demo --pattern --size 64x48")
    said = shell.usage_error(f"%cuframes publish demo {tmp_path}/no.mp4")
    assert said == f"{tmp_path}/no.mp4: No such file or directory"
    assert [info.key for info in cf.list_streams()] == ["demo"]


def test_a_name_that_another_publishes_is_told(shell, pub):
    assert "'cam'" in shell.usage_error("%cuframes publish cam --pattern")


# --- A cell for each frame ------------------------------------------------------------------------


def start(shell, body, line="cam"):
    shell.run(f"%%cuframes {line}\n{body}")
    (*_, job) = shell.magics.jobs
    return job


def test_a_cell_runs_for_each_frame_with_the_users_variables(shell, pub):
    shell.names.update(seen=[], ran=threading.Event(), frame="mine")
    job = start(shell, "last = frame.seq\nseen.append((n, last))\nran.set()")
    assert shell.names["ran"].wait(SECONDS)
    assert job.name == "cam"
    job.stop()
    assert shell.names["seen"] == [(1, 1)]
    assert shell.run("last + 1") == 2
    assert shell.names["frame"] == "mine"


def test_its_state_is_under_the_cell(shell, pub, often):
    start(shell, "x = n", "cam --name watch")
    first = shell.outputs.history[0]["text/plain"]
    assert first == "job watch: running, 0 frames (to end it: %cuframes stop watch)"
    shell.outputs.wait_for("job watch: running, 1 frame,")
    shell.run("%cuframes stop watch")
    data = shell.outputs.wait_for("job watch: stopped, 1 frame")
    assert "<strong>job watch</strong>: stopped" in data["text/html"]
    assert len(shell.outputs.by_id) == 1


def test_its_errors_are_under_the_cell_and_it_goes_on(shell, pub, often):
    shell.names["ran"] = threading.Event()
    job = start(shell, "if n < 3:\n    1 // 0\nran.set()")
    for number in (2, 3):
        until(lambda number=number: job.status.frames == number - 1)
        publish(pub)
    assert shell.names["ran"].wait(SECONDS)
    data = shell.outputs.wait_for("3 frames")
    assert data["text/plain"].count("ZeroDivisionError") == 1
    assert "2 times: Traceback" in data["text/plain"]
    assert ", line 3, in cell\n    1 // 0" in data["text/plain"]
    assert "<summary>2 times: ZeroDivisionError: " in data["text/html"]
    job.stop()


def test_a_cell_that_fails_always_is_given_up(shell, pub, often):
    job = start(shell, "undefined_name")
    while job.running:
        frames = job.status.frames
        publish(pub)
        until(lambda frames=frames: job.status.frames > frames or not job.running)
    data = shell.outputs.wait_for("job cam: failed, 10 frames, 10 errors, 10 frames in a row")
    assert "to end it" not in data["text/plain"]


def test_a_syntax_error_is_told_at_once_and_no_job_begins(shell, pub):
    error, told = shell.fails("%%cuframes cam\nx = 1\ny = = 2")
    assert isinstance(error, SyntaxError)
    assert error.lineno == 3
    assert "y = = 2" in told
    assert list(shell.magics.jobs) == []
    assert pub.stats.subscribers == 0


def test_a_cell_run_again_takes_the_place_of_the_first(shell, pub):
    first = start(shell, "x = 1")
    other = start(shell, "x = 1", "cam --name other")
    start(shell, "x = 2")
    assert not first.running
    assert other.running
    assert [job.name for job in shell.magics.jobs] == ["cam", "other"]


def test_a_wrong_cell_leaves_the_job_that_runs(shell, pub):
    job = start(shell, "x = 1")
    shell.fails("%%cuframes cam\nx = = 1")
    assert job.running


def test_a_cell_may_use_magics(shell, pub):
    shell.names["ran"] = threading.Event()
    start(shell, "there = %cuframes ls\nran.set()")
    assert shell.names["ran"].wait(SECONDS)
    assert [info.key for info in shell.names["there"].streams] == ["cam"]


def test_a_cell_may_stop_its_own_job(shell, pub):
    job = start(shell, "%cuframes stop cam")
    assert job.wait(SECONDS)
    assert job.status.state == "stopped"
    assert job.status.errors == 0


def test_a_cell_for_some_time(shell, pub):
    job = start(shell, "x = n", "cam --for 50ms --every 2")
    assert job.wait(SECONDS)
    shell.outputs.wait_for("job cam: finished")


def test_a_cell_that_keeps_arrays_is_told_to_copy(shell, pub, often):
    shell.names["kept"] = []
    job = start(shell, "kept.append(frame.y)")
    for number in range(1, job._subscriber.stats.lease_limit + 1):
        until(lambda number=number: job.status.frames == number)
        publish(pub)
    shell.outputs.wait_for("keep copies, such as frame.y.copy()")
    shell.names["kept"].clear()
    shell.outputs.wait_for("job cam: running")


def test_a_cell_goes_on_with_the_next_publisher(shell):
    shell.names.update(first=threading.Event(), second=threading.Event())
    with publisher("cam") as pub:
        start(shell, "(first if frame.width == 64 else second).set()")
        publish(pub)
        assert shell.names["first"].wait(SECONDS)
    with publisher("cam", width=32) as pub:
        publish(pub)
        assert shell.names["second"].wait(SECONDS)


def test_jobs_and_stop(shell, pub):
    assert "No job" in repr(shell.run("%cuframes jobs"))
    start(shell, "x = 1")
    start(shell, "x = 1", "cam --name 'my job'")
    start(shell, "x = 1", "cam --name third")
    assert [job.name for job in shell.run("%cuframes jobs").statuses] == ["cam", "my job", "third"]
    assert "running: cam, my job, third" in shell.usage_error("%cuframes stop")
    stopped = shell.run("%cuframes stop 'my job'").statuses
    assert [(job.name, job.state) for job in stopped] == [("my job", "stopped")]
    assert "the jobs: cam, my job, third" in shell.usage_error("%cuframes stop cam nobody")
    assert {job.state for job in shell.run("%cuframes stop --all").statuses} == {"stopped"}
    until(lambda: pub.stats.subscribers == 0)


def test_in_a_terminal_only_news_is_printed(terminal, pub, often, capsys):
    told = terminal.told("%%cuframes cam\n1 // 0")
    assert told == "job cam: running, 0 frames (to end it: %cuframes stop cam)\n"
    (job,) = terminal.magics.jobs
    until(lambda: job.status.frames == 1)
    publish(pub)
    until(lambda: job.status.frames == 2)
    job.stop()
    printed = capsys.readouterr().err
    assert printed.count("ZeroDivisionError") == 1
    assert printed.endswith("job cam: stopped, 2 frames, 2 errors\n")


# --- Loading and unloading ------------------------------------------------------------------------


@pytest.mark.process
def test_what_is_loaded_is_light_until_it_is_used():
    code = (
        "import sys, cuframes_nb.notebook\n"
        "assert not {'IPython', 'anywidget', 'numpy', 'traitlets'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT, env=child_env())


def test_unloading_stops_and_removes_everything(shell, pub):
    shell.run("%cuframes publish demo --pattern --size 64x48")
    job = start(shell, "x = 1")
    jobs = [*shell.magics.jobs]
    shell.run("%unload_ext cuframes_nb.notebook")
    assert job in jobs
    assert [one.running for one in jobs] == [False, False]
    assert [info.key for info in cf.list_streams()] == ["cam"]
    until(lambda: pub.stats.subscribers == 0)
    assert "not found" in shell.usage_error("%cuframes ls")
    assert "not found" in shell.usage_error("%%cuframes cam\nx")
    assert shell.complete("%cuframes vi") != ["view"]


def test_loading_anew_stops_what_was_begun_before(shell, pub):
    job = start(shell, "x = 1")
    shell.run("%reload_ext cuframes_nb.notebook")
    assert not job.running
    assert len(shell.run("%cuframes ls")) == 1
    assert len(shell.ip.Completer.custom_matchers) == 1


# --- Completion -----------------------------------------------------------------------------------

COMPLETIONS = {
    "%cuframes ": list(arguments.COMMANDS),
    "%cuframes s": ["snapshot", "stats", "stop"],
    "x = %cuframes sn": ["snapshot"],
    "cuframes vi": ["view"],
    "%cuframes view ": ["cam", "cam-2", "--width", "--fps"],
    "%cuframes view ca": ["cam", "cam-2"],
    "%cuframes view cam ca": ["cam-2"],
    "%cuframes view cam --": ["--width", "--fps"],
    "%cuframes view cam --fps 3 --": ["--width"],
    "%cuframes info cam-": ["cam-2"],
    "%cuframes snapshot c": ["cam", "cam-2"],
    "%cuframes publish x --memory ": ["auto", "host", "cuda"],
    "%cuframes publish x --memory h": ["host"],
    "%cuframes publish x --p": ["--pattern"],
    "%cuframes stop ": ["cam", "watch", "--all"],
    "%cuframes stop w": ["watch"],
    "%cuframes help p": ["publish"],
    "%%cuframes ": ["cam", "cam-2", "--every", "--for", "--name"],
    "%%cuframes cam --e": ["--every"],
}


def test_completion(shell, pub):
    start(shell, "x = 1", "cam --name watch")
    with publisher("cam-2"):
        assert {line: shell.complete(line) for line in COMPLETIONS} == COMPLETIONS


def test_completion_elsewhere_is_left_alone(shell, tmp_path):
    (tmp_path / "film.mp4").touch()
    assert f"{tmp_path}/film.mp4" in shell.complete(f"%cuframes publish demo {tmp_path}/fi")
    assert "%cuframes" in shell.complete("%cufr")
    shell.names["frames_there"] = 1
    assert "frames_there" in shell.complete("x = frames_th")


# --- A real kernel --------------------------------------------------------------------------------

PER_FRAME = """\
%%cuframes demo --name watch
last = frame.seq
if n == 1:
    place = get_ipython().display_pub.parent_header["msg_id"]
    raise ValueError("only once")
if n == 10:
    tenth.set()
"""

AFTERWARDS = """\
assert tenth.wait(30)
assert last > 0
place != get_ipython().display_pub.parent_header["msg_id"]
"""

CELLS = [
    "%load_ext cuframes_nb.notebook\nimport threading\ntenth = threading.Event()",
    "%cuframes publish demo --pattern --size 64x48 --fps 100 --memory host",
    "%cuframes ls",
    PER_FRAME,
    AFTERWARDS,
    "%cuframes snapshot demo",
    "%cuframes stop --all",
    "%cuframes ls",
]


@pytest.mark.process
@pytest.mark.foreign_fds("pyzmq's context keeps its descriptors until the process ends")
def test_in_a_notebook(tmp_path, monkeypatch):
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("PYTHONPATH", child_env()["PYTHONPATH"])
    notebook = nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, CELLS)))
    resources = {"metadata": {"path": str(tmp_path)}}
    NotebookClient(notebook, timeout=90, kernel_name="python3", resources=resources).execute()
    outputs = [cell.outputs for cell in notebook.cells]
    assert "<caption>1 stream</caption>" in outputs[2][0]["data"]["text/html"]
    # Both states were changed in their places while later cells ran.
    assert "publish-demo: stopped" in outputs[1][0]["data"]["text/plain"]
    state = outputs[3][0]["data"]["text/plain"]
    assert state.startswith("job watch: stopped, ")
    assert "1 error" in state
    assert "ValueError: only once" in state
    # What the cell displays or prints counts as its own, also while others run.
    assert outputs[4][0]["data"]["text/plain"] == "True"
    assert "image/png" in outputs[5][0]["data"]
    assert "No stream" in outputs[7][0]["data"]["text/plain"]
    assert [len(cell) for cell in outputs] == [0, 1, 1, 1, 1, 1, 1, 1]
