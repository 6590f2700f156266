"""When to send a picture and how to make it; from acknowledgements alone.

There is no clock in here: every call says what time it is, in microseconds of the kernel's
monotonic clock. The parts:

* each view has an account (`accounts`): what is on its way to it, and whether it may be sent more;
* each account has a budget (`budget`): how many bytes a second its link carries without delay;
* the ladder (`plans`) has the best pictures for the smallest budget;
* the throttle (`rates`) spreads them in time.

Messages go to every view, so the slowest that lives and can be seen decides.
"""

from __future__ import annotations

from typing import Final

from cuframes_nb._viewer.accounts import Account
from cuframes_nb._viewer.budget import START, Sent
from cuframes_nb._viewer.messages import Ack
from cuframes_nb._viewer.plans import Ladder, Plan
from cuframes_nb._viewer.rates import Meter, Throttle

__all__ = ["Pacer", "Plan"]

_MAX_VIEWS: Final = 64
_MAX_SENT: Final = 1024
"""Messages that an acknowledgement can be about: half a minute of pictures."""

_SMOOTH_FPS: Final = 30.0
"""Pictures are made smaller to hold this rate, and not to exceed it."""

_ASK_US: Final = 200_000
_ASK_OFTEN_US: Final = 30_000
_ASK_DEAF_US: Final = 1_000_000

_DEAF_FPS: Final = 10.0
_DEAF_BYTES_PER_S: Final = 160_000.0
_DEAF_SHARE: Final = 0.5


class Pacer:
    """Decides when the next message goes out and how its pictures are made.

    It is not safe to use from two threads at once: the caller has a lock.

    Parameters
    ----------
    fps_limit
        Messages a second, at most; None for no limit.
    quality
        The quality of all pictures; None for what the links allow.
    latency_us
        How long messages may wait in queues on their way.
    """

    def __init__(
        self,
        *,
        fps_limit: float | None = None,
        quality: int | None = None,
        latency_us: int = 80_000,
    ) -> None:
        self._fps_limit = fps_limit
        self._latency_us = latency_us
        self._source_fps = _SMOOTH_FPS
        self._accounts: dict[str, Account] = {}
        self._ledger: dict[int, Sent] = {}
        self._last = Sent(0, 0, 0, 0)
        self._asked_us: int | None = None
        self._now_us = 0
        self._deaf_us: int | None = None
        self._ladder = Ladder(quality)
        self._throttle = Throttle(START, fps_limit)
        self._meter = Meter()

    # --- Views ------------------------------------------------------------------------------------

    def join(self, view: str, now_us: int) -> None:
        """Note that a view came up, or said again that it is there."""
        self._tick(now_us)
        account = self._accounts.get(view)
        if account is not None:
            account.visible = True
            account.forgive(now_us)
        elif self._has_room():
            self._accounts[view] = Account(self._latency_us, self._last, now_us)
        self._decide()

    def leave(self, view: str) -> None:
        """Note that a view is gone."""
        self._accounts.pop(view, None)
        self._decide()

    def counts(self, view: str) -> bool:
        """Whether this view counts: it can be seen, and has not lapsed."""
        account = self._accounts.get(view)
        return account is not None and account.lives(self._lapse_us)

    def set_visible(self, view: str, on: bool, now_us: int) -> None:  # noqa: FBT001  as pages say it
        """Note that a view can be seen now, or cannot any more and so costs nothing."""
        self._tick(now_us)
        account = self._accounts.get(view)
        if account is not None and account.visible != on:
            account.visible = on
            account.forgive(now_us)
            self._decide()

    def heard(self, view: str, ack: Ack, now_us: int) -> None:
        """Take an acknowledgement in; one that makes no sense changes nothing."""
        self._tick(now_us)
        account, sent = self._accounts.get(view), self._ledger.get(ack.n)
        if account is not None and sent is not None:
            account.heard(ack, sent, now_us, measure=not self.deaf)
            self._decide()

    @property
    def watched(self) -> bool:
        """Whether anybody looks; nothing needs to be taken, converted or sent otherwise."""
        return bool(self._living())

    # --- Sending ----------------------------------------------------------------------------------

    def next_send_us(self, now_us: int) -> int | None:
        """Return when the next message may go, by what is known now.

        Returns
        -------
        int or None
            `now_us` or earlier if it may go at once. None if none may go, however long one waits,
            until a view comes or speaks.
        """
        self._tick(now_us)
        living = self._living()
        if not living:
            return None
        next_us = self._throttle.next_us(now_us)
        if self.deaf:
            return next_us
        return max(next_us, *(account.opens_us(now_us) for account in living))

    def wants_ack(self, now_us: int) -> bool:
        """Whether the message that goes out now should ask for an acknowledgement."""
        self._tick(now_us)
        if self._asked_us is None:
            return True
        living = self._living()
        if self.deaf:
            every_us = _ASK_DEAF_US
        elif any(account.needs_answer(now_us) for account in living):
            return True
        elif self._ladder.is_best and all(account.is_prompt for account in living):
            every_us = _ASK_US
        else:
            every_us = _ASK_OFTEN_US
        return now_us - self._asked_us >= every_us

    def sent(
        self, n: int, nbytes: int, now_us: int, *, asked: bool, plan: Plan | None = None
    ) -> None:
        """Note that a message goes out; to be called just before it does.

        Parameters
        ----------
        n
            Its number.
        nbytes
            How many bytes it has.
        now_us
            The time.
        asked
            Whether it asks for an acknowledgement.
        plan
            How its pictures were made; None if by no plan, as stills are.
        """
        self._tick(now_us)
        message = Sent(n, nbytes, self._last.total + nbytes, now_us)
        for account in self._accounts.values():
            account.sent(message, asked=asked)
        self._last = self._ledger[n] = message
        if len(self._ledger) > _MAX_SENT:
            del self._ledger[next(iter(self._ledger))]
        if asked:
            self._asked_us = now_us
        if plan is not None:
            self._ladder.learn(plan, nbytes)
        self._throttle.sent(nbytes, now_us)
        self._meter.sent(nbytes, now_us)
        self._decide()

    @property
    def plan(self) -> Plan:
        """How pictures are to be made now."""
        return self._ladder.plan

    @property
    def still_bytes(self) -> int:
        """How many bytes a still may have so that every view has it within about a second."""
        return int(min((self._allowed(account) for account in self._living()), default=0.0))

    def set_source_fps(self, fps: float | None) -> None:
        """Note how many frames a second there are to show; None if that is not known."""
        self._source_fps = _SMOOTH_FPS if fps is None else max(fps, 1.0)
        self._decide()

    def set_deaf(self, on: bool, now_us: int) -> None:  # noqa: FBT001  likewise
        """Note that acknowledgements cannot be heard now, or can again.

        Meanwhile sending goes on at a rate that needs none, and no view lapses.
        """
        self._tick(now_us)
        if on == self.deaf:
            return
        living = self._living()
        self._deaf_us = now_us if on else None
        for account in living:
            account.resume(now_us)
        self._decide()

    @property
    def deaf(self) -> bool:
        """Whether acknowledgements cannot be heard now, and so the rate is a safe one."""
        return self._deaf_us is not None

    # --- What the read-out shows ------------------------------------------------------------------

    @property
    def rtt_us(self) -> int | None:
        """The last round trip to the view that is farthest, without what pages took to answer."""
        return max(
            (rtt for a in self._living() if (rtt := a.budget.rtt_us) is not None), default=None
        )

    @property
    def delay_us(self) -> int | None:
        """The part of a round trip spent in queues, for the view where it is most."""
        return max(
            (delay for a in self._living() if (delay := a.budget.delay_us) is not None),
            default=None,
        )

    @property
    def bytes_per_s(self) -> float | None:
        """Bytes sent in the second before the last call; None before the first message."""
        if not self._last.n:
            return None
        self._meter.tick(self._now_us)
        return float(self._meter.nbytes)

    @property
    def fps(self) -> float | None:
        """Messages sent in the second before the last call; None before the first."""
        if not self._last.n:
            return None
        self._meter.tick(self._now_us)
        return float(self._meter.messages)

    # --- Inside -----------------------------------------------------------------------------------

    def _tick(self, now_us: int) -> None:
        """Note the time; what was heard may have waited to be told, and so be older."""
        self._now_us = max(self._now_us, now_us)

    @property
    def _lapse_us(self) -> int:
        """The time for whether a view has lapsed: it stands still while nothing can be heard."""
        return self._now_us if self._deaf_us is None else self._deaf_us

    def _living(self) -> list[Account]:
        now_us = self._lapse_us
        return [account for account in self._accounts.values() if account.lives(now_us)]

    def _has_room(self) -> bool:
        """Return whether one more view can be kept, after those that lapsed made way."""
        if len(self._accounts) >= _MAX_VIEWS:
            living = self._living()
            self._accounts = {v: a for v, a in self._accounts.items() if a in living}
        return len(self._accounts) < _MAX_VIEWS

    def _decide(self) -> None:
        """Set rates and plan anew, from what all views that count can take."""
        living = self._living()
        if not living:
            return
        bytes_per_s = min(self._allowed(account) for account in living)
        limits = [self._fps_limit] if self._fps_limit is not None else []
        if self.deaf and any(a.budget.way_us is None for a in living):
            limits.append(_DEAF_FPS)
        fps = min(limits, default=None)
        self._throttle.set(bytes_per_s, fps, self._now_us)
        self._ladder.choose(bytes_per_s / min(_SMOOTH_FPS, self._source_fps, *limits))

    def _allowed(self, account: Account) -> float:
        """Return the bytes a second for a view, which without being heard are fewer.

        Where answers were prompt with the best pictures, the link has shown that it has room.
        """
        budget = account.budget
        if not self.deaf:
            return budget.bytes_per_s
        if budget.way_us is None:
            return _DEAF_BYTES_PER_S
        room = account.is_prompt and self._ladder.is_best
        return budget.bytes_per_s * (1.0 if room else _DEAF_SHARE)
