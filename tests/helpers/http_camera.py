"""A camera that speaks HTTP, on 127.0.0.1: JPEG pictures without end, in one answer.

::

    jpegs = stamped_jpegs(250)  # each picture says its number
    with HttpCamera(jpegs, user="me", password="secret") as camera:
        with av.open(camera.url, format="mpjpeg") as container:  # FFmpeg need not be told
            ...
        camera.stop()  # connections end, and connecting is refused
        camera.start()  # on the same port
        camera.stall()  # no pictures come, and the connections stay
        camera.go_on()

Which picture is sent is told by the time since the camera was made, so that numbers rise through
`stop` and `start`; after the last comes the first.
"""

import base64
import contextlib
import socket
import threading
import time
from http import server
from urllib.parse import quote

__all__ = ["HttpCamera"]

BOUNDARY = "picture"
_NAP_SECONDS = 0.005


class HttpCamera:
    """A server in threads of this process, which end with the block.

    Parameters
    ----------
    jpegs
        The pictures.
    fps
        How many a second.
    user, password
        What a client has to say; by default it need say nothing.
    """

    def __init__(self, jpegs, *, fps=25, user=None, password=""):
        self._jpegs, self._fps = jpegs, fps
        self._user, self._password = user, password
        self._began = time.monotonic()
        self._newest = self._newest_at_start = -1
        self._stalled = threading.Event()
        self._server = None

    def __enter__(self):
        with contextlib.ExitStack() as owned:
            # Bound without listening, the port is given to nobody else, and connecting is refused.
            self._socket = owned.enter_context(socket.socket())
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            self._socket.bind(("127.0.0.1", 0))
            owned.callback(self.stop)
            self.start()
            self._owned = owned.pop_all()
        return self

    def __exit__(self, *exc_info):
        self._owned.close()

    @property
    def port(self):
        return self._socket.getsockname()[1]

    @property
    def url(self):
        """Return the address, with the user and the password that it takes."""
        return self.url_with(self._user, self._password)

    def url_with(self, user, password=""):
        """Return the address with this user, or none, and this password."""
        who = "" if user is None else f"{quote(user, safe='')}:{quote(password, safe='')}@"
        return f"http://{who}127.0.0.1:{self.port}/video.mjpg"

    def start(self):
        """Listen."""
        assert self._server is None, "the camera listens already"
        self._newest_at_start = self._newest
        self._server = _Server(("127.0.0.1", self.port), _Answer)
        self._server.camera = self
        self._listener = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._listener.start()

    def stop(self):
        """Listen no more, and end all connections. Idempotent."""
        if self._server is None:
            return
        self._server.stopped.set()
        self._server.shutdown()
        self._listener.join()
        self._server.server_close()  # waits for the threads of the connections
        self._server = None

    def stall(self):
        """Send no more pictures; connections stay, and new ones are answered."""
        self._stalled.set()

    def go_on(self):
        """Send pictures again after `stall`."""
        self._stalled.clear()

    def lets_in(self, authorization):
        """Return whether a request with this header may see the pictures."""
        if self._user is None:
            return True
        known = base64.b64encode(f"{self._user}:{self._password}".encode()).decode()
        return authorization == f"Basic {known}"

    def pictures(self, stopped):
        """Yield each picture when its turn comes, until `stopped` is set."""
        last = self._newest_at_start
        while not stopped.wait(_NAP_SECONDS):
            number = int((time.monotonic() - self._began) * self._fps)
            if number > last and not self._stalled.is_set():
                last = self._newest = number
                yield self._jpegs[number % len(self._jpegs)]


class _Server(server.ThreadingHTTPServer):
    daemon_threads = False  # `server_close` joins them

    def __init__(self, *args):
        self.stopped = threading.Event()
        super().__init__(*args)


class _Answer(server.BaseHTTPRequestHandler):
    timeout = 10  # of a client that reads nothing

    def do_GET(self):
        camera = self.server.camera
        if not camera.lets_in(self.headers["Authorization"]):
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="camera"')
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", f"multipart/x-mixed-replace; boundary={BOUNDARY}")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client left
            for jpeg in camera.pictures(self.server.stopped):
                head = f"--{BOUNDARY}\r\nContent-Type: image/jpeg\r\nContent-Length: {len(jpeg)}"
                self.wfile.write(f"{head}\r\n\r\n".encode() + jpeg + b"\r\n")

    def log_message(self, *args):
        pass
