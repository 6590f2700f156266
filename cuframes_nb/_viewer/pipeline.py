"""The thread of a view: take, process, cut and scale, encode, send; the newest frame wins.

There is never more than one picture in hand. What cannot be sent is not kept: when there is credit
again, the newest frame is taken.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import math
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cuframes_nb._api.frame import Frame
from cuframes_nb._core.clock import now_ns
from cuframes_nb._viewer import messages
from cuframes_nb._viewer.camera import Camera, Shot
from cuframes_nb._viewer.encoders import JPEG, PNG, JpegEncoder, png
from cuframes_nb._viewer.messages import PageMessage, Part
from cuframes_nb._viewer.pacing import Pacer, Plan
from cuframes_nb._viewer.picture import Planes, Scaler, Size

__all__ = ["Send", "Viewer"]

Send: TypeAlias = Callable[[dict[str, Any], Sequence[bytes]], None]
"""Sends a message with its buffers to every page; may raise when there is nobody any more."""

_INBOX: Final = 1000
"""Messages of pages that are kept; more than a page that behaves could ever send."""
_STILL_SECONDS: Final = 0.3
"""Without a new picture for so long, the one on screen is sent as it is."""
_STATUS_SECONDS: Final = 1.0
_TAKE_SECONDS: Final = 0.05
"""For a new frame; messages of pages wait so long at most."""
_GRID_FPS: Final = 30.0
_REST_SECONDS: Final = 3.0
_REST_HIDDEN_SECONDS: Final = 60.0
"""Without a view, or one that can be seen, for so long, the thread ends and the subscriptions
are given up."""
_MOST_VIEWS: Final = 64
_MESSAGE_BYTES: Final = 700
"""What a message takes beside its pictures, roughly."""


class _Arrived(NamedTuple):
    """A message of a page, or something to do, and when it came."""

    content: PageMessage | Callable[[], object]
    at_us: int


class Viewer:
    """Shows streams to pages; its thread lives while somebody looks.

    The methods may be called on any thread.

    Parameters
    ----------
    cameras
        What is shown: one, or a grid.
    send
        Sends to the pages; called on the viewer's thread.
    fps
        Pictures a second, at most.
    quality
        Of the JPEGs, 1 to 100; None: what the links allow.
    is_deaf
        Says whether messages of pages cannot arrive just now.
    on_frame, on_event
        Called on the viewer's thread: with each frame that was shown; with each message of a page
        that is not about the picture.
    """

    def __init__(
        self,
        cameras: Sequence[Camera],
        send: Send,
        *,
        fps: float | None = None,
        quality: int | None = None,
        is_deaf: Callable[[], bool] = lambda: False,
        on_frame: Callable[[Camera, Frame], object] = lambda *_: None,
        on_event: Callable[[PageMessage], object] = lambda *_: None,
    ) -> None:
        self.cameras = tuple(cameras)
        self._send = send
        self._is_deaf = is_deaf
        self._on_frame = on_frame
        self._on_event = on_event
        self._pacer = Pacer(fps_limit=fps, quality=quality)
        self._encoder = JpegEncoder()
        self._scaler = Scaler()
        self._inbox: queue.Queue[_Arrived] = queue.Queue(_INBOX)
        self._guard = threading.Lock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._rooms: dict[str, Size] = {}
        self._as_text: set[str] = set()
        self._paused = False
        self._history: list[Frame] = []
        self._n = 0
        self._last_data: list[bytes] = []
        self._still_at = math.inf
        self._redraw = True
        self._status_at = 0.0
        self._next_tick = 0.0

    # --- From any thread --------------------------------------------------------------------------

    def tell(self, content: object) -> None:
        """Take a message of a page in; what makes no sense is passed over."""
        message = messages.parse(content)
        if message is not None:
            self._post(message, start=isinstance(message, messages.Hello | messages.Visible))

    def do(self, action: Callable[[], object], *, wait: float | None = None) -> bool:
        """Have the viewer's thread do something, between two pictures.

        Parameters
        ----------
        action
            What; it may use what only that thread may use.
        wait
            Seconds to wait until it is done; None not to wait.

        Returns
        -------
        bool
            Whether it is done already.
        """
        if threading.current_thread() is self._thread:
            action()
            return True
        done = threading.Event()

        def act() -> None:
            try:
                action()
            finally:
                done.set()

        self._post(act, start=False)
        with self._guard:
            if not self.running:
                self._handle_all()  # nobody else does
        return done.wait(wait) if wait is not None else done.is_set()

    @property
    def running(self) -> bool:
        """Whether there is a thread, that is, whether somebody looks."""
        thread = self._thread
        return thread is not None and thread.is_alive()

    @property
    def paused(self) -> bool:
        """Whether the picture stands still."""
        return self._paused

    @property
    def sent(self) -> int:
        """How many messages with pictures were sent."""
        return self._n

    def close(self, text: str = "closed") -> None:
        """End the thread and let everything go, once."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            thread = self._thread
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(_Arrived(_nothing, _now_us()))
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        with contextlib.suppress(Exception):  # there may be no page, no comm, no kernel any more
            self._send(messages.bye(text), [])
        if thread is None:
            self._rest()

    def _post(self, content: PageMessage | Callable[[], object], *, start: bool) -> None:
        with contextlib.suppress(queue.Full):
            self._inbox.put_nowait(_Arrived(content, _now_us()))
        if not start:
            return
        with self._guard:
            if not self._closed and not self.running:
                self._thread = threading.Thread(target=self._run, name="cuframes-view", daemon=True)
                self._thread.start()

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        self._redraw = True
        try:
            while self._listen():
                self._work()
        finally:
            self._rest()

    def _listen(self) -> bool:
        """Wait as long as there is nothing to do, and handle what came; False at the end."""
        patience = self._patience()
        if patience > 0:
            try:
                self._handle(self._inbox.get(timeout=patience))
            except queue.Empty:
                if not self._pacer.watched and self._end():
                    return False
        self._handle_all()
        self._pacer.set_deaf(self._is_deaf(), _now_us())
        return not self._closed

    def _end(self) -> bool:
        """End, because nobody looks; False if somebody comes just now."""
        with self._guard:  # who comes later starts another thread
            if self._inbox.empty():
                self._thread = None
                return True
        return False

    def _handle_all(self) -> None:
        with contextlib.suppress(queue.Empty):
            while True:
                self._handle(self._inbox.get_nowait())

    def _patience(self) -> float:
        """Return for how many seconds nothing needs to be done unless a message comes."""
        now_us = _now_us()
        next_us = self._pacer.next_send_us(now_us)
        if not self._pacer.watched:
            if not self._paused:
                self._let_go()
            return _REST_HIDDEN_SECONDS if self._rooms else _REST_SECONDS
        if next_us is None:
            return _STATUS_SECONDS
        until_send = max(0, next_us - now_us) / 1e6
        now = time.monotonic()
        if self._paused:
            if self._redraw:
                return until_send
            return max(until_send, min(self._still_at, self._status_at) - now, 0.0)
        if len(self.cameras) > 1:
            return max(until_send, self._next_tick - now)
        return until_send

    def _work(self) -> None:
        now_us = _now_us()
        next_us = self._pacer.next_send_us(now_us)
        if next_us is None or next_us > now_us:
            return
        again, self._redraw = self._redraw, False
        frames = self._frames(again=again)
        if frames:
            self._show(frames, again=again)
        elif time.monotonic() >= self._still_at:
            self._show_stills()
        elif time.monotonic() >= self._status_at:
            self._tell(messages.status(self.status()))

    def _frames(self, *, again: bool) -> list[tuple[Camera, Frame]]:
        """Return the frames to be shown now: new ones, with `again` also those on screen."""
        if self._paused:
            return self._on_screen() if again else []
        if len(self.cameras) == 1:
            frames = [(camera, camera.take(_TAKE_SECONDS)) for camera in self.cameras]
        else:
            self._next_tick = time.monotonic() + 1.0 / _GRID_FPS
            frames = [(camera, camera.take(0.0)) for camera in self.cameras]
        taken = [(camera, frame) for camera, frame in frames if frame is not None]
        if again:
            new = {camera for camera, _ in taken}
            taken += [pair for pair in self._on_screen() if pair[0] not in new]
        return taken

    def _on_screen(self) -> list[tuple[Camera, Frame]]:
        return [(c, c.shown) for c in self.cameras if c.shown is not None]

    # --- Sending ----------------------------------------------------------------------------------

    def _show(self, frames: Sequence[tuple[Camera, Frame]], *, again: bool) -> None:
        plan = self._pacer.plan
        room = self._room()
        shots = [camera.draw(frame, self._scaler, room, plan.scale) for camera, frame in frames]
        data = [self._encoder.encode(shot.drawn, plan.quality) for shot in shots]
        for shot in shots:
            if shot.frame is not shot.camera.shown:
                shot.camera.show(shot.frame)
        if not again and data == self._last_data and not any(shot.shapes for shot in shots):
            self._rest_of_still()
            return
        self._last_data = data
        self._still_at = time.monotonic() + _STILL_SECONDS
        parts = [self._part(shot, JPEG, still=False) for shot in shots]
        self._send_frames(parts, data, plan)
        for camera, frame in self._on_screen():
            self._on_frame(camera, frame)

    def _rest_of_still(self) -> None:
        """Do what is due while frames come and nothing in them moves: they need not be sent."""
        now = time.monotonic()
        if now >= self._still_at:
            self._show_stills()
        elif now >= self._status_at:
            self._tell(messages.status(self.status()))

    def _show_stills(self) -> None:
        """Send what is on screen without loss, if the links carry it in less than a second."""
        self._still_at = math.inf
        room = self._room()
        shots = [camera.still(frame, room) for camera, frame in self._on_screen()]
        data = [png(shot.drawn) for shot in shots if not isinstance(shot.drawn, Planes)]
        if shots and sum(map(len, data)) <= self._pacer.still_bytes:
            parts = [self._part(shot, PNG, still=True) for shot in shots]
            self._send_frames(parts, data, None)

    def _part(self, shot: Shot, mime: str, *, still: bool) -> Part:
        return Part(
            cam=self.cameras.index(shot.camera),
            seq=shot.frame.seq,
            w=shot.size[0],
            h=shot.size[1],
            roi=shot.roi,
            mime=mime,
            age_us=max(0, now_ns() - shot.frame.published_ns) // 1000,
            still=still,
            shapes=shot.shapes,
        )

    def _send_frames(self, parts: list[Part], data: list[bytes], plan: Plan | None) -> None:
        if self._as_text:
            parts = [
                dataclasses.replace(part, data=base64.b64encode(bytes_).decode("ascii"))
                for part, bytes_ in zip(parts, data, strict=True)
            ]
        self._n += 1
        now_us = _now_us()
        asked = self._pacer.wants_ack(now_us)
        nbytes = sum(map(len, data)) + _MESSAGE_BYTES
        self._pacer.sent(self._n, nbytes, now_us, asked=asked, plan=plan)
        status = self.status() if time.monotonic() >= self._status_at else None
        self._tell(messages.frames(self._n, ack=asked, parts=parts, status=status), data)

    def _tell(self, content: dict[str, Any], buffers: Sequence[bytes] = ()) -> None:
        with contextlib.suppress(Exception):  # a kernel that ends, a comm that is closed
            self._send(content, list(buffers))

    def _room(self) -> Size | None:
        """Return the device pixels of the largest view; in a grid, those of one tile."""
        if not self._rooms:
            return None
        width = max(w for w, _ in self._rooms.values())
        height = max(h for _, h in self._rooms.values())
        columns = math.ceil(math.sqrt(len(self.cameras)))
        return (max(1, width // columns), max(1, height // columns))

    def status(self) -> dict[str, Any]:
        """Return what the read-out shows; on the thread, or by `do`."""
        self._status_at = time.monotonic() + _STATUS_SECONDS
        pacer, plan = self._pacer, self._pacer.plan
        known = [c.fps for c in self.cameras if c.fps]
        pacer.set_source_fps(max(known, default=None))
        rate, rtt, delay = pacer.bytes_per_s, pacer.rtt_us, pacer.delay_us
        return {
            "cams": [camera.status() for camera in self.cameras],
            "encoder": f"{self._encoder.name}, scaled by {self._scaler.name}",
            "quality": plan.quality, "scale": round(plan.scale, 2), "fps": pacer.fps,
            "mbit": None if rate is None else round(rate * 8 / 1e6, 2),
            "rtt_ms": None if rtt is None else round(rtt / 1000, 1),
            "delay_ms": None if delay is None else round(delay / 1000, 1),
            "paused": self._paused, "recording": False, "can_record": False,
            "safe": self._is_deaf(),
        }  # fmt: skip

    # --- What pages say ---------------------------------------------------------------------------

    def _handle(self, arrived: _Arrived) -> None:
        content, at_us = arrived
        if not isinstance(content, PageMessage):
            content()
        elif isinstance(content, messages.Hello | messages.Size):
            self._place(content, at_us)
        elif isinstance(content, messages.Bye):
            self._rooms.pop(content.view, None)
            self._pacer.leave(content.view)
        elif content.view not in self._rooms:
            return  # a view that never said hello, or has left
        elif isinstance(content, messages.Ack):
            self._pacer.heard(content.view, content, at_us)
        elif isinstance(content, messages.Visible):
            self._pacer.set_visible(content.view, content.on, at_us)
            self._redraw = self._redraw or content.on
        else:
            self._control(content)

    def _place(self, message: messages.Hello | messages.Size, at_us: int) -> None:
        new = message.view not in self._rooms
        if isinstance(message, messages.Hello):
            self._pacer.join(message.view, at_us)
        elif new:
            return
        if not new or len(self._rooms) < _MOST_VIEWS:
            self._rooms[message.view] = (message.w, message.h)
        self._redraw, self._status_at = True, 0.0

    def _control(self, message: PageMessage) -> None:
        if isinstance(message, messages.Play):
            self.play()
        elif isinstance(message, messages.Pause):
            self.pause()
        elif isinstance(message, messages.Step):
            self.step(message.by)
        elif isinstance(message, messages.Roi):
            self.set_roi(message.cam, message.roi)
        else:
            self._on_event(message)

    # --- On the thread, or by `do` ----------------------------------------------------------------

    def play(self) -> None:
        """Go on."""
        self._forget()
        self._paused, self._status_at = False, 0.0

    def pause(self) -> None:
        """Hold the picture, and the frames before it that can be stepped back to."""
        if not self._paused:
            self._paused, self._status_at = True, 0.0
            self._history = self.cameras[0].recent()  # before they are written over
            self._still_at = min(self._still_at, time.monotonic() + _STILL_SECONDS)

    def step(self, by: int) -> None:
        """Go `by` frames back or forward, as far as there are any; pauses."""
        self.pause()
        camera = self.cameras[0]
        if not self._history or camera.shown is None:
            return
        at = self._history.index(camera.shown) + by
        if at >= len(self._history):
            self._step_on(camera)
        else:
            camera.shown = self._history[max(0, at)]
            self._redraw = True

    def redraw(self) -> None:
        """Show what is on screen once more: how it is made has changed."""
        self._redraw = True

    def set_roi(self, cam: int, roi: messages.Rect | None) -> None:
        """Show this part of a camera's frames, None for all."""
        if cam < len(self.cameras):
            self.cameras[cam].roi = roi
            self._redraw = True

    def _step_on(self, camera: Camera) -> None:
        """Show a frame newer than those that are kept, for which the oldest makes room."""
        if len(self._history) > 1:
            self._history.pop(0).release()
        frame = camera.take(_TAKE_SECONDS)
        if frame is not None:
            self._history.append(frame)
            camera.shown = frame
            self._redraw = True

    def _forget(self) -> None:
        """Let the frames go that were kept to be stepped through, but for the one on screen."""
        shown = {id(camera.shown) for camera in self.cameras}
        for frame in self._history:
            if id(frame) not in shown:
                frame.release()
        self._history = []

    def _let_go(self) -> None:
        for camera in self.cameras:
            camera.let_go()

    def _rest(self) -> None:
        self._forget()
        for camera in self.cameras:
            camera.rest()
        self._last_data = []


def _nothing() -> None:
    """Wake the thread."""


def _now_us() -> int:
    return time.monotonic_ns() // 1000
