"""A camera that speaks RTSP, on 127.0.0.1: a film that goes on for ever, served by GStreamer.

The film is an MP4 or Matroska file of H.264 or HEVC; `tests.helpers.films.stamped_film` makes one
for this, each of whose frames says its number, and every fifth is a key frame::

    @pytest.fixture(scope="module")
    def film(tmp_path_factory):
        return stamped_film(tmp_path_factory.mktemp("film") / "film.mp4")  # a minute, in a second

    def test_a_camera(film):
        with RtspServer(film) as server:
            with av.open(server.url, options={"rtsp_transport": "tcp"}) as container:
                frame = next(container.decode(video=0))
                number = read_stamp(frame.to_ndarray()[: frame.height])
            server.stop()  # with SIGKILL; connecting is refused from now on
            server.start()  # on the same port
            server.stall()  # no frames come, and the connection stays
            server.go_on()

    with RtspServer(film, user="me", password="secret") as server:  # auth="basic" or "digest"
        server.url  # rtsp://me:secret@127.0.0.1:40123/film
        server.url_with(None)  # and without, or with others

As with a camera, what a client sees is what its place in the film is now, from the next key frame
on: numbers rise through `stall`, through `stop` and `start`, and from client to client, until the
film begins again (a minute after the server was made, for the film above).
"""

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import quote

import av
import pytest

__all__ = ["PACKAGES", "RtspServer"]

PYTHON = "/usr/bin/python3"
"""The system's Python: PyGObject is a package of the system, not of an environment."""

PACKAGES = ("python3-gi", "gir1.2-gst-rtsp-server-1.0", "gstreamer1.0-plugins-good")
"""What Debian and Ubuntu call what the server needs; `.ci/run` installs them."""

IMPORT = (
    "import gi; gi.require_version('GstRtspServer', '1.0'); from gi.repository import GstRtspServer"
)
SERVER = Path(__file__).with_name("rtsp_server.py")
CODECS = {"h264": ("h264", "avc"), "hevc": ("h265", "hvc1")}
"""What GStreamer calls FFmpeg's codecs, and their frames as MP4 and Matroska have them."""

_SECONDS = 60
"""How long the server may take to start and to answer; nothing waits that long but a failure."""


class RtspServer:
    """A server in a process of its own, which ends with the block.

    Parameters
    ----------
    film
        The file to serve.
    user, password
        What a client has to say; by default it need say nothing.
    auth
        How: ``"digest"`` or ``"basic"``.
    port
        By default a free one. It stays ours while the server is stopped.
    """

    def __init__(self, film, *, user=None, password=None, auth="digest", port=0):
        self._film, self._user, self._password, self._auth = film, user, password, auth
        self._wanted_port = port
        self._epoch = time.monotonic()
        self._process = None

    def __enter__(self):
        _check_packages()
        with contextlib.ExitStack() as owned:
            # Bound without listening, the port is given to nobody else, and connecting is refused.
            self._socket = owned.enter_context(socket.socket())
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", self._wanted_port))
            self._frames = owned.enter_context(tempfile.TemporaryFile())
            self._errors = owned.enter_context(tempfile.TemporaryFile())
            _write_frames(self._film, self._frames)
            owned.callback(self.stop)
            self.start()
            self._owned = owned.pop_all()
        return self

    def __exit__(self, kind, error, traceback):
        if error is not None:
            error.add_note(f"stderr of the RTSP server:\n{self.log()}")
        self._owned.close()

    @property
    def port(self):
        return self._socket.getsockname()[1]

    @property
    def pid(self):
        return self._process.pid

    @property
    def url(self):
        """Return the address of the film, with the user and the password that it takes."""
        return self.url_with(self._user, self._password)

    def url_with(self, user, password=None):
        """Return the address with this user, or none, and this password."""
        who = "" if user is None else f"{quote(user, safe='')}:{quote(password or '', safe='')}@"
        return f"rtsp://{who}127.0.0.1:{self.port}/film"

    def log(self):
        """Return what the servers of this block have printed."""
        size = os.fstat(self._errors.fileno()).st_size
        return os.pread(self._errors.fileno(), size, 0).decode(errors="replace")

    def start(self):
        """Start the server and wait until it listens."""
        assert self._process is None, "the server runs already"
        who = () if self._user is None else ("--user", self._user, "--password", self._password)
        self._process = subprocess.Popen(
            [
                PYTHON, str(SERVER), f"/proc/self/fd/{self._frames.fileno()}",
                "--port", str(self.port), "--epoch", str(self._epoch), "--auth", self._auth, *who,
            ],
            bufsize=0,
            env={**os.environ, "PYTHONPATH": "", "PYTHONHOME": ""},
            pass_fds=[self._frames.fileno()],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )  # fmt: skip
        self._expect("listening")

    def stop(self):
        """End the server at once, with ``SIGKILL``. Idempotent."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._process = None

    def stall(self, *, frozen=False):
        """Send no more frames; a `frozen` server, stopped by a signal, answers nothing either."""
        if frozen:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self.pid, os.WSTOPPED)
        else:
            self._command("stall")

    def go_on(self):
        """Send frames again after `stall`."""
        self._process.send_signal(signal.SIGCONT)
        self._command("go on")

    def _command(self, words):
        self._process.stdin.write(f"{words}\n".encode())
        self._expect(words)

    def _expect(self, kind):
        """Wait for the server's next line, which has to be `kind`."""
        stdout = self._process.stdout
        assert select.select([stdout], [], [], _SECONDS)[0], f"no answer in time:\n{self.log()}"
        line = stdout.readline()
        assert line, f"the RTSP server ended:\n{self.log()}"
        assert json.loads(line) == kind


def _check_packages():
    """Skip the test where GStreamer's server is not installed; where changes are taken, fail."""
    if error := _import_error():
        advice = f"{error}: on Debian and Ubuntu, apt install {' '.join(PACKAGES)}"
        (pytest.fail if os.environ.get("CI") else pytest.skip)(f"no RTSP server: {advice}")


@functools.cache
def _import_error():
    """Return the last line of what the system's Python says to GStreamer's server, if anything."""
    try:
        done = subprocess.run(
            [PYTHON, "-c", IMPORT], capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except OSError as error:
        return str(error)
    return done.stderr.strip().rpartition("\n")[2] if done.returncode else ""


def _write_frames(film, file):
    """Write the coded frames of `film` as the server reads them, after a line that lists them."""
    with av.open(str(film)) as container:
        stream = container.streams.video[0]
        packets = [packet for packet in container.demux(stream) if packet.size]
        header = {
            "codec": CODECS[stream.codec_context.name],
            "parameters": stream.codec_context.extradata.hex(),
            "fps": float(stream.average_rate),
            "frames": [
                (p.is_keyframe, int(p.pts * p.time_base * 1_000_000_000), p.size) for p in packets
            ],
        }
        file.write(json.dumps(header).encode() + b"\n")
        file.writelines(bytes(packet) for packet in packets)
    file.flush()
