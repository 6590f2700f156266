"""One pipeline that reads a stream of ours, from its connection to its end."""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from cuframes_nb._api.frame import Frame
from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.wakeups import WakeReceiver, wake_pair
from cuframes_nb._runtime.session import was_farewell
from cuframes_nb._wire.messages import RingDescription
from cuframes_nb.bridges.gst.caps import Caps, caps_text
from cuframes_nb.bridges.gst.codec import config_packet, offer_packet, packet
from cuframes_nb.bridges.gst.feed import Feed, place_of
from cuframes_nb.bridges.gst.messages import Config, Kind, Offer
from cuframes_nb.bridges.gst.requests import Account, RequestDecoder
from cuframes_nb.errors import CuframesError, PublisherGoneError, RemoteProtocolError

__all__ = ["Client", "ring_caps"]

_log = logging.getLogger("cuframes_nb")

_LINGER_SECONDS: Final = 2.0
"""For a pipeline that was told of the end to give back what it holds and to go."""

_CHUNK: Final = 4096
"""Bytes to read at once; a request has a dozen."""

_CARRIER: Final = b"\0"
"""The byte that a descriptor comes with."""


class Client:
    """A pipeline that connected, and the subscription that is its own.

    So it holds no more than a subscriber may, what it holds is given back when it dies, and
    whatever it does or fails to do is no other's concern. It has a thread, which waits for what it
    says and for frames.

    Parameters
    ----------
    stream
        The connection, this object's from now on.
    make_feed
        Subscribes, under the name given.
    on_end
        Called on the thread when it ends.
    """

    def __init__(
        self,
        stream: ByteStream,
        make_feed: Callable[[str], Feed],
        on_end: Callable[[Client], None],
    ) -> None:
        self._stream = stream
        self._pid = stream.peer().pid
        self._feed = make_feed(f"gst:{_command(self._pid)}")
        self._on_end = on_end
        self._decoder = RequestDecoder()
        self._account: Account[Frame] = Account()
        self._caps = ""
        self._leave_at: float | None = None
        self._stopping = False
        self._sender, fd = wake_pair()
        self._receiver = WakeReceiver.adopt(fd)
        self._thread = threading.Thread(target=self._run, name="cuframes-gst-client", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """Tell it of the end; the thread ends when it has gone, or after two seconds."""
        self._stopping = True
        self._sender.wake()

    def join(self, seconds: float) -> None:
        """Wait for the thread to end, at most so long."""
        if threading.current_thread() is not self._thread:  # which may have collected the server
            self._thread.join(seconds)

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._is_done():
                self._give()
                self._stream.flush()
                self._wait()
        except (CuframesError, OSError) as error:
            # Nobody is here to be told; the connection's end tells the pipeline.
            _log.warning("a pipeline (process %s) was disconnected: %s", self._pid, str(error))
        finally:
            self._close()

    def _give(self) -> None:
        """Offer the newest frame, if the pipeline asks and there is one that it may have."""
        if self._stopping and self._leave_at is None:
            self._end()
        if not self._wants_frames() or not self._feed.reach():
            return
        if not self._caps and self._feed.ring is not None:
            self._introduce(self._feed.ring)
        if not self._account.asks:
            return
        try:
            frame = self._feed.take()
        except PublisherGoneError as error:
            if was_farewell(error):
                self._end()
            return  # else the next of that name is waited for
        if frame is not None:
            self._offer(frame)

    def _introduce(self, ring: RingDescription) -> None:
        """Say what the frames will be, before there is any: pipelines are built with that."""
        self._caps = ring_caps(ring)
        self._stream.write(config_packet(Config(os.getpid(), is_mmap=True, caps=self._caps)))

    def _offer(self, frame: Frame) -> None:
        place = place_of(frame)
        caps = ring_caps(frame._ring)  # noqa: SLF001  what the epoch says
        offer = Offer(
            max(0, frame.pts_ns),
            place.size,
            place.max_size,
            place.pitch,
            place.offsets,
            place.token,
            is_mmap=True,
            caps=None if caps == self._caps else caps,
        )
        self._caps = caps
        self._account.offer(place.token, frame)
        self._stream.write(offer_packet(offer))
        self._stream.write(_CARRIER, OwnedFd(os.dup(place.fd.fileno())))

    def _end(self) -> None:
        self._leave_at = time.monotonic() + _LINGER_SECONDS
        self._account.end()
        self._stream.write(packet(Kind.EOS))

    def _wait(self) -> None:
        poller = select.poll()
        poller.register(self._receiver.fileno(), select.POLLIN)
        unsent = select.POLLOUT if self._stream.unsent else 0
        poller.register(self._stream.fileno(), select.POLLIN | unsent)
        if self._wants_frames():
            for fd in self._feed.filenos:
                poller.register(fd, select.POLLIN)
        happened = {fd for fd, _ in poller.poll(self._pause())}
        if self._receiver.fileno() in happened:
            self._receiver.drain()
        if self._stream.fileno() in happened:
            self._read()

    def _wants_frames(self) -> bool:
        wants = self._account.asks or not self._caps
        return wants and self._leave_at is None and not self._feed.full

    def _pause(self) -> float | None:
        """Return for how many milliseconds to poll; what is less than one is slept here."""
        if self._leave_at is not None:
            return max(0.0, self._leave_at - time.monotonic()) * 1000
        seconds = self._feed.patience() if self._wants_frames() else None
        if seconds is None:
            return None
        if seconds < 0.001:
            time.sleep(seconds)
            return 0
        return seconds * 1000

    def _read(self) -> None:
        try:
            chunk = self._stream.read(_CHUNK)
        except BlockingIOError:
            return
        if chunk.fds:
            close_all(chunk.fds)
            raise RemoteProtocolError("it sent a descriptor, which no client does")
        if not chunk.data:
            self._account.left = True
        for request in self._decoder.feed(chunk.data):
            frame = self._account.incoming(request)
            if frame is not None:
                frame.release()

    def _is_done(self) -> bool:
        late = self._leave_at is not None and time.monotonic() >= self._leave_at
        return self._account.left or late

    def _close(self) -> None:
        self._stream.close()
        for frame in self._account.give_up():
            frame.release()
        self._feed.close()
        self._receiver.close()
        self._on_end(self)
        self._sender.close()


def ring_caps(ring: RingDescription) -> str:
    """Return GStreamer's caps of a stream's frames.

    Raises
    ------
    UnsupportedError
        If it has none for them.
    """
    layout = ring.layout
    return caps_text(Caps(layout.format, layout.width, layout.height, ring.fps, ring.color))


def _command(pid: int) -> str:
    """Return the name of a process's program, as far as it is to be seen."""
    try:
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip()[:32]
    except OSError:
        return "elsewhere"
