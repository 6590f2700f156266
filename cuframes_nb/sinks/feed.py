"""The frames of a stream for somebody who wants them over a publisher's death and return."""

from __future__ import annotations

import os
import time
from typing import Final

from cuframes_nb._api.frame import Frame
from cuframes_nb._api.subscribe import subscribe
from cuframes_nb._api.subscriber import Subscriber
from cuframes_nb._runtime.session import was_farewell
from cuframes_nb.errors import (
    ClosedError,
    FrameTimeout,
    InvalidArgumentError,
    PublisherGoneError,
    StreamNotFoundError,
)

__all__ = ["EndOfFeed", "Feed", "check_source"]

_FIRST_SECONDS: Final = 5.0
"""How long a stream may take to appear."""

_AGAIN_SECONDS: Final = 0.05
"""Between attempts to reach a publisher that died."""


class EndOfFeed(Exception):  # noqa: N818  an end, no error
    """No more frames will come; its argument is why, in the words of `RecordingInfo.ended`."""


def check_source(source: object) -> None:
    """Raise unless `source` is what a stream is named by.

    Raises
    ------
    InvalidArgumentError
        Then. Whether a text is a stream's key is told by `subscribe`.
    """
    if not isinstance(source, str | os.PathLike | Subscriber):
        raise InvalidArgumentError(
            f"a stream is named by a key such as 'cam1', the path of its socket or a Subscriber, "
            f"not by {source!r}"
        )


class Feed:
    """Reads the frames of a stream; for one thread at a time.

    Parameters
    ----------
    source
        A key or an address, which is subscribed to here: to each frame in order, with the ring as a
        cushion for a moment without CPU time, unless the publisher would wait for that; else to the
        newest. A publisher that dies is waited for, one that closes its stream ends it. Or a
        `Subscriber`, which stays its owner's: what it does then is what it was made to do.
    name
        What the publisher's ``info`` calls the subscriber.

    Raises
    ------
    CuframesError
        As :func:`cuframes_nb.subscribe`.
    """

    def __init__(self, source: str | os.PathLike[str] | Subscriber, name: str) -> None:
        self._name = name
        self._address: str | os.PathLike[str] | None = None
        self._subscriber: Subscriber | None
        if isinstance(source, Subscriber):
            self._subscriber = source
        else:
            self._address = source
            self._subscriber = self._subscribe(_FIRST_SECONDS)
        self.fps = self._subscriber.info.fps  #: nominal, 0 if the publisher does not say
        self._base: int | None = None
        self._skipped_before = 0
        self._lives = 0
        self._again_at = 0.0

    @property
    def skipped(self) -> int:
        """Frames that were published between two that were read, and were not read."""
        if self._subscriber is None or self._base is None:
            return self._skipped_before
        return self._skipped_before + self._subscriber.stats.skipped - self._base

    @property
    def life(self) -> tuple[int, int]:
        """What differs between two frames if their publishers do."""
        subscriber = self._subscriber
        return (self._lives, subscriber.stats.connects if subscriber is not None else 0)

    def next(self, seconds: float) -> Frame | None:
        """Return the next frame, None if none came in so many seconds.

        Raises
        ------
        EndOfFeed
            If no more will come.
        CuframesError
            As ``Subscriber.next``.
        """
        subscriber = self._subscriber or self._come_back(seconds)
        if subscriber is None:
            return None
        try:
            frame = subscriber.next(seconds)
        except FrameTimeout:
            return None
        except ClosedError:
            raise EndOfFeed("closed") from None  # by its owner
        except PublisherGoneError as error:
            if was_farewell(error):
                raise EndOfFeed("closed") from None
            if self._address is None:
                raise EndOfFeed("lost") from None
            self._lose()
            return None
        if self._base is None:
            # What a subscriber missed before its first frame here is no gap in the recording.
            self._base = subscriber.stats.skipped
        return frame

    def close(self) -> None:
        """Leave the stream if it was subscribed to here. Idempotent."""
        if self._address is not None and self._subscriber is not None:
            self._lose()

    def _lose(self) -> None:
        self._skipped_before = self.skipped
        self._base = 0  # of the next subscriber every gap counts
        subscriber, self._subscriber = self._subscriber, None
        if subscriber is not None:
            subscriber.close()

    def _come_back(self, seconds: float) -> Subscriber | None:
        """Try once to reach the publisher again, waiting until it makes sense to."""
        pause = min(seconds, self._again_at - time.monotonic())
        if pause > 0:
            time.sleep(pause)
        if time.monotonic() < self._again_at:
            return None
        self._again_at = time.monotonic() + _AGAIN_SECONDS
        try:
            self._subscriber = self._subscribe(0)
        except (StreamNotFoundError, FrameTimeout, PublisherGoneError):
            return None
        self._lives += 1
        return self._subscriber

    def _subscribe(self, timeout: float) -> Subscriber:
        """Subscribe so that as little as possible is missed, and the publisher never waits."""
        newest = self._attach("newest", timeout)
        if newest.info.policy != "drop-oldest":
            return newest  # the publisher would wait for a strict one
        try:
            return self._attach("strict", timeout)
        finally:
            newest.close()

    def _attach(self, mode: str, timeout: float) -> Subscriber:
        assert self._address is not None  # noqa: S101  there is nothing else to subscribe to
        # It does not reconnect by itself, because then it would not tell an end from a death.
        return subscribe(self._address, mode, timeout=timeout, reconnect=False, name=self._name)
