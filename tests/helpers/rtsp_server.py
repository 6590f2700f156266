"""A camera that speaks RTSP: the process behind `tests.helpers.rtsp`.

Runs in the system's Python, which has GStreamer, and imports nothing of ours. It is given a port of
127.0.0.1, the file of a film's coded frames and, on its input, commands: ``stall`` sends no more
frames but answers, ``go on`` ends that, and the end of the input ends the process. It answers each
with a line of JSON, and says one when it listens.
"""

import argparse
import json
import os
import sys
import threading
import time
from pathlib import Path

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtsp", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import GLib, Gst, GstRtsp, GstRtspServer  # noqa: E402

ROLE = "viewer"
TICK_MS = 5

PIPELINE = (
    "( appsrc name=film is-live=true format=time max-bytes=0"
    " caps=video/x-{codec},stream-format={form},alignment=au,codec_data=(buffer){parameters}"
    " ! rtp{codec}pay name=pay0 pt=96 )"
)


class Film:
    """Coded frames in the order of decoding, over and over, at a place that the time tells."""

    def __init__(self, path, epoch):
        header, _, data = Path(path).read_bytes().partition(b"\n")
        header = json.loads(header)
        self._fps = header["fps"]
        codec, form = header["codec"]
        self.elements = ("appsrc", f"rtp{codec}pay", "rtpbin")
        self.pipeline = PIPELINE.format(codec=codec, form=form, parameters=header["parameters"])
        self._epoch = epoch
        self._frames = []
        at = 0
        for key, shown, size in header["frames"]:
            self._frames.append((key, shown, data[at : at + size]))
            at += size
        self._length = int(len(self._frames) * 1e9 / self._fps)

    def now(self):
        """Return the number of the frame whose turn it is."""
        return int((time.monotonic() - self._epoch) * self._fps)

    def frame(self, number):
        """Return frame `number`: whether it is a key frame, when it is shown, its bytes."""
        rounds, number = divmod(number, len(self._frames))
        key, shown, data = self._frames[number]
        return key, shown + rounds * self._length, data


class Feed:
    """One client's frames, which begin with a key frame."""

    def __init__(self, film, source):
        self._film = film
        self._source = source
        self._start = None  # the time in the film of the first frame sent
        self.pause()

    def pause(self):
        """Leave out what is due from now on, until the next `push`."""
        self._next = None
        self._begun = False

    def push(self):
        """Send what is due."""
        now = self._film.now()
        for number in range(now if self._next is None else self._next, now + 1):
            key, shown, data = self._film.frame(number)
            self._begun = self._begun or key
            if self._begun:
                self._send(shown, data)
        self._next = now + 1

    def _send(self, shown, data):
        if self._start is None:
            self._start = shown
        buffer = Gst.Buffer.new_wrapped(data)
        buffer.pts = shown - self._start
        self._source.emit("push-buffer", buffer)


class Camera:
    """All clients' feeds, driven by a timer of the main loop."""

    def __init__(self, film):
        self._film = film
        self._feeds = []
        self._stalled = False
        GLib.timeout_add(TICK_MS, self._tick)

    def connect(self, _factory, media):
        # called in a client's thread
        feed = Feed(self._film, media.get_element().get_by_name("film"))
        media.connect("unprepared", lambda _media: self._feeds.remove(feed))
        self._feeds.append(feed)

    def stall(self, stalled):
        self._stalled = stalled

    def _tick(self):
        for feed in list(self._feeds):
            if self._stalled:
                feed.pause()
            else:
                feed.push()
        return GLib.SOURCE_CONTINUE


def serve(options):
    """Return a server that listens, and the camera behind it."""
    film = Film(options.film, options.epoch)
    if missing := [name for name in film.elements if not Gst.ElementFactory.find(name)]:
        sys.exit(f"GStreamer has no {' and no '.join(missing)}")
    camera = Camera(film)
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(film.pipeline)
    factory.connect("media-configure", camera.connect)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(str(options.port))
    server.get_thread_pool().set_max_threads(-1)  # who waits for a frame holds up nobody else
    if options.user is not None:
        permissions = GstRtspServer.RTSPPermissions()
        permissions.add_permission_for_role(ROLE, "media.factory.access", True)
        permissions.add_permission_for_role(ROLE, "media.factory.construct", True)
        factory.set_permissions(permissions)
        server.set_auth(authentication(options))
    server.get_mount_points().add_factory("/film", factory)
    if not server.attach(None):
        sys.exit(f"cannot listen on port {options.port}")
    return server, camera


def authentication(options):
    auth = GstRtspServer.RTSPAuth()
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", ROLE)
    if options.auth == "digest":
        auth.set_supported_methods(GstRtsp.RTSPAuthMethod.DIGEST)
        auth.add_digest(options.user, options.password, token)
    else:
        basic = GstRtspServer.RTSPAuth.make_basic(options.user, options.password)
        auth.add_basic(basic, token)
    return auth


def say(words):
    sys.stdout.write(json.dumps(words) + "\n")
    sys.stdout.flush()


def obey(camera):
    """Follow the commands on the input, in a thread of their own."""
    for line in sys.stdin:
        words = line.strip()
        camera.stall(words == "stall")
        say(words)
    os._exit(0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("film")
    parser.add_argument("--port", type=int)
    parser.add_argument("--epoch", type=float)
    parser.add_argument("--user")
    parser.add_argument("--password", default="")
    parser.add_argument("--auth", choices=["basic", "digest"], default="digest")
    Gst.init(None)
    _server, camera = serve(parser.parse_args())
    threading.Thread(target=obey, args=(camera,), daemon=True).start()
    say("listening")
    GLib.MainLoop().run()


if __name__ == "__main__":
    main()
