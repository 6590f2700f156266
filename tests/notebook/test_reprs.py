"""What is shown of frames, streams, counters and jobs, as HTML and as text."""

import base64
import contextlib
import html.parser
import io
import re
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

import cuframes_nb as cf
from cuframes_nb._show import quantities
from cuframes_nb._show.listings import (
    DeviceTable,
    StreamTable,
    info_sheet,
    stats_sheet,
    stats_table,
)
from cuframes_nb._show.tables import Column, Sheet, Table
from cuframes_nb._views import downloads
from cuframes_nb.notebook.failures import Failure
from cuframes_nb.notebook.images import picture
from cuframes_nb.notebook.job_table import JobTable
from cuframes_nb.notebook.jobs import JobStatus
from cuframes_nb.notebook.live import html as live_html
from cuframes_nb.notebook.live import text as live_text
from cuframes_nb.notebook.reprs import Snapshot, _address_range, frame_html
from cuframes_nb.notebook.terminal import facts, still
from cuframes_nb.sinks import jpeg, png
from tests.helpers.frames import publish, publisher, until
from tests.helpers.shells import shell

__all__ = ["shell"]

HOSTILE = "<img src=x onerror=alert(1)>\"'&\x1b[31m\u202e\n"
VOID = {"img"}


class Page(html.parser.HTMLParser):
    """Reads HTML that must be well-formed: which elements there are, and the text in each."""

    def __init__(self, source):
        super().__init__()
        self.open, self.elements, self.texts = [], [], []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.elements if name == tag]

    @property
    def text(self):
        return " ".join(self.texts)


@pytest.fixture
def pub():
    with publisher("cam", fps=25) as it:
        yield it


# --- Tables ---------------------------------------------------------------------------------------


def test_a_table_has_a_caption_and_heads_that_say_what_they_are_of():
    page = Page(
        Table("2 things", ["name", Column("size", number=True)], [["a", "1"]])._repr_html_()
    )
    assert [name for name, _ in page.elements][:2] == ["table", "caption"]
    assert [head["scope"] for head in page.all("th")] == ["col", "col", "row"]
    assert page.texts == ["2 things", "name", "size", "a", "1"]


def test_a_table_has_no_colours_of_its_own():
    table = Table("t", ["a", Column("b", number=True)], [["x", "1"]])._repr_html_()
    assert set(re.findall(r'style="([^"]*)"', table)) == {"text-align: left", "text-align: right"}
    assert "color" not in table


def test_a_table_as_text_is_aligned():
    table = Table("cams", ["key", Column("fps", number=True)], [["cam1", "5"], ["c", "25"]])
    assert repr(table) == "cams\nkey   fps\ncam1    5\nc      25"
    assert len(table) == 2


def test_an_empty_table_is_its_caption():
    table = Table("nothing <here>", ["a"], [])
    assert repr(table) == "nothing <here>"
    assert table._repr_html_() == "<p>nothing &lt;here&gt;</p>"


def test_a_sheet_is_its_tables():
    sheet = Sheet(Table("a", ["x"], []), Table("b", ["x"], []))
    assert repr(sheet) == "a\n\nb"
    assert sheet._repr_html_() == "<p>a</p><p>b</p>"


def test_what_comes_from_others_is_shown_and_not_obeyed():
    table = Table(HOSTILE, [HOSTILE], [[HOSTILE]])
    page = Page(table._repr_html_())
    assert page.all("img") == []
    assert page.texts == ["<img src=x onerror=alert(1)>\"'&\ufffd[31m\ufffd\ufffd"] * 3
    assert repr(table).count("\n") == 2
    assert "\x1b" not in repr(table)


def test_names_of_subscribers_cannot_break_out(pub):
    with cf.subscribe("cam", name=HOSTILE):
        until(lambda: pub.stats.subscribers == 1)
        (info,) = cf.list_streams()
    for shown in (StreamTable([info]), stats_sheet([info]), info_sheet(info)):
        page = Page(shown._repr_html_())
        assert page.all("img") == []
        assert "<img src=x onerror=alert(1)>" in page.text
        assert "\x1b" not in repr(shown)
        assert "onerror=alert(1)" in repr(shown)


# --- Listings -------------------------------------------------------------------------------------


def test_streams(pub):
    publish(pub, 1200)
    with cf.subscribe("cam", name="me"):
        until(lambda: pub.stats.subscribers == 1)
        streams = cf.list_streams()
    table = StreamTable(streams)
    assert table.streams == tuple(streams)
    for word in ("1 stream\n", "cam", "live", "64x48 nv12", "25", "host", "1,200", "1: me"):
        assert word in repr(table)
    assert Page(table._repr_html_()).all("table") == [{}]


def test_no_streams():
    assert repr(StreamTable([])) == "No stream is published here"
    assert repr(stats_sheet([])) == "No stream is published here"


def test_a_stream_that_its_subscriber_describes(pub):
    with cf.subscribe("cam") as subscriber:
        info = subscriber.info
    assert info.subscribers is None
    assert "unknown" in repr(StreamTable([info]))
    assert "none yet" in repr(info_sheet(info))
    assert "–" in repr(stats_sheet([info]))


def test_counters_and_who_reads(pub):
    publish(pub)
    with cf.subscribe("cam", name="reader") as subscriber, subscriber.next(5):
        until(lambda: pub.stats.slots_leased == 1)
        text = repr(stats_sheet(cf.list_streams()))
    assert "Who reads cam" in text
    assert re.search(r"reader +\d+ +\d+ +newest +1 of 4", text)


def test_all_about_a_stream(pub):
    publish(pub)
    (info,) = cf.list_streams()
    text = repr(info_sheet(info))
    for word in ("Stream cam", "bt601, limited (assumed)", str(info.path), "4 slots, drop-oldest"):
        assert word in text


def test_counters_of_both_ends(pub):
    publish(pub, 1000)
    with cf.subscribe("cam") as subscriber:
        assert re.search(r"lease limit +2$", repr(stats_table(subscriber.stats)), re.MULTILINE)
    assert re.search(r"^published +1,000$", repr(stats_table(pub.stats)), re.MULTILINE)


def gpu(**changes):
    facts = {
        "ordinal": 0,
        "name": "A <GPU>",
        "uuid": "GPU-1",
        "pci_bus_id": "0000:01:00.0",
        "total_bytes": 80 << 30,
        "compute_capability": (9, 0),
        "integrated": False,
        "can_share": True,
    }
    return cf.DeviceInfo(**{**facts, **changes})


def test_devices():
    text = repr(DeviceTable([gpu(), gpu(ordinal=1, integrated=True, can_share=False)]))
    assert re.search(r"0  A <GPU> +80.0 GiB +– +9.0 +unknown", text)
    assert re.search(r"1  A <GPU> \(integrated\) +80.0 GiB", text)
    assert re.search(r"0  GPU-1 +0000:01:00.0", text)
    assert re.search(r"0  yes +unknown +unknown +no other", text)
    assert re.search(r"1  no ", text)
    assert "host memory" in repr(DeviceTable([]))


def status(**changes):
    facts = {
        "name": "count",
        "kind": "cell",
        "key": "cam",
        "state": "running",
        "frames": 1200,
        "fps": 24.98,
        "errors": 0,
        "failures": (),
        "seconds": 75.0,
        "note": "",
    }
    return JobStatus(**{**facts, **changes})


def test_jobs():
    text = repr(JobTable([status(), status(name="other", errors=3, fps=0.0)]))
    assert "2 jobs\n" in text
    assert re.search(r"count +cell +cam +running +1,200 +25 +0 +1 min 15 s", text)
    assert "no job" in repr(JobTable([])).lower()


def test_a_running_job_in_one_line():
    line = live_text(status())
    assert line == "job count: running, 1,200 frames, 25 fps (to end it: %cuframes stop count)"
    assert "stop 'my job'" in live_text(status(name="my job"))
    publishing = status(kind="publish", state="stopped", note="a film")
    assert live_text(publishing) == "publisher count: stopped, 1,200 frames, 25 fps, a film"


def test_the_errors_of_a_job_are_under_its_line():
    trace = f"Traceback:\n\tin a cell\nValueError: {HOSTILE}"
    failure = Failure(f"ValueError: {HOSTILE}", trace, 3)
    shown = status(errors=3, failures=(failure,))
    page = Page(live_html(shown))
    assert page.all("img") == []
    assert "3 errors" in page.text
    assert "3 times: ValueError: <img" in page.text
    assert "in a cell" in page.text
    assert "\x1b" not in page.text + live_text(shown)
    assert "        in a cell" in live_text(shown)


# --- Quantities -----------------------------------------------------------------------------------


def test_times_are_read():
    for text, seconds in {"10s": 10, "500ms": 0.5, "2m": 120, "1.5min": 90, "1h": 3600}.items():
        assert quantities.parse_seconds(text) == seconds
    assert quantities.parse_seconds("3") == 3
    assert quantities.parse_seconds(" .5 S ") == 0.5


def test_what_is_no_time_is_refused():
    for text in ("", "10x", "-1s", "0", "s", "1e3s", "inf", "nan", "10 s s"):
        with pytest.raises(ValueError, match="write 10s, 500ms, 2m or 1h"):
            quantities.parse_seconds(text)


def test_sizes_are_read():
    assert quantities.parse_size("1280x720") == (1280, 720)
    assert quantities.parse_size("64X48") == (64, 48)
    for text in ("", "1280", "0x3", "1280x", "-1x3", "99999x3", "1280x720x3"):
        with pytest.raises(ValueError, match="as 1280x720"):
            quantities.parse_size(text)


def test_durations_have_units():
    for seconds, text in {0.0123: "12 ms", -1: "0 ms", 1: "1.0 s", 61: "1 min 1 s"}.items():
        assert quantities.seconds_text(seconds) == text
    assert quantities.seconds_text(7260) == "2 h 1 min"


def test_amounts_have_units():
    assert [quantities.bytes_text(n) for n in (5, 2048, 3 << 20, 5 << 40)] == [
        "5 B",
        "2 KiB",
        "3 MiB",
        "5120.0 GiB",
    ]
    assert quantities.amount(1, "frame") == "1 frame"
    assert quantities.amount(1200, "frame") == "1,200 frames"
    assert (quantities.rate_text(0), quantities.rate_text(29.97)) == ("–", "30")


# --- Frames ---------------------------------------------------------------------------------------


@pytest.fixture
def frame_of(pub):
    """Return what makes a frame with a picture, of the size and format asked for."""
    random = np.random.default_rng(1)

    def make(**settings):
        pub.reconfigure(**settings)
        with pub.acquire() as slot:
            for plane in slot.planes:
                plane[...] = random.integers(16, 235, plane.shape)
        with cf.subscribe("cam") as subscriber:
            return subscriber.next(5)

    return make


def shown_picture(page):
    (image,) = page.all("img")
    data = image["src"].removeprefix("data:image/png;base64,")
    return np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), image


def test_a_small_frame_is_shown_pixel_by_pixel(frame_of):
    with frame_of() as frame:
        page = Page(frame_html(frame))
        rgb, image = shown_picture(page)
        assert np.array_equal(rgb, frame.rgb())
    assert (image["width"], image["height"], image["alt"]) == ("64", "48", "Frame 1 of cam")


def test_a_large_frame_is_shown_small(frame_of):
    with frame_of(width=1001, height=501) as frame:
        rgb, _ = shown_picture(Page(frame_html(frame)))
    assert rgb.shape == (160, 320, 3)


def test_a_frame_tells_its_planes_and_where_they_lie(frame_of):
    with frame_of(width=1001, height=501) as frame:
        page = Page(frame_html(frame))
        start = frame.uv.__array_interface__["data"][0]
        end = start + 250 * frame.pitches[1] + 1002
    assert "251 x 501 x 2" in page.texts
    assert "uint8" in page.texts
    assert f"{start:#x} to {end:#x}" in page.texts
    assert page.text.count("1,024 bytes") == 2


@pytest.mark.parametrize("format_", ["p010", "gray8", "rgb24", "rgba32"])
def test_every_format_is_shown(frame_of, format_):
    with frame_of(format=format_) as frame:
        rgb, _ = shown_picture(Page(frame_html(frame)))
        assert np.array_equal(rgb, frame.rgb())


def test_a_released_frame_has_facts_and_no_picture(frame_of):
    frame = frame_of()
    frame.release()
    page = Page(frame_html(frame))
    assert page.all("img") == []
    assert "released" in page.texts


def test_a_frame_that_cannot_be_converted_has_its_facts(frame_of, monkeypatch):
    def fail(*_args, **_options):
        raise RuntimeError("<no> memory")

    monkeypatch.setattr("cuframes_nb.notebook.reprs.picture", fail)
    with frame_of() as frame:
        page = Page(frame_html(frame))
    assert "There is no picture: <no> memory" in page.texts
    assert "Planes" in page.texts


def test_showing_a_frame_holds_nothing(frame_of, pub):
    frame = frame_of()
    frame_html(frame)
    frame.release()
    until(lambda: pub.stats.slots_leased == 0)


def test_png_is_without_loss():
    random = np.random.default_rng(2)
    for shape in ((1, 1), (3, 5), (48, 64)):
        rgb = random.integers(0, 256, (*shape, 3), np.uint8)
        for pixels in (rgb, rgb[:, ::-1]):
            assert np.array_equal(np.asarray(Image.open(io.BytesIO(png(pixels)))), pixels)


def test_jpeg_is_nearly_without_loss():
    rgb = np.full((16, 16, 3), (200, 100, 50), np.uint8)
    seen = np.asarray(Image.open(io.BytesIO(jpeg(rgb)))).astype(int)
    assert abs(seen - rgb).max() <= 3


class OnGpu:
    """What is asked of an array in device memory."""

    def __init__(self, array, address):
        self._array = array
        self.shape, self.size, self.itemsize = array.shape, array.size, array.itemsize
        self.__cuda_array_interface__ = {"data": (address, True)}
        self.device = SimpleNamespace(id=3)

    def get(self):
        return self._array


def test_what_is_on_a_gpu_is_fetched_and_its_address_told(monkeypatch):
    current = []
    monkeypatch.setattr(
        downloads, "activated", lambda gpu: current.append(gpu) or contextlib.nullcontext()
    )
    plane = OnGpu(np.zeros((3, 4), np.uint16), 0x1000)
    assert downloads.as_numpy(plane) is plane._array
    assert current == [3]
    assert _address_range(plane, 256) == "0x1000 to 0x1208"


def test_a_picture_is_never_larger_than_the_frame(frame_of):
    with frame_of() as frame:
        assert picture(frame, 1000).shape == (48, 64, 3)
        assert picture(frame, 1).shape == (1, 1, 3)


def test_a_snapshot_keeps_its_pixels(frame_of, pub):
    frame = frame_of()
    snapshot = Snapshot(frame)
    expected = frame.rgb()
    frame.release()
    until(lambda: pub.stats.slots_leased == 0)
    assert np.array_equal(snapshot.rgb, expected)
    assert np.array_equal(np.asarray(Image.open(io.BytesIO(snapshot._repr_png_()))), expected)
    assert repr(snapshot) == "<Snapshot cam #1, 64x48>"


# --- In a terminal --------------------------------------------------------------------------------


def cells_of(line):
    """Return ``(upper, lower)`` colours of each character of a line."""
    colours = None
    found = []
    for match in re.finditer(r"\x1b\[([\d;]*)m|(▀)", line):
        if match[2]:
            found.append(colours)
        elif match[1] != "0":
            numbers = list(map(int, match[1].split(";")))
            assert numbers[:2] == [38, 2]
            assert numbers[5:7] == [48, 2]
            colours = tuple(numbers[2:5]), tuple(numbers[7:10])
    return found


def test_a_still_has_two_pixels_a_character(frame_of):
    with frame_of() as frame:
        lines = still(frame, columns=32).split("\n")
        rgb = frame.rgb(size=(32, 24))
    seen = [cells_of(line) for line in lines]
    assert len(lines) == 12
    assert all(line.endswith("\x1b[0m") for line in lines)
    upper = np.array([[cell[0] for cell in row] for row in seen])
    lower = np.array([[cell[1] for cell in row] for row in seen])
    assert np.array_equal(upper, rgb[::2])
    assert np.array_equal(lower, rgb[1::2])


def test_a_still_of_a_narrow_frame_is_narrow(frame_of):
    with frame_of(width=5, height=2) as frame:
        lines = still(frame).split("\n")
        assert [line.count("▀") for line in lines] == [5]


def test_a_still_of_nothing_is_refused(frame_of):
    frame = frame_of()
    with frame, pytest.raises(cf.InvalidArgumentError, match="0 columns"):
        still(frame, 0)
    with pytest.raises(cf.ClosedError):
        still(frame)


def test_a_line_about_a_frame(frame_of):
    with frame_of() as frame:
        assert re.fullmatch(r"cam #1: 64x48 nv12 on cpu, [\d.]+ ms old", facts(frame))


# --- In a shell -----------------------------------------------------------------------------------


def test_a_shell_shows_our_objects(shell, pub):
    publish(pub)
    with cf.subscribe("cam") as subscriber, subscriber.next(5) as frame:
        assert Page(shell.html(frame)).all("img")
        assert "Counters of a subscriber" in shell.html(subscriber.stats)
        assert "Stream cam" in shell.html(subscriber.info)
    assert "Counters of a publisher" in shell.html(pub.stats)
    assert "A &lt;GPU&gt;" in shell.html(gpu())


def test_a_shell_shows_lists_of_ours_as_tables_and_others_as_they_are(shell, pub):
    streams = cf.list_streams()
    assert type(streams) is list
    assert "1 stream" in shell.html(streams)
    assert "2 GPUs" in shell.html([gpu(), gpu(ordinal=1)])
    assert shell.html([]) is None
    assert shell.html([1, 2]) is None
    assert shell.html([*streams, 1]) is None


def test_lists_that_show_themselves_still_do(shell):
    class Own(list):
        def _repr_html_(self):
            return "<b>own</b>"

    assert shell.html(Own([1])) == "<b>own</b>"


def test_displays_of_others_come_back(shell):
    formatter = shell.ip.display_formatter.formatters["text/html"]
    shell.run("%unload_ext cuframes_nb.notebook")
    formatter.for_type(list, lambda values: f"<i>{len(values)}</i>")
    formatter.for_type("cuframes_nb._api.devices.DeviceInfo", lambda _: "<i>mine</i>")
    shell.run("%load_ext cuframes_nb.notebook")
    assert "A &lt;GPU&gt;" in shell.html(gpu())
    assert "GPU" in shell.html([gpu()])
    assert shell.html([1, 2]) == "<i>2</i>"
    shell.run("%unload_ext cuframes_nb.notebook")
    assert shell.html(gpu()) == "<i>mine</i>"
    assert shell.html([gpu()]) == "<i>1</i>"


def test_without_the_extension_nothing_is_shown(shell, pub):
    assert shell.html(pub.stats)
    shell.run("%unload_ext cuframes_nb.notebook")
    assert shell.html(pub.stats) is None
    assert shell.html(cf.list_streams()) is None
