"""What a pipeline's stream is, without subscribing: no GPU is needed to ask."""

from __future__ import annotations

import select
import time
from collections.abc import Collection
from pathlib import Path
from typing import TypeVar

from cuframes_nb._api.info import StreamInfo
from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.fds import close_all
from cuframes_nb.bridges.gst.caps import layout_of, parse_caps
from cuframes_nb.bridges.gst.codec import Decoder
from cuframes_nb.bridges.gst.conversation import Conversation
from cuframes_nb.bridges.gst.describing import pipeline_info, pipeline_ring
from cuframes_nb.bridges.gst.messages import Config, End, Message, Offer
from cuframes_nb.bridges.gst.pump import Place, connect, nobody_listens
from cuframes_nb.errors import FrameTimeout, PublisherGoneError, RemoteProtocolError

__all__ = ["stream_info"]

_M = TypeVar("_M", bound=Message)

_NO_UUID = bytes(16)
"""Which GPU it is, only the driver tells, of memory that is mapped."""


def stream_info(path: Path, key: str, trusted_uids: Collection[int], deadline: float) -> StreamInfo:
    """Ask the ``cudaipcsink`` at `path` what its frames are.

    It tells that only with a frame, which it holds for us meanwhile: a millisecond.

    Parameters
    ----------
    path, key
        Its socket, and what its frames are called.
    trusted_uids
        As for `subscribe`.
    deadline
        Until when to wait for it (``time.monotonic()``).

    Raises
    ------
    StreamNotFoundError
        If nobody listens there.
    FrameTimeout
        If it has no frame in time.
    CuframesError
        If it may not be asked, or what it says cannot be understood.
    """
    place = Place(f"gst://{path}", key, path, frozenset(trusted_uids))
    stream = connect(place)
    if stream is None:
        raise nobody_listens(path)
    try:
        return _Asker(stream, place, deadline).ask()
    finally:
        stream.close()


class _Asker:
    """Somebody who hears a sink out until its first frame."""

    def __init__(self, stream: ByteStream, place: Place, deadline: float) -> None:
        self._stream = stream
        self._place = place
        self._deadline = deadline
        self._decoder = Decoder()
        self._talk = Conversation()
        self._poller = select.poll()
        self._poller.register(stream.fileno(), select.POLLIN)

    def ask(self) -> StreamInfo:
        config = self._expect(Config)
        caps = parse_caps(config.caps)
        self._say(self._talk.ask())
        offer = self._expect(Offer)
        self._say(self._talk.leave())
        if offer.caps is not None:
            caps = parse_caps(offer.caps)
        ring = pipeline_ring(
            caps, layout_of(caps, offer), offer.max_size, _NO_UUID, is_mmap=config.is_mmap
        )
        return pipeline_info(
            self._place.key,
            self._place.path,
            ring,
            pid=config.pid,
            epoch=1,
            state="live",
            published=0,
            last_ns=offer.pts_ns,
            reason="",
        )

    def _say(self, data: bytes) -> None:
        self._stream.write(data)
        self._stream.flush()

    def _expect(self, kind: type[_M]) -> _M:
        """Return the next message, which has to be of that kind."""
        message = self._next()
        while message is None:
            message = self._next()
        self._talk.incoming(message)
        if isinstance(message, End):
            raise PublisherGoneError(f"the pipeline at {self._place.path} is ending")
        if not isinstance(message, kind):
            raise RemoteProtocolError(f"expected {kind.__name__}, got {type(message).__name__}")
        return message

    def _next(self) -> Message | None:
        """Wait for some bytes; return a message once it is whole."""
        left = self._deadline - time.monotonic()
        if left <= 0 or not self._poller.poll(left * 1000):
            raise FrameTimeout(
                f"a pipeline listens at {self._place.path} and has not said what its frames are: "
                f"it may be paused, or wait for its source"
            )
        chunk = self._stream.read(self._decoder.wanted)
        close_all(chunk.fds)  # the frame itself is not looked at
        if not chunk.data:
            raise PublisherGoneError(f"the pipeline at {self._place.path} ended when it was asked")
        return self._decoder.feed(chunk.data, len(chunk.fds))
