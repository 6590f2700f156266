"""Two ends without a socket: what the table names is said, and everything else is refused."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb._wire.link import TRANSITIONS, Link, Phase, Side, advance
from cuframes_nb._wire.messages import (
    MESSAGE_TYPES,
    ArenaDescription,
    Completion,
    Epoch,
    Goodbye,
    Hello,
    MemoryKind,
    Passed,
    Policy,
    Query,
    ReadMode,
    Refuse,
    RingDescription,
    SlotPlace,
    Status,
    Welcome,
)
from cuframes_nb.color import ColorSpec
from cuframes_nb.errors import LocalProtocolError, RemoteProtocolError
from cuframes_nb.formats import FrameLayout

PUBLISHER, SUBSCRIBER = Side.PUBLISHER, Side.SUBSCRIBER
RING = RingDescription(
    FrameLayout.make("gray8", 4, 4),
    ColorSpec(),
    30.0,
    Policy.DROP_OLDEST,
    Completion.HOST,
    (ArenaDescription(MemoryKind.HOST, 4096),),
    (SlotPlace(0, 0),),
)
HELLO = Hello(1, ReadMode.STRICT, "me")
WELCOME = Welcome("cam1", 2, 0, 0)
EPOCH = Epoch(1, 8192, RING)
PASSED = Passed(3)
REFUSE = Refuse("permission", "no")
GOODBYE = Goodbye("closed")
QUERY = Query()
STATUS = Status("cam1", 2, 1, 0, 0, 0, 0, RING, ())
ONE_OF_EACH = [HELLO, WELCOME, EPOCH, PASSED, REFUSE, GOODBYE, QUERY, STATUS]

EVERYTHING = list(itertools.product(Phase, Side, ONE_OF_EACH))
NAMED = [(p, s, m) for p, s, m in EVERYTHING if (p, s, type(m)) in TRANSITIONS]
NOT_NAMED = [(p, s, m) for p, s, m in EVERYTHING if (p, s, type(m)) not in TRANSITIONS]


def label(value):
    return value.value if isinstance(value, (Phase, Side)) else type(value).__name__


def link_in(phase, side):
    link = Link(side)
    link.phase = phase
    return link


class Pair:
    """Two links with nothing between them."""

    def __init__(self):
        self.ends = {side: Link(side) for side in Side}

    def say(self, sender, message):
        sent = self.ends[sender].outgoing(message)
        assert self.ends[sender.other].incoming(sent) is message
        assert self.phase is not None, "the two ends think differently of it"

    @property
    def phase(self):
        phases = {link.phase for link in self.ends.values()}
        return phases.pop() if len(phases) == 1 else None


@pytest.fixture
def pair():
    return Pair()


def test_the_examples_are_one_of_each():
    assert tuple(map(type, ONE_OF_EACH)) == MESSAGE_TYPES
    assert len(NAMED) == len(TRANSITIONS)


def test_a_subscriber_is_taken_in_follows_epochs_and_hears_the_end(pair):
    pair.say(SUBSCRIBER, HELLO)
    pair.say(PUBLISHER, WELCOME)
    pair.say(PUBLISHER, EPOCH)
    pair.say(SUBSCRIBER, PASSED)
    pair.say(PUBLISHER, EPOCH)
    pair.say(SUBSCRIBER, PASSED)
    pair.say(PUBLISHER, GOODBYE)
    assert pair.phase is Phase.CLOSED


def test_a_query_is_answered_and_that_is_all(pair):
    pair.say(SUBSCRIBER, QUERY)
    pair.say(PUBLISHER, STATUS)
    assert pair.phase is Phase.CLOSED


@pytest.mark.parametrize(
    "before",
    [
        [],
        [(SUBSCRIBER, QUERY)],
        [(SUBSCRIBER, HELLO)],
        [(SUBSCRIBER, HELLO), (PUBLISHER, WELCOME)],
        [(SUBSCRIBER, HELLO), (PUBLISHER, WELCOME), (PUBLISHER, EPOCH)],
    ],
)
def test_the_publisher_may_refuse_at_any_time(pair, before):
    for sender, message in before:
        pair.say(sender, message)
    pair.say(PUBLISHER, REFUSE)
    assert pair.phase is Phase.CLOSED


@pytest.mark.parametrize(("phase", "sender", "message"), NAMED, ids=label)
def test_what_the_table_names_is_taken(phase, sender, message):
    then = TRANSITIONS[phase, sender, type(message)]
    assert advance(phase, sender, message) is then
    out, into = link_in(phase, sender), link_in(phase, sender.other)
    assert out.outgoing(message) is message
    assert into.incoming(message) is message
    assert out.phase is into.phase is then


@pytest.mark.parametrize(("phase", "sender", "message"), NOT_NAMED, ids=label)
def test_what_the_table_does_not_name_is_refused(phase, sender, message):
    with pytest.raises(LocalProtocolError, match=type(message).__name__):
        advance(phase, sender, message)
    out, into = link_in(phase, sender), link_in(phase, sender.other)
    with pytest.raises(LocalProtocolError):
        out.outgoing(message)
    assert out.phase is phase, "what was not said changes nothing"
    with pytest.raises(RemoteProtocolError, match=f"the {sender.value} may not say"):
        into.incoming(message)
    assert into.phase is Phase.CLOSED


@given(st.lists(st.tuples(st.sampled_from(Side), st.sampled_from(ONE_OF_EACH)), max_size=12))
def test_a_closed_link_stays_closed(dialogue):
    link, closed = Link(SUBSCRIBER), False
    for sender, message in dialogue:
        try:
            link.outgoing(message) if sender is SUBSCRIBER else link.incoming(message)
        except (LocalProtocolError, RemoteProtocolError):
            pass
        else:
            assert not closed
        closed = closed or link.phase is Phase.CLOSED
        assert closed == (link.phase is Phase.CLOSED)


def test_the_other_side_is_the_other():
    assert PUBLISHER.other is SUBSCRIBER
    assert SUBSCRIBER.other is PUBLISHER
