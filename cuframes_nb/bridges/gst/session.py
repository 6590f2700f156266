"""One connection with a sink, from its config to its end."""

from __future__ import annotations

import select
import time
from typing import Final

from cuframes_nb._core.clock import now_ns
from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.wakeups import WakeReceiver
from cuframes_nb._runtime.session import FarewellError
from cuframes_nb._wire.control import Record
from cuframes_nb.bridges.gst.caps import Caps, layout_of, parse_caps
from cuframes_nb.bridges.gst.codec import Decoder
from cuframes_nb.bridges.gst.conversation import Conversation
from cuframes_nb.bridges.gst.describing import pipeline_ring
from cuframes_nb.bridges.gst.inbox import Arrival, Facts, Inbox
from cuframes_nb.bridges.gst.ledger import Ledger
from cuframes_nb.bridges.gst.memory import FrameHold, Importer, Mappings, Memory
from cuframes_nb.bridges.gst.messages import Config, End, Message, Offer
from cuframes_nb.errors import PublisherGoneError, UnsupportedError
from cuframes_nb.formats import FrameLayout

__all__ = ["Session"]

_LINGER_SECONDS: Final = 0.5
"""How long a sink that stops is kept waiting for frames whose memory goes with it."""

_UNREAD_SECONDS: Final = 0.2
"""How long it is kept waiting for those that nobody has taken yet."""

_LATEST_PTS_NS: Final = 2**63 - 1
"""Times that are later are none."""


class Session:
    """Asks for each frame as soon as there is one, and gives back what nobody holds.

    So the newest frame is always here, and the sink, which tells of its end only those that wait
    for a frame, is never left waiting. Everything happens on one thread, in `run`.

    Parameters
    ----------
    stream
        The connection, this object's from now on.
    wake
        Readable when there is something to look at; stays the caller's.
    ledger, importer, inbox
        Where frames are noted, mapped and put.
    name
        The stream, for messages.
    """

    def __init__(
        self,
        stream: ByteStream,
        wake: WakeReceiver,
        ledger: Ledger[FrameHold],
        *,
        importer: Importer,
        inbox: Inbox,
        name: str,
    ) -> None:
        self._stream = stream
        self._wake = wake
        self._ledger = ledger
        self._inbox = inbox
        self._name = name
        self._decoder = Decoder()
        self._talk = Conversation()
        self._mappings = Mappings(importer)
        self._fds: list[OwnedFd] = []
        self._caps: Caps | None = None  #: None where their frames cannot be read here
        self._pid = self._epoch = self._number = 0
        self._offer: Offer | None = None  # the last one, and what it was made into
        self._layout: FrameLayout
        self._facts: Facts
        self._ending: PublisherGoneError | None = None
        self._unread_until = self._leave_at = 0.0

    def run(self) -> None:
        """Follow the connection to its end, or until nobody wants any more and none is held.

        Raises
        ------
        CuframesError
            If the sink said what it must not say, or its frames cannot be used here.
        """
        poller = select.poll()
        poller.register(self._wake.fileno(), select.POLLIN)
        while not self._is_done():
            self._stream.flush()  # all that this round has to say, at once
            events = select.POLLIN | (select.POLLOUT if self._stream.unsent else 0)
            poller.register(self._stream.fileno(), events)
            happened = poller.poll(self._patience_ms())
            self._wake.drain()
            if any(fd == self._stream.fileno() for fd, _ in happened):
                self._read()
        self._take_leave()

    @property
    def lasted(self) -> bool:
        """Whether more came than the one frame that a sink gives while it stops, too."""
        return self._number > 1

    def close(self) -> None:
        """Let go of everything, once; frames that are held keep their memory."""
        self._stream.close()
        close_all(self._fds)
        self._mappings.forget()

    # --- Reading ----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read until there is nothing, or one message is whole."""
        try:
            while True:
                chunk = self._stream.read(self._decoder.wanted)
                self._fds.extend(chunk.fds)
                if not chunk.data:
                    self._note_death()
                    return
                message = self._decoder.feed(chunk.data, len(chunk.fds))
                if message is not None:
                    self._handle(message)
                    return
        except BlockingIOError:
            pass

    def _handle(self, message: Message) -> None:
        self._talk.incoming(message)
        match message:
            case Config(pid=pid, caps=caps):
                self._pid = pid
                self._set_caps(caps)
                self._stream.write(self._talk.ask())
            case Offer():
                self._receive(message)
                self._give_back()  # before asking: a sink that waits for a frame does not read
                self._stream.write(self._talk.ask())
            case End():
                self._note_end()

    def _receive(self, offer: Offer) -> None:
        """Take a frame over and hand it on."""
        if offer.caps is not None:
            self._set_caps(offer.caps)
        if self._caps is None:
            close_all(self._fds)
            self._fds.clear()
            self._stream.write(self._talk.confirm() + self._talk.release(offer.token))
            return
        fd = self._fds.pop() if self._fds else None
        memory = self._mappings.find(offer, fd)
        self._describe(offer, memory, self._caps)
        self._number += 1
        hold = FrameHold(memory)
        self._ledger.enter(self._number, hold, offer.token)
        self._stream.write(self._talk.confirm())
        if not self._inbox.closing:
            now = now_ns()
            pts_ns = offer.pts_ns if offer.pts_ns <= _LATEST_PTS_NS else now
            record = Record(self._number, pts_ns, now)
            planes = memory.planes(self._layout)
            self._inbox.put(Arrival(self._facts, record, planes, hold, self._ledger))

    def _set_caps(self, text: str) -> None:
        self._epoch += 1
        self._offer = None
        self._mappings.forget()  # the pipeline has new buffers for them
        try:
            self._caps = parse_caps(text)
        except UnsupportedError as error:
            # The connection goes on: frames that are held must not be written again, and the
            # pipeline may come back to what can be read.
            self._caps = None
            self._inbox.fail(error.with_traceback(None))

    def _describe(self, offer: Offer, memory: Memory, caps: Caps) -> None:
        """Work out what a frame is, unless it is as the one before."""
        before = self._offer
        self._offer = offer
        if before is not None and _geometry(before) == _geometry(offer):
            return
        self._layout = layout_of(caps, offer)
        ring = pipeline_ring(
            caps, self._layout, memory.nbytes, memory.device_uuid, is_mmap=offer.is_mmap
        )
        reason = "; ".join(filter(None, [memory.where, self._mappings.blind]))
        self._facts = Facts(ring, self._epoch, self._pid, reason)

    # --- Giving back, and the end -----------------------------------------------------------------

    def _give_back(self) -> None:
        tokens = list(self._ledger.give_back())
        if tokens:
            self._stream.write(b"".join(map(self._talk.release, tokens)))
            self._inbox.poke()  # somebody may wait for room

    def _note_end(self) -> None:
        self._ending = FarewellError(f"stream {self._name!r} was closed: its pipeline ended")
        now = time.monotonic()
        self._unread_until, self._leave_at = now + _UNREAD_SECONDS, now + _LINGER_SECONDS
        self._inbox.lose(self._ending, keep=True)

    def _note_death(self) -> None:
        if self._ending is None:
            what = "was killed, or stopped in the midst of a frame"
            if not self._number:
                what = "closed the connection before its first frame"
            self._ending = PublisherGoneError(f"the pipeline of stream {self._name!r} {what}")
        self._leave_at = 0.0
        self._revoke()
        self._inbox.lose(self._ending, keep=self._talk.is_mmap)

    def _is_done(self) -> bool:
        """Whether to leave, having given back what is not held any more."""
        now = time.monotonic()
        is_legacy_end = self._ending is not None and not self._talk.is_mmap
        if self._inbox.closing or (is_legacy_end and now >= self._unread_until):
            self._inbox.clear()
        self._give_back()
        if self._ending is None:
            return self._inbox.closing and not len(self._ledger)
        # What was mapped by descriptor stays when the pipeline frees it, so nobody has to wait.
        return not (is_legacy_end and len(self._ledger)) or now >= self._leave_at

    def _patience_ms(self) -> float | None:
        if self._ending is None:
            return None
        now = time.monotonic()
        until = self._unread_until if now < self._unread_until else self._leave_at
        return max(0.0, until - now) * 1000 + 1  # poll() rounds down

    def _take_leave(self) -> None:
        if self._ending is not None:
            self._revoke()
        self._stream.write(self._talk.leave())
        self._stream.flush()

    def _revoke(self) -> None:
        """Have frames that are held tell that their memory is gone, where it is."""
        if self._talk.is_mmap:
            return
        for hold in self._ledger.holds():
            hold.memory.revoke(
                f"the memory of this frame of stream {self._name!r} went with its pipeline, as it "
                f"does with ipc-mode=legacy: keep frame.copy(), or set ipc-mode=mmap"
            )
        self._inbox.clear()


def _geometry(offer: Offer) -> tuple[object, ...]:
    return (offer.size, offer.max_size, offer.pitch, offer.offsets)
