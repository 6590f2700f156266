"""A kernel, links and pages in virtual time, to see what a `Pacer` makes of them.

Nothing sleeps and nothing is random but by a seed. A *route* is a link and the page at its end.
Times are microseconds; a run is a heap of things to do at a time.
"""

import bisect
import dataclasses
import heapq
import itertools
import math
import random
from collections.abc import Callable

from cuframes_nb._viewer.messages import Ack
from cuframes_nb._viewer.pacing import Plan

__all__ = ["Camera", "Link", "Page", "Received", "Run", "at", "mbit", "ms"]

_BYTES_BY_QUALITY = (
    (10, 0.16), (20, 0.24), (30, 0.32), (40, 0.4), (50, 0.47), (60, 0.56), (70, 0.69), (75, 0.81),
    (80, 1.0), (85, 1.2), (90, 1.6), (95, 2.5), (100, 5.0),
)  # fmt: skip
"""Of JPEGs of film, as shares of those of quality 80; by another rule than the pacer's."""

_HEADER = 600
_ACK_TIMEOUT = 100_000


def mbit(number):
    """Return megabits a second as bytes a second."""
    return number * 1e6 / 8


def ms(number):
    """Return milliseconds as microseconds."""
    return int(number * 1000)


def at(seconds):
    """Return seconds as microseconds."""
    return int(seconds * 1_000_000)


@dataclasses.dataclass
class Camera:
    """What is published, and how well it compresses."""

    fps: float = 30.0
    nbytes: float = 170_000.0  #: of a picture of quality 80 at full scale
    spread: float = 0.08  #: standard deviation from picture to picture, as a share
    swing: float = 0.1  #: slow change with what is in the picture, as a share
    encode_us: int = 6_000

    def picture(self, plan, now, rng):
        """Return how many bytes a message with a picture made by `plan` has."""
        qualities = [quality for quality, _ in _BYTES_BY_QUALITY]
        right = max(1, bisect.bisect_left(qualities, plan.quality))
        (q0, b0), (q1, b1) = _BYTES_BY_QUALITY[right - 1 : right + 1]
        share = b0 + (b1 - b0) * (plan.quality - q0) / (q1 - q0)
        slow = 1 + self.swing * math.sin(now / 3e6)
        each = max(0.5, rng.gauss(1, self.spread))
        return _HEADER + int(self.nbytes * share * plan.scale**1.5 * slow * each)


@dataclasses.dataclass
class Link:
    """A way to a page and back: messages queue for the capacity, then take their time."""

    capacity: float | Callable[[int], float]  #: bytes a second, or a function of the time
    one_way: int = 1_000
    jitter: int = 0  #: at most so much more or less, each way; nothing overtakes
    lost: float = 0.0  #: share of acknowledgements that never arrive
    buffer: float = math.inf  #: bytes that wait at most; messages that find no room are dropped
    _free: float = 0.0
    _down: float = 0.0
    _up: float = 0.0

    def down(self, nbytes, now, rng):
        """Return when a message sent now has been received, or None if it is dropped."""
        start = max(now, self._free)
        if (start - now) * self._rate(now) / 1e6 > self.buffer:
            return None
        self._free = self._served(nbytes, start)
        self._down = max(self._down, self._free + self._travel(rng))
        return self._down

    def up(self, now, rng):
        """Return when an acknowledgement sent now arrives, or None if it is lost."""
        if rng.random() < self.lost:
            return None
        self._up = max(self._up, now + self._travel(rng))
        return self._up

    def _rate(self, now):
        return self.capacity(now) if callable(self.capacity) else self.capacity

    def _served(self, nbytes, now):
        """Return when `nbytes` from now are through; in steps where capacity changes."""
        if not callable(self.capacity):
            return now + nbytes * 1e6 / self.capacity
        while nbytes > 0:
            step = nbytes * 1e6 / self._rate(now)
            if step <= 5_000:
                return now + step
            nbytes -= self._rate(now) * 0.005
            now += 5_000
        return now

    def _travel(self, rng):
        return max(0.0, self.one_way + rng.uniform(-self.jitter, self.jitter))


@dataclasses.dataclass
class Received:
    """A message that a page received."""

    n: int
    nbytes: int
    plan: Plan
    taken: int  #: when its frame was taken
    sent: int
    received: int

    @property
    def latency(self):
        """From sending until it was received as a whole."""
        return self.received - self.sent


class Page:
    """Paints the newest and acknowledges, by the rules of docs/design/viewer.md.

    Parameters
    ----------
    view
        Its name.
    paint
        How long a picture takes until it is on screen.
    stalls
        Pairs of times between which it does nothing; what arrives waits.
    joins
        When it comes up; before, it gets nothing.
    """

    def __init__(self, view="view" * 4, paint=12_000, stalls=(), joins=0):
        self.view = view
        self.joins = joins
        self.got = []
        self.acks = []
        self._paint = paint
        self._stalls = stalls
        self._painted = 0
        self._pending = []  # messages that are to be answered
        self._last_ack = (0, 0)  # how much was received then, and when the last of it was
        self._answered = 0

    def ready(self, now):
        """Return when the page, if it stands still now, goes on."""
        return next((end for start, end in self._stalls if start <= now < end), now)

    def receive(self, item, asked):
        """Take a message in; return when to look at what is to be answered."""
        self.got.append(item)
        if asked:
            self._pending.append(item)
        due = [item.received + self._paint, item.received + _ACK_TIMEOUT]
        return [*due, item.received] if len(self.got) > 1 else due

    def answers(self, now):
        """Return the acknowledgements that are due."""
        newest = self.got[-1]
        if newest.received + self._paint <= now:
            self._painted = newest.n
        due = [
            item
            for item in self._pending
            if item.n < newest.n or self._painted >= item.n or now >= item.received + _ACK_TIMEOUT
        ]
        self._pending = [item for item in self._pending if item not in due]
        return [self._answer(newest, now) for _ in due[:1]]

    def _answer(self, newest, now):
        fresh = self.got[self._answered :]
        before = self.got[self._answered - 1].received if self._answered else newest.received
        self._answered = len(self.got)
        self.acks.append(now)
        return Ack(
            view=self.view,
            n=newest.n,
            painted=self._painted,
            missed=0,
            held_us=int(now - newest.received),
            bytes=sum(item.nbytes for item in fresh),
            span_us=int(newest.received - before),
            decode_us=4_000,
        )


class Run:
    """A pacer at work; what it did is in the pages and in `sent`.

    Parameters
    ----------
    pacer
        The pacer.
    routes
        Pairs of a link and a page.
    camera
        What is published.
    deaf
        Pairs of times between which the kernel hears nothing; the pacer is told.
    seed
        Of everything that is random.
    """

    def __init__(self, pacer, routes, camera=None, deaf=(), seed=1):
        self.pacer = pacer
        self.routes = routes
        self.camera = camera or Camera()
        self.sent = []
        self.now = 0
        self._deaf = deaf
        self._rng = random.Random(seed)
        self._heap = []
        self._order = itertools.count()
        self._frame = 0
        self._busy = False
        self._wake = None
        for _, page in routes:
            self.do(page.joins, self._join, page)
        for start, end in deaf:
            self.do(start, self._set_deaf, True)
            self.do(end, self._set_deaf, False)

    @property
    def page(self):
        """The first page."""
        return self.routes[0][1]

    def do(self, when, what, *arguments):
        """Have something done at a time."""
        heapq.heappush(self._heap, (when, next(self._order), what, arguments))

    def until(self, seconds):
        """Go on until a time, and return the run."""
        while self._heap and self._heap[0][0] <= at(seconds):
            self.now, _, what, arguments = heapq.heappop(self._heap)
            what(*arguments)
        self.now = at(seconds)
        return self

    def tell(self, seconds, what, *arguments):
        """Have a method of the pacer called at a time, which comes last of the arguments."""
        self.do(at(seconds), self._tell, what, arguments)

    # --- The kernel -------------------------------------------------------------------------------

    def _tell(self, what, arguments):
        what(*arguments, int(self.now))
        self._look()

    def _join(self, page):
        self._tell(self.pacer.join, [page.view])

    def _set_deaf(self, on):
        self._tell(self.pacer.set_deaf, [on])

    def _look(self):
        """Send the newest frame, if there is a new one and it may go; else look again later."""
        if self._busy:
            return
        may = self.pacer.next_send_us(int(self.now))
        if may is None:
            return
        newest = int(self.now * self.camera.fps / 1e6) + 1
        if may > self.now:
            self._look_at(may)
        elif newest <= self._frame:
            self._look_at(math.ceil(self._frame * 1e6 / self.camera.fps))
        else:
            self._frame, self._busy = newest, True
            self.do(self.now + self.camera.encode_us, self._send, self.pacer.plan, self.now)

    def _look_at(self, when):
        if self._wake is None or when < self._wake or self._wake <= self.now:
            self._wake = when
            self.do(when, self._look)

    def _send(self, plan, taken):
        now, n = int(self.now), len(self.sent) + 1
        self._busy = False
        nbytes = self.camera.picture(plan, now, self._rng)
        asked = self.pacer.wants_ack(now)
        self.pacer.sent(n, nbytes, now, asked=asked, plan=plan)
        self.sent.append((now, nbytes, plan))
        for link, page in self.routes:
            if now < page.joins:
                continue
            arrives = link.down(nbytes, now, self._rng)
            if arrives is not None:
                item = Received(n, nbytes, plan, taken, now, 0)
                self.do(arrives, self._arrive, link, page, item, asked)
        self._look()

    def _hear(self, ack):
        end = next((end for start, end in self._deaf if start <= self.now < end), None)
        if end is not None:
            self.do(end + 1, self._hear, ack)
            return
        self.pacer.heard(ack.view, ack, int(self.now))
        self._look()

    # --- The pages --------------------------------------------------------------------------------

    def _arrive(self, link, page, item, asked):
        ready = page.ready(self.now)
        if ready > self.now:
            self.do(ready, self._arrive, link, page, item, asked)
            return
        item.received = int(self.now)
        for when in page.receive(item, asked):
            self.do(when, self._answer, link, page)

    def _answer(self, link, page):
        if page.ready(self.now) > self.now:
            self.do(page.ready(self.now), self._answer, link, page)
            return
        for ack in page.answers(self.now):
            arrives = link.up(self.now, self._rng)
            if arrives is not None:
                self.do(arrives, self._hear, ack)

    # --- What came of it --------------------------------------------------------------------------

    def between(self, start, end, page=None):
        """Return what a page received from `start` to `end`, in seconds."""
        got = (page or self.page).got
        return [item for item in got if at(start) <= item.received < at(end)]

    def fps(self, start, end, page=None):
        """Return how many messages a second a page received."""
        return len(self.between(start, end, page)) / (end - start)

    def latency(self, start, end, share=0.95, page=None):
        """Return the latency, in seconds, that a share of the messages kept."""
        latencies = sorted(item.latency for item in self.between(start, end, page))
        return latencies[min(len(latencies) - 1, int(len(latencies) * share))] / 1e6

    def gap(self, start, end, page=None):
        """Return the longest time, in seconds, in which nothing was received."""
        times = [item.received / 1e6 for item in self.between(start, end, page)]
        return max(b - a for a, b in itertools.pairwise([start, *times, end]))

    def acks_per_s(self, start, end, page=None):
        """Return how many acknowledgements a second a page sent."""
        acks = [when for when in (page or self.page).acks if at(start) <= when < at(end)]
        return len(acks) / (end - start)

    def first(self, page=None):
        """Return when, in seconds, a page had its first picture."""
        return (page or self.page).got[0].received / 1e6
