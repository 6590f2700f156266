"""The frames of one of our streams, for somebody who waits for other things at the same time."""

from __future__ import annotations

import time
from typing import Final, cast

from cuframes_nb._api.address import Address
from cuframes_nb._api.connection import Connection
from cuframes_nb._api.frame import Frame
from cuframes_nb._api.reader import Reader
from cuframes_nb._core.reading import completion_waits
from cuframes_nb._runtime.session import SessionOptions
from cuframes_nb._wire.messages import ReadMode, RingDescription
from cuframes_nb.bridges.gst.forwarding import Forwarder, Place, Slot
from cuframes_nb.errors import LeaseLimitError

__all__ = ["Feed", "place_of"]

_NO_WAIT_SECONDS: Final = 0.1
"""For a handshake: other things wait."""


class Feed:
    """A subscription that never sleeps: it says what to poll, and for how long.

    A publisher that is away is looked for again and again.

    Parameters
    ----------
    address
        Where it is looked for.
    name
        What the publisher's ``info`` calls this subscriber.
    forwarder
        What takes its memory.
    trusted_uids
        As for `subscribe`.
    """

    def __init__(
        self, address: Address, name: str, forwarder: Forwarder, trusted_uids: frozenset[int]
    ) -> None:
        options = SessionOptions(
            ReadMode.NEWEST, name, forwarder.backend_for, trusted_uids=trusted_uids
        )
        # A connection that comes back by itself would not tell whether the stream ended in order.
        self._connection = Connection(address, options, reconnect=False)
        self._reader = Reader(self._connection, ReadMode.NEWEST, 0)
        self._waits = completion_waits()

    def wait(self, timeout: float | None) -> RingDescription:
        """Wait for the publisher; return what its frames are.

        Raises
        ------
        CuframesError
            As `subscribe`.
        """
        self._connection.open(None if timeout is None else time.monotonic() + timeout)
        ring = self.ring
        assert ring is not None  # noqa: S101  it was reached
        return ring

    def reach(self) -> bool:
        """Return whether there is a publisher; look for it if it is time to.

        Raises
        ------
        CuframesError
            If there is one whose stream cannot be read by this process.
        """
        connection = self._connection
        if connection.session is None and not connection.until_retry:
            connection.reach(time.monotonic() + _NO_WAIT_SECONDS)
        return connection.session is not None

    def take(self) -> Frame | None:
        """Return the newest frame, if it was not seen yet and one more may be held.

        Raises
        ------
        PublisherGoneError
            If the publisher has gone just now.
        CuframesError
            If the stream cannot be read any more.
        """
        session, reader = self._connection.session, self._reader
        if session is None:
            return None
        session.drain()
        try:
            frame = reader.take_fresh() or reader.take_next()
            if frame is None and reader.spin():
                frame = reader.take_fresh()
        except LeaseLimitError:
            return None
        if frame is not None:
            self._waits = completion_waits()
        return frame

    @property
    def ring(self) -> RingDescription | None:
        """What the frames are, None while there is no publisher."""
        session = self._connection.session
        return None if session is None else session.epoch.message.ring

    @property
    def full(self) -> bool:
        """Whether as many frames are held as may be."""
        session = self._connection.session
        return session is not None and session.epoch.held >= session.epoch.limit

    @property
    def filenos(self) -> tuple[int, ...]:
        """Readable when it is time to look."""
        session = self._connection.session
        return () if session is None else session.filenos

    def patience(self) -> float | None:
        """Return for how many seconds to wait for these, None for ever."""
        if self._connection.session is None:
            return self._connection.until_retry
        return self._reader.pause(self._waits)

    def close(self) -> None:
        """Leave, once; frames that are held stay so."""
        self._connection.close()


def place_of(frame: Frame) -> Place:
    """Return where a frame of such a subscription lies.

    Raises
    ------
    UnsupportedError
        If GStreamer cannot be told.
    """
    return cast("Slot", frame._claim()[1]).place()  # noqa: SLF001  what keeps the pixels
