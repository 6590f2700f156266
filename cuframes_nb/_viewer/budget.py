"""How many bytes a second a view is given: more while answers are prompt, fewer when they are late.

The evidence is the round trip of messages that the page acknowledged. Its least value over the last
while is *the way*: there and back, with no queues. What a round trip takes beyond the way, and
beyond the time that the message itself needs, is *delay*. It was spent in queues, and the budget
keeps it below a target:

* Answers are *late* when three in a row have more delay than the target. Three, because one may
  have had bad luck. The budget is cut to a little less than what the link delivered meanwhile.
* They are *prompt* when the last has less than half of it. The budget is raised: gently around the
  rate at which the link was last seen full, fast where nothing is known, and never far beyond what
  was used of it, for what was not used was not tried.
* In between, all is well.

A page that stood still for a while also answers late, but then everything at once. By our clock or
by the page's, it was delivering at a rate far above the budget, and so nothing is cut.
"""

from __future__ import annotations

import itertools
from collections import deque
from typing import Final, NamedTuple

__all__ = ["START", "Budget", "Seen", "Sent"]

START: Final = 150_000.0
"""Bytes a second before anything is known."""
_LEAST: Final = 30_000.0
"""About two of the cheapest pictures; a slower link is held back by overdue answers alone."""
_MOST: Final = 1e9
_LEAST_RTT_US: Final = 2_000
"""Shorter round trips say nothing about a rate: clocks of pages are coarse."""

_AGREE: Final = 3
"""So many answers in a row must be late."""
_CUT: Final = 0.85
"""Share of what was delivered that is left."""
_FAST: Final = 1.7
"""By how much the budget grows in a round trip at most, where nothing is known."""
_AROUND: Final = 0.75
"""From this share on of the rate at which the link was last seen full, it grows gently."""
_GENTLY: Final = 1.03
_GENTLY_EVERY_US: Final = 200_000
_FASTER: Final = 1.2
"""A link that delivers so much more than when it was last seen full has become faster."""
_BEYOND: Final = 2.0
"""The budget grows to so much more than what was used of it, at most."""
_RECENT_US: Final = 500_000
"""What was used and delivered longer ago than this no longer counts."""
_FORGET_US: Final = 10_000_000
"""The way is measured anew when delay has been up for so long: routes change."""


class Sent(NamedTuple):
    """A message that was sent."""

    n: int  #: its number
    nbytes: int  #: how many bytes it has
    total: int  #: bytes of all messages up to and including it
    at_us: int  #: when


class Seen(NamedTuple):
    """An acknowledgement, as it looks from here."""

    sent: Sent  #: the message that was received last
    last: Sent  #: the message that was sent last
    heard_us: int  #: when the acknowledgement came
    rtt_us: int  #: the round trip, without what the page took to answer
    nbytes: int  #: what it acknowledges that none before did
    page_rate: float  #: bytes a second between receipts, by the page's clock
    alone: bool  #: whether nothing else was on its way when the message was sent

    @property
    def alone_rate(self) -> float:
        """What a link carries at least that took this in one round trip."""
        return self.nbytes * 1e6 / max(self.rtt_us, _LEAST_RTT_US)


class Budget:
    """Bytes a second for one view, and the round trips that they follow from.

    Parameters
    ----------
    target_us
        How much delay there may be.
    """

    def __init__(self, target_us: int) -> None:
        self._target_us = target_us
        self._answers: deque[tuple[int, Seen]] = deque(maxlen=16)  # with the delay of each
        self._full: float | None = None  # the rate at which the link was last seen full
        self._way_seen_us = 0  # when there last was hardly any delay
        self._since = Sent(0, 0, 0, 0)  # the last message sent before the budget last changed
        self._changed_us = 0
        self._changed_total = 0  # how much had been acknowledged then
        self.bytes_per_s = START
        self.way_us: int | None = None
        self.rtt_us: int | None = None  # the last round trip
        self.delay_us: int | None = None  # the delay on which the last answers agree: their least

    def way_is_old(self, now_us: int) -> bool:
        """Whether the way should be measured, by a message that has nothing in front of it."""
        return self.way_us is not None and now_us - self._way_seen_us > _FORGET_US

    def consider(self, seen: Seen) -> None:
        """Let an acknowledgement change the budget, or not."""
        first = self.way_us is None
        delay_us = self._delay(seen)
        self._answers.append((delay_us, seen))
        self.rtt_us, self.delay_us = seen.rtt_us, min(delay_us for delay_us, _ in self._latest())
        if first:  # what one picture showed by itself, the link can surely do
            self._set(seen.alone_rate, seen)
        elif seen.sent.n <= self._since.n:
            return  # it was sent before the last change and so says nothing about it
        elif self._late():
            self._cut(seen)
        elif delay_us < self._target_us // 2:
            self._raise(seen, delay_us)

    # --- What it says -----------------------------------------------------------------------------

    def _latest(self) -> list[tuple[int, Seen]]:
        return list(self._answers)[-_AGREE:]

    def _delay(self, seen: Seen) -> int:
        """Return the delay of a round trip, after a look whether it shows the way."""
        renew = seen.alone and self.way_is_old(seen.heard_us)
        if self.way_us is None or seen.rtt_us < self.way_us or renew:
            self.way_us = seen.rtt_us
        # On slow links the way was measured with a message that needed long itself; hence a limit.
        own_us = min(int(seen.sent.nbytes * 1e6 / self.bytes_per_s), self._target_us)
        delay_us = max(0, seen.rtt_us - self.way_us - own_us)
        if renew or delay_us <= self._target_us // 3:
            self._way_seen_us = seen.heard_us
        return delay_us

    def _late(self) -> bool:
        latest = self._latest()
        return len(latest) == _AGREE and min(latest)[0] > self._target_us

    def _delivered(self) -> float:
        """Return the rate at which late answers came in, by the clock that shows it faster.

        The first of them is left out: it may have waited for something else.
        """
        backwards = itertools.takewhile(lambda a: a[0] > self._target_us, reversed(self._answers))
        *late, first = [seen for _, seen in backwards]
        ours_us = late[0].heard_us - first.heard_us
        theirs_us = sum(seen.nbytes * 1e6 / seen.page_rate for seen in late)
        return sum(seen.nbytes for seen in late) * 1e6 / max(1.0, min(ours_us, theirs_us))

    def _used(self, sent: Sent) -> float:
        """Return how many bytes a second were sent since the budget last changed."""
        passed_us = sent.at_us - self._since.at_us
        return (sent.total - self._since.total) * 1e6 / max(1, passed_us)

    # --- What follows -----------------------------------------------------------------------------

    def _cut(self, seen: Seen) -> None:
        if seen.alone:
            rate = self._start_again()
        else:
            self._full = self._delivered()
            rate = _CUT * self._full
        if rate < self.bytes_per_s:
            self._set(rate, seen)
            self._answers.clear()

    def _start_again(self) -> float:
        """Return the rate for a link on which even messages with nothing in front are late.

        Sending less makes them no earlier. Smaller pictures may, or else the way is longer now.
        """
        latest = [seen for _, seen in self._latest()]
        if all(seen.alone for seen in latest):
            self.way_us, self._full = min(seen.rtt_us for seen in latest), None
        return max(seen.alone_rate for seen in latest)

    def _raise(self, seen: Seen, delay_us: int) -> None:
        passed_us = max(1, seen.heard_us - self._changed_us)
        delivered = (seen.sent.total - self._changed_total) * 1e6 / passed_us
        if self._full and passed_us >= _GENTLY_EVERY_US and delivered > _FASTER * self._full:
            self._full = None
        if self._full and self.bytes_per_s > _AROUND * self._full:
            factor = _GENTLY if passed_us >= _GENTLY_EVERY_US else 1.0
        else:
            factor = 1 + (_FAST - 1) * (1 - 2 * delay_us / self._target_us)
        rate = min(factor * self.bytes_per_s, _BEYOND * self._used(seen.sent))
        if rate > self.bytes_per_s:
            self._set(rate, seen)
        elif passed_us > _RECENT_US:
            self._set(self.bytes_per_s, seen)

    def _set(self, rate: float, seen: Seen) -> None:
        self.bytes_per_s = min(max(rate, _LEAST), _MOST)
        self._since = seen.last
        self._changed_us, self._changed_total = seen.heard_us, seen.sent.total
