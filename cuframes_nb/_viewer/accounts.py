"""What one view has been sent, what it has said of it, and whether it may be sent more.

A view may be sent more unless an answer is *overdue*: it has been out for longer than the way and
the target together. So whatever happens to the link or the page, no more is on its way than what
was sent in that time. If no answer comes at all, one more message may go when the view's patience
is over, and again after twice as long: answers can be lost. A view that stays silent has *lapsed*
and no longer counts, until it speaks.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from cuframes_nb._viewer.budget import Budget, Seen, Sent
from cuframes_nb._viewer.messages import Ack

__all__ = ["Account"]

_LAPSE_US: Final = 3_000_000
_MAX_TRANSIT_US: Final = 5_000_000
"""A view that has much on its way may be silent for longer, but not for ever."""
_PATIENCE_US: Final = 200_000
"""How long beyond the last round trip the first answer is waited for."""
_FIRST_RTT_US: Final = 300_000
_MAX_TRIES: Final = 8
_CLOCKS_US: Final = 100_000
"""By how much a page's clock may err: some browsers make theirs coarse on purpose."""


class Account:
    """One view's account.

    Parameters
    ----------
    target_us
        How much delay there may be.
    last
        The last message sent before the view came.
    now_us
        The time.
    """

    def __init__(self, target_us: int, last: Sent, now_us: int) -> None:
        self._target_us = target_us
        self._asks: deque[Sent] = deque(maxlen=64)  # messages that were asked about, unanswered
        self._last = last
        self._acked = last
        self._alone_n = 0
        self._tries = 0
        self._heard_us = now_us
        self.budget = Budget(target_us)
        self.visible = True

    @property
    def in_flight(self) -> int:
        """Bytes of which the view has not said that it received them."""
        return self._last.total - self._acked.total

    @property
    def is_prompt(self) -> bool:
        """Whether answers come so early that asking now and then is enough."""
        delay_us = self.budget.delay_us
        return delay_us is not None and delay_us < self._target_us // 3

    def lives(self, now_us: int) -> bool:
        """Whether the view counts: it can be seen and has not lapsed."""
        return self.visible and now_us < self._lapse_us()

    def opens_us(self, now_us: int) -> int:
        """Return when a message may go, as far as this view is concerned; `now_us` for now."""
        if self._open(now_us):
            return now_us
        patience_us = self._patience_us() * (1 << self._tries)
        return min(self._silent_since_us() + patience_us, self._lapse_us())

    def needs_answer(self, now_us: int) -> bool:
        """Whether the next message should be asked about whatever else holds."""
        return self.budget.way_us is None or self.budget.way_is_old(now_us)

    def sent(self, message: Sent, *, asked: bool) -> None:
        """Note that a message goes out, to this view as to every other."""
        if not self._open(message.at_us):
            self._tries = min(self._tries + 1, _MAX_TRIES)
        if self._acked.n == self._last.n:
            self._alone_n = message.n
        if asked:
            self._asks.append(message)
        self._last = message

    def heard(self, ack: Ack, sent: Sent, now_us: int, *, measure: bool) -> None:
        """Note that the view has received `sent`, which is what `ack` is about.

        Without `measure`, the time says nothing: the acknowledgement may have lain about.
        """
        if not self._acked.n < sent.n <= self._last.n:
            return  # said before
        rtt_us = now_us - sent.at_us - ack.held_us
        if rtt_us < -_CLOCKS_US:
            return  # it would have been received before it was sent
        if measure and now_us >= self._lapse_us():
            self.forgive(now_us)
            return
        seen = Seen(
            sent, self._last, now_us, max(rtt_us, 0), sent.total - self._acked.total,
            max(ack.bytes, 1) * 1e6 / max(ack.span_us, 1), self._alone_n == sent.n,
        )  # fmt: skip
        self._settle(sent, now_us)
        if measure and self.visible:  # pages that nobody sees run slowly
            self.budget.consider(seen)

    def forgive(self, now_us: int) -> None:
        """Take all that was sent as received: whether it was can no longer be told."""
        self._settle(self._last, now_us)

    def resume(self, now_us: int) -> None:
        """Start the clocks anew, after a time in which nothing could be heard, or before one."""
        if not self._open(now_us):
            self.forgive(now_us)
        self._heard_us = now_us

    def _settle(self, sent: Sent, now_us: int) -> None:
        self._acked, self._heard_us, self._tries = sent, now_us, 0
        while self._asks and self._asks[0].n <= sent.n:
            self._asks.popleft()

    def _open(self, now_us: int) -> bool:
        if not self._asks:
            return True
        way_us = self.budget.way_us
        if way_us is None or self.budget.way_is_old(now_us):
            return False
        return now_us < self._asks[0].at_us + way_us + self._target_us

    def _silent_since_us(self) -> int:
        """Return since when the view owes an answer."""
        return max(self._asks[0].at_us, self._heard_us)

    def _transit_us(self) -> int:
        return min(int(self.in_flight * 1e6 / self.budget.bytes_per_s), _MAX_TRANSIT_US)

    def _patience_us(self) -> int:
        rtt_us = self.budget.rtt_us
        return _PATIENCE_US + (_FIRST_RTT_US if rtt_us is None else rtt_us)

    def _lapse_us(self) -> int:
        if not self._asks:
            return 2**63
        return self._silent_since_us() + _LAPSE_US + self._transit_us()
