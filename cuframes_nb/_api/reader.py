"""Finding frames in the ring and taking them, for a subscriber that is alone meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from cuframes_nb._api.connection import Connection, kept
from cuframes_nb._api.frame import Frame
from cuframes_nb._api.refusals import lease_limit_reached
from cuframes_nb._core.cadence import Cadence
from cuframes_nb._core.clock import now_ns
from cuframes_nb._core.reading import newest_complete, oldest_after, unfinished_after
from cuframes_nb._runtime.attached import Taken
from cuframes_nb._runtime.session import Session
from cuframes_nb._wire.messages import Policy, ReadMode
from cuframes_nb.errors import PublisherGoneError, RemoteProtocolError

__all__ = ["Reader"]

_ATTEMPTS: Final = 16
"""Looks at the ring before waiting: each fails only if a slot was rewritten in that microsecond."""

_SPINS: Final = 100
"""Looks for completion without sleeping: about 100 us, which a sleep takes to return."""

_PENDING_SECONDS: Final = 0.0005
"""Between looks while a lease only waits for the GPU."""


class Reader:
    """Takes frames from whichever publisher a connection has.

    Parameters
    ----------
    connection
        Where the publisher is.
    mode
        Whether each frame counts, or the newest.
    spin_ns
        How long before and after the expected moment to look for a frame without sleeping.

    Attributes
    ----------
    received, skipped, retries, copied
        Counters, see :class:`~cuframes_nb.SubscriberStats`.
    """

    def __init__(self, connection: Connection, mode: ReadMode, spin_ns: int) -> None:
        self.received = self.skipped = self.retries = self.copied = 0
        self._connection = connection
        self._strict = mode is ReadMode.STRICT
        self._cadence = Cadence(spin_ns) if spin_ns else None

    # --- Taking -----------------------------------------------------------------------------------

    def take_fresh(self, *, newest: bool = False) -> Frame | None:
        """Take a frame that was not seen yet, if one is there, without asking for news.

        While such frames come in the newest epoch known, no news could matter more.

        Parameters
        ----------
        newest
            Whether to take the newest even if each counts.
        """
        session = self._connection.session
        if session is None or not session.epoch.control.live:
            return None
        taken = self._look(session, self._connection.last, newest=newest or not self._strict)
        return None if taken is None else self._hand_out(session, taken)

    def take_next(self) -> Frame | None:
        """Take in what the publisher said, then take the next frame if there is one.

        Raises
        ------
        PublisherGoneError
            If the publisher is gone for good, and nothing is left of it.
        """
        return self._take_following(newest=not self._strict, after=self._connection.last)

    def take_newest(self) -> Frame | None:
        """Take in what the publisher said, then take the newest frame, seen before or not.

        Raises
        ------
        PublisherGoneError
            As `take_next`.
        """
        return self._take_following(newest=True, after=0)

    def take_before(self, before: int) -> Frame | None:
        """Take the newest frame older than `before`, if this subscriber may hold one more."""
        session = self._connection.session
        if session is None:
            return None
        epoch = session.epoch
        seqs = epoch.control.seqs()
        for seq in sorted((seq for seq in seqs if 0 < seq < before), reverse=True):
            if not epoch.may_take(seqs.index(seq)):
                return None
            if (taken := epoch.take(seqs.index(seq), seq)) is not None:
                return self._hand_out(session, taken)
        return None

    # --- Waiting ----------------------------------------------------------------------------------

    def spin(self) -> bool:
        """Look, without sleeping, until a frame that is announced is complete.

        Returns
        -------
        bool
            Whether one is.
        """
        session = self._connection.session
        if session is None or not self._is_unfinished(session):
            return False
        return any(self._is_ready() for _ in range(_SPINS))

    def pause(self, waits: Iterator[float]) -> float | None:
        """Return for how long to sleep before looking again; None to wait for a wake-up."""
        session = self._connection.session
        if session is None:
            return None
        if self._is_unfinished(session):
            return next(waits)
        epoch = session.epoch
        if epoch.held >= epoch.limit and epoch.pending_releases:
            return _PENDING_SECONDS
        return None

    def wait(self, session: Session, seconds: float | None) -> bool:
        """Wait for a wake-up, looking out for the next frame when it is likely to come.

        Returns
        -------
        bool
            As ``Session.wait``.
        """
        if self._cadence is not None:
            sleep, spin = self._cadence.plan(now_ns())
            if spin and (seconds is None or sleep + spin < seconds):
                return session.watch(self._is_ready, sleep, spin)
        return session.wait(seconds)

    def _is_unfinished(self, session: Session) -> bool:
        control = session.epoch.control
        return unfinished_after(control.seqs(), control.done, self._connection.last)

    def _is_ready(self) -> bool:
        session = self._connection.session
        if session is None:
            return False
        control = session.epoch.control
        choose = oldest_after if self._strict else newest_complete
        return choose(control.seqs(), control.done, self._connection.last) is not None

    # --- Looking ----------------------------------------------------------------------------------

    def _take_following(self, *, newest: bool, after: int) -> Frame | None:
        """Take in what the publisher said, then look for a frame.

        What is in the ring can still be read when the publisher is gone; only then is that told.
        """
        session = self._connection.session
        if session is None:
            self._connection.check_hope()
            return None
        gone = self._follow(session)
        # A strict reader first takes what is left of an epoch, a newest-only reader does not care.
        while newest and session.advance():
            gone = self._follow(session)
        if newest and gone is not None and session.outdated:
            self._lose(gone)  # dropped for not listening: what is new is to be had by connecting
            return None
        if gone is not None and session.epoch.revoked:
            self._lose(gone)
            return None
        taken = self._look(session, after, newest=newest)
        while taken is None and session.advance():
            gone = self._follow(session)
            taken = self._look(session, after, newest=newest)
        if taken is not None:
            return self._hand_out(session, taken)
        if gone is not None:
            self._lose(gone)
        return None

    def _follow(self, session: Session) -> PublisherGoneError | None:
        """Take in what the publisher said; return its end, if that is what it was."""
        try:
            session.follow()
        except PublisherGoneError as error:
            return kept(error)
        except BaseException:
            self._connection.close()
            raise
        return None

    def _lose(self, error: PublisherGoneError) -> None:
        self._connection.lose(error)
        self._connection.check_hope()

    def _look(self, session: Session, after: int, *, newest: bool) -> Taken | None:
        epoch = session.epoch
        control = epoch.control
        choose = newest_complete if newest else oldest_after
        for _ in range(_ATTEMPTS):
            choice = choose(control.seqs(), control.done, after)
            if choice is not None and not newest and choice[1] != after + 1:
                # The numbers are not read all at once, so frames before this one may have come
                # while they were; now they show.
                choice = choose(control.seqs(), control.done, after)
            if choice is None:
                return None
            slot, seq = choice
            if not epoch.may_take(slot):
                if epoch.pending_releases:
                    return None
                raise lease_limit_reached(self._connection.name, epoch)
            try:
                taken = epoch.take(slot, seq)
            except RemoteProtocolError:
                self._connection.close()
                raise
            if taken is not None:
                return taken
            self.retries += 1
        return None

    def _hand_out(self, session: Session, taken: Taken) -> Frame:
        lease, planes, record = taken
        connection, ring = self._connection, session.epoch.message.ring
        seq, last = record[0], connection.last
        if seq > last:
            if last:
                self.skipped += seq - last - 1
            connection.last = seq
            if self._strict and ring.policy is Policy.STRICT_WAIT:  # else nobody asks
                session.report_passed(seq)
            if self._cadence is not None:
                self._cadence.note(seq, record.published_ns)
        self.received += 1
        if lease is None:
            self.copied += 1
        return Frame(session.welcome.key, ring, record, planes, lease)
