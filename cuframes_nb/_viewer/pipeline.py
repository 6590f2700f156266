"""The thread of a view: take, process, cut and scale, encode, send; the newest frame wins.

There is never more than one picture in hand. What cannot be sent is not kept: when there is credit
again, the newest frame is taken.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import itertools
import json
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from cuframes_nb._api.frame import Frame
from cuframes_nb._core.clock import now_ns
from cuframes_nb._viewer import messages
from cuframes_nb._viewer.audience import Audience
from cuframes_nb._viewer.camera import Camera, Shot
from cuframes_nb._viewer.encoders import JPEG, PNG, JpegEncoder
from cuframes_nb._viewer.messages import PageMessage, Part
from cuframes_nb._viewer.pacing import Pacer, Plan
from cuframes_nb._viewer.picture import Scaler, Size
from cuframes_nb._viewer.recorder import Recorder
from cuframes_nb._viewer.turns import short_turns
from cuframes_nb.errors import CuframesError
from cuframes_nb.sinks.files import png

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
_REST_HIDDEN_SECONDS: Final = 15.0
"""Without a view, or one that can be seen, for so long, the thread ends and the subscriptions
are given up."""
_PING_SECONDS: Final = 5.0
"""Between messages while views are there and none of them counts: one that was asleep finds out
that it is not forgotten."""
_QUICK: Final = 1
"""Compression of stills: a tenth larger than the best, and several times as fast."""
_WITHOUT_LOSS: Final = Plan(100, math.inf)
"""What no plan is better than."""
_MOST_VIEWS: Final = 64
_MESSAGE_BYTES: Final = 700
"""What a message takes beside its pictures, roughly."""


class _Errand:
    """Something that the viewer's thread is to do for another."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self._done = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Do it, and let who waits go on."""
        try:
            self._action()
        except Exception as error:  # noqa: BLE001  it is who waits that is to have it
            self._error = error
        finally:
            self._done.set()

    def wait(self, seconds: float | None) -> bool:
        """Return whether it is done, at the latest after so long; raises what it raised."""
        done = self._done.wait(seconds or 0.0)
        error, self._error = self._error, None
        try:
            if error is not None:
                raise error
        finally:
            del error  # its traceback has this call's variables
        return done


class _Arrived(NamedTuple):
    """A message of a page, or something to do, and when it came."""

    content: PageMessage | _Errand
    at_us: int


class _Picture(NamedTuple):
    """What a page is shown of a camera."""

    shot: Shot
    data: bytes


class _Last(NamedTuple):
    """What pages were shown of a camera last."""

    frame: tuple[int, int]
    data: bytes
    shapes: list[dict[str, Any]] | None


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
        self._recorder = Recorder(self.cameras, self._tell)
        self._encoder = JpegEncoder()
        self._scaler = Scaler(self._encoder.takes)
        self._every = 1.0 / fps if fps else 0.0
        self._inbox: queue.Queue[_Arrived] = queue.Queue()
        # Held by who posts, and by the thread while it ends. Reentrant: what it is held for may be
        # interrupted by a finalizer that closes the viewer.
        self._guard = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False
        self._audience = Audience(self._pacer.counts)
        self._paused = False
        self._history: list[Frame] = []
        self._n = 0
        self._last: dict[Camera, _Last] = {}
        self._plan = self._pacer.plan  # of the pictures that pages show
        self._still_at = math.inf
        self._redraw = True
        self._status_at = 0.0
        self._next_tick = 0.0
        self._alone_since = math.inf

    # --- From any thread --------------------------------------------------------------------------

    def tell(self, content: object) -> None:
        """Take a message of a page in; what makes no sense is passed over."""
        message = messages.parse(content)
        if message is None:
            return
        with self._guard:
            if self._closed:
                return
            if not self.running and isinstance(message, messages.Bye):
                self._forget_view(message.view)
            elif self.running or self._wakes(message):
                self._post(message)

    def _wakes(self, message: PageMessage) -> bool:
        """Return whether somebody looks who says this while there is no thread."""
        is_seen = isinstance(message, messages.Visible) and message.on
        return isinstance(message, messages.Hello) or (is_seen and message.view in self._audience)

    def _post(self, message: PageMessage) -> None:
        if self._inbox.qsize() < _INBOX:
            self._inbox.put(_Arrived(message, _now_us()))
        if not self.running:
            self._thread = threading.Thread(target=self._run, name="cuframes-view", daemon=True)
            self._thread.start()

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

        Raises
        ------
        Exception
            What the action raised, if it is done.
        """
        if threading.current_thread() is self._thread:
            action()
            return True
        errand = _Errand(action)
        with self._guard:
            if self.running:
                self._inbox.put(_Arrived(errand, _now_us()))
            else:
                errand.run()  # nobody else does, and nobody starts meanwhile
        return errand.wait(wait)

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
        """End the thread and the recordings and let everything go, once."""
        with self._guard:
            if self._closed:
                return
            self._closed = True
            thread = self._thread if self.running else None
            self._inbox.put(_Arrived(_Errand(_nothing), _now_us()))  # wakes it
            if thread is None:
                self._rest()
        if thread is not None and thread is not threading.current_thread():
            thread.join()
        self._recorder.close()
        with contextlib.suppress(Exception):  # there may be no page, no comm, no kernel any more
            self._send(messages.bye(text), [])

    # --- The thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        self._redraw, self._alone_since = True, math.inf
        try:
            with short_turns():
                while self._listen():
                    self._work()
        finally:
            self._end()

    def _listen(self) -> bool:
        """Wait as long as there is nothing to do, and handle what came; False at the end."""
        patience = self._patience()
        if patience > 0:
            try:
                self._handle(self._inbox.get(timeout=patience))
            except queue.Empty:
                if self._audience and not self._pacer.watched:
                    self._tell(messages.status(self._due_status()))
        elif not self._pacer.watched and self._end(only_alone=True):
            return False
        self._handle_all()
        self._pacer.set_deaf(self._is_deaf(), _now_us())
        return not self._closed

    def _end(self, *, only_alone: bool = False) -> bool:
        """Let everything go and have no thread any more, once.

        Who comes later starts another thread; with `only_alone`, who comes just now keeps this one.
        """
        with self._guard:
            if self._thread is not threading.current_thread():
                return True
            if only_alone and not self._inbox.empty():
                return False
            self._thread = None
            for arrived in self._arrived():
                if isinstance(arrived.content, _Errand):
                    arrived.content.run()
            self._rest()
            return True

    def _handle_all(self) -> None:
        for arrived in itertools.islice(self._arrived(), _INBOX):  # who fills it as fast waits
            self._handle(arrived)

    def _arrived(self) -> Iterator[_Arrived]:
        """Yield what is in the inbox."""
        with contextlib.suppress(queue.Empty):
            while True:
                yield self._inbox.get_nowait()

    def _patience(self) -> float:
        """Return for how many seconds nothing needs to be done unless a message comes."""
        now_us = _now_us()
        next_us = self._pacer.next_send_us(now_us)
        now = time.monotonic()
        if next_us is None:  # nobody looks
            if not self._paused:
                self._let_go()
            self._alone_since = min(self._alone_since, now)
            if not self._audience:
                return max(self._alone_since + _REST_SECONDS - now, 0.0)
            return min(_PING_SECONDS, max(self._alone_since + _REST_HIDDEN_SECONDS - now, 0.0))
        self._alone_since = math.inf
        until_send = max(0, next_us - now_us) / 1e6
        if self._paused:
            if self._redraw:
                return until_send
            return max(until_send, min(self._still_at, self._status_at) - now, 0.0)
        return until_send if self._redraw else max(until_send, self._next_tick - now)

    def _work(self) -> None:
        now_us = _now_us()
        next_us = self._pacer.next_send_us(now_us)
        if next_us is None or next_us > now_us:
            return
        if not self._redraw and not self._paused and time.monotonic() < self._next_tick:
            return
        again, self._redraw = self._redraw, False
        frames = self._frames(again=again)
        if frames and self._show(frames, again=again):
            return
        if time.monotonic() >= self._still_at:
            self._show_stills()
        elif time.monotonic() >= self._status_at:
            self._tell(messages.status(self._due_status()))

    def _frames(self, *, again: bool) -> list[tuple[Camera, Frame]]:
        """Return the frames to be shown now: new ones, with `again` also those on screen."""
        cameras = self._seen()
        if self._paused:
            new = [(camera, camera.take(0.0)) for camera in cameras if camera.shown is None]
        elif len(cameras) == 1:
            new = [(camera, camera.take(_TAKE_SECONDS)) for camera in cameras]
        else:
            self._next_tick = time.monotonic() + 1.0 / _GRID_FPS
            new = [(camera, camera.take(0.0)) for camera in cameras]
        if not self._paused:
            for camera in set(self.cameras).difference(cameras):
                camera.let_go()
        taken = {camera: frame for camera, frame in new if frame is not None}
        if again:
            taken = dict(self._on_screen()) | taken
        return list(taken.items())

    def _on_screen(self) -> list[tuple[Camera, Frame]]:
        return [(c, c.shown) for c in self._seen() if c.shown is not None and not c.shown.released]

    def _seen(self) -> list[Camera]:
        """Return the cameras that any view shows."""
        return [camera for i, camera in enumerate(self.cameras) if self._audience.sees(i)]

    # --- Sending ----------------------------------------------------------------------------------

    def _show(self, frames: Sequence[tuple[Camera, Frame]], *, again: bool) -> bool:
        """Put frames on screen; return whether anything was sent: pages may show it already."""
        plan, room = self._pacer.plan, self._audience.room

        def make(camera: Camera, frame: Frame) -> _Picture:
            picture = self._picture(camera, frame, room, plan)
            if frame is not camera.shown:
                camera.show(frame)
            return picture

        pictures = self._pictures(frames, make)
        fresh = [picture for picture in pictures if self._is_fresh(picture) or again]
        shown = [picture.shot.camera for picture in pictures if self._note(picture)]
        if fresh:
            self._plan = plan
            self._still_at = time.monotonic() + _STILL_SECONDS
            parts = [self._part(shot, JPEG, still=False) for shot, _ in fresh]
            self._send_frames(parts, [data for _, data in fresh], plan)
        else:
            self._next_tick = max(self._next_tick, time.monotonic() + self._every)
        for camera in shown:
            self._call(self._on_frame, camera, camera.shown)
        return bool(fresh)

    def _picture(self, camera: Camera, frame: Frame, room: Size | None, plan: Plan) -> _Picture:
        """Return the picture of a frame; made by the CPU, if the GPU has just failed at it."""
        shot = camera.draw(frame, self._scaler, room, plan.scale)
        try:
            data = self._encoder.encode(shot.drawn, plan.quality)
        except CuframesError:
            shot = camera.draw(frame, self._scaler, room, plan.scale)
            data = self._encoder.encode(shot.drawn, plan.quality)
        return _Picture(shot.encoded(), data)

    def _pictures(
        self,
        frames: Sequence[tuple[Camera, Frame]],
        make: Callable[[Camera, Frame], _Picture],
    ) -> list[_Picture]:
        """Return the pictures of frames; what cannot be made is told with the camera's state."""
        pictures = []
        for camera, frame in frames:
            try:
                pictures.append(make(camera, frame))
            except Exception as error:  # noqa: BLE001  a frame that was released, no memory
                camera.fail("process", f"{type(error).__name__}: {error}")
        if not pictures:
            time.sleep(_TAKE_SECONDS)  # it will be the same at once
        return pictures

    def _is_fresh(self, picture: _Picture) -> bool:
        """Return whether pages do not show just this already."""
        last = self._last.get(picture.shot.camera)
        return last is None or (last.data, last.shapes) != (picture.data, picture.shot.shapes)

    def _note(self, picture: _Picture) -> bool:
        """Note what pages show; return whether it is another frame than before."""
        shot = picture.shot
        key = (shot.frame.seq, shot.frame.published_ns)
        last = self._last.get(shot.camera)
        self._last[shot.camera] = _Last(key, picture.data, shot.shapes)
        return last is None or last.frame != key

    def _show_stills(self) -> None:
        """Send what is on screen without loss, if the links carry it in less than a second."""
        self._still_at = math.inf
        room = self._audience.room

        def make(camera: Camera, frame: Frame) -> _Picture:
            shot, pixels = camera.still(frame, room)
            return _Picture(shot, png(pixels, _QUICK))

        pictures = self._pictures(self._on_screen(), make)
        data = [picture.data for picture in pictures]
        if pictures and sum(map(len, data)) <= self._pacer.still_bytes:
            parts = [self._part(shot, PNG, still=True) for shot, _ in pictures]
            self._send_frames(parts, data, None)
            self._plan = _WITHOUT_LOSS
        elif _better(self._pacer.plan, self._plan):
            self._redraw = True  # at least with the best that the links carry by now

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
        buffers = data
        if self._audience.as_text:  # then all pages are sent text, and only that
            parts = [
                dataclasses.replace(part, data=base64.b64encode(bytes_).decode("ascii"))
                for part, bytes_ in zip(parts, data, strict=True)
            ]
            buffers = []
        self._n += 1
        now_us = _now_us()
        asked = self._pacer.wants_ack(now_us)
        nbytes = sum(map(len, buffers)) + sum(map(_text_bytes, parts)) + _MESSAGE_BYTES
        self._pacer.sent(self._n, nbytes, now_us, asked=asked, plan=plan)
        status = self._due_status() if time.monotonic() >= self._status_at else None
        self._tell(messages.frames(self._n, ack=asked, parts=parts, status=status), buffers)

    def _tell(self, content: dict[str, Any], buffers: Sequence[bytes] = ()) -> None:
        if self._closed:
            return  # goodbye is the last word
        with contextlib.suppress(Exception):  # a kernel that ends, a comm that is closed
            self._send(content, list(buffers))

    def _call(self, function: Callable[..., object], *arguments: object) -> None:
        """Call what the owner gave; what it raises is told to people."""
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001  not ours
            self._tell(messages.told(f"{type(error).__name__}: {error}", error=True))

    def _due_status(self) -> dict[str, Any]:
        self._status_at = time.monotonic() + _STATUS_SECONDS
        self._recorder.look()
        return self.status()

    def status(self) -> dict[str, Any]:
        """Return what the read-out shows; on the thread, or by `do`."""
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
            "paused": self._paused, "safe": self._is_deaf(),
            "recording": self._recorder.running, "can_record": self._recorder.available,
        }  # fmt: skip

    # --- What pages say ---------------------------------------------------------------------------

    def _handle(self, arrived: _Arrived) -> None:
        content, at_us = arrived
        if isinstance(content, _Errand):
            content.run()
        elif isinstance(content, messages.Hello | messages.Size):
            self._place(content, at_us)
        elif isinstance(content, messages.Bye):
            self._forget_view(content.view)
        elif content.view not in self._audience:
            return  # a view that never said hello, or has left
        elif isinstance(content, messages.Ack):
            self._pacer.heard(content.view, content, at_us)
            # What stands may have been shown worse than the link turns out to allow.
            if self._still_at == math.inf and _better(self._pacer.plan, self._plan):
                self._still_at = time.monotonic()
        elif isinstance(content, messages.Visible):
            self._pacer.set_visible(content.view, content.on, at_us)
            self._redraw = self._redraw or content.on
        elif isinstance(content, messages.Solo):
            self._audience.hear(content)
            self._redraw = True
        else:
            self._control(content)

    def _place(self, message: messages.Hello | messages.Size, at_us: int) -> None:
        audience = self._audience
        if isinstance(message, messages.Hello):
            while message.view not in audience and len(audience) >= _MOST_VIEWS:
                self._forget_view(audience.eldest)  # who may have left long ago
            self._pacer.join(message.view, at_us)
        elif message.view not in audience:
            return
        audience.hear(message)
        self._redraw, self._status_at = True, 0.0

    def _forget_view(self, view: str) -> None:
        self._audience.forget(view)
        self._pacer.leave(view)

    def _control(self, message: PageMessage) -> None:
        if isinstance(message, messages.Play):
            self.play()
        elif isinstance(message, messages.Pause):
            self.pause()
        elif isinstance(message, messages.Step):
            self.step(message.by)
        elif isinstance(message, messages.Roi):
            self.set_roi(message.cam, message.roi)
        elif isinstance(message, messages.Record):
            (self._recorder.begin if message.on else self._recorder.end)()
            self._status_at = 0.0
        else:
            if isinstance(message, messages.Histogram):
                self._audience.hear(message)
            self._call(self._on_event, message)

    # --- On the thread, or by `do` ----------------------------------------------------------------

    def play(self) -> None:
        """Go on, with the newest frame there is."""
        if self._history:
            self.cameras[0].shown, self._redraw = self._history[-1], True
        self._forget()
        self._paused, self._status_at = False, 0.0

    def pause(self) -> None:
        """Hold the picture, and the frames in the ring that can be stepped to."""
        if not self._paused:
            self._paused, self._status_at = True, 0.0
            self._history = self.cameras[0].recent()  # before they are written over

    def step(self, by: int) -> None:
        """Go `by` frames back or forward, as far as there are any; pauses."""
        self.pause()
        camera = self.cameras[0]
        if camera.shown is None:
            return
        if camera.shown not in self._history[: -1 if by > 0 else None]:
            self._forget()
            self._history = camera.recent()  # there may be newer ones by now
        at, last = self._history.index(camera.shown), len(self._history) - 1
        camera.shown, self._redraw = self._history[min(max(0, at + by), last)], True

    def wants_histogram(self, cam: int) -> bool:
        """Whether any page shows a histogram of this camera."""
        return self._audience.wants_histogram(cam)

    def redraw(self) -> None:
        """Show what is on screen once more: how it is made has changed."""
        self._redraw = True

    def set_roi(self, cam: int, roi: messages.Rect | None) -> None:
        """Show this part of a camera's frames, None for all."""
        if cam < len(self.cameras):
            self.cameras[cam].roi = roi
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
        self._encoder.rest()
        self._last.clear()


def _text_bytes(part: Part) -> int:
    """Return how long a part's text is, but for the little that all have."""
    return len(part.data or "") + (len(json.dumps(part.shapes)) if part.shapes else 0)


def _better(plan: Plan, other: Plan) -> bool:
    return (plan.scale, plan.quality) > (other.scale, other.quality)


def _nothing() -> None:
    """Wake the thread."""


def _now_us() -> int:
    return time.monotonic_ns() // 1000
