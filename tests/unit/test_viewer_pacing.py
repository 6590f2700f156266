"""When pictures are sent and how they are made: on links of all kinds, and with bad pages."""

import dataclasses
import itertools
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuframes_nb._viewer.messages import Ack
from cuframes_nb._viewer.pacing import Pacer, Plan
from cuframes_nb._viewer.plans import Ladder
from cuframes_nb._viewer.rates import Meter, Throttle
from tests.helpers.links import Camera, Link, Page, Run, at, mbit, ms

BEST = Plan(80, 1.0)
CHEAPEST = Plan(40, 0.35)
SEEDS = (1, 2)
VIEW = "view" * 4
OTHER = "other" * 4


def run(link, seconds, *, camera=None, seed=1, page=None, deaf=(), **options):
    """Return a run of one page at the end of a link."""
    pacer = Pacer(**options)
    if camera:
        pacer.set_source_fps(camera.fps)
    return Run(pacer, [(link, page or Page())], camera, deaf, seed).until(seconds)


def plans(received):
    return {item.plan for item in received}


def fast_link():
    return Link(mbit(100), ms(1))


def ack(n, view=VIEW, **changes):
    values = {
        "painted": n, "missed": 0, "held_us": 0, "bytes": 20_000, "span_us": 30_000,
        "decode_us": 0,
    }  # fmt: skip
    return Ack(view=view, n=n, **values | changes)


# --- Links that stay as they are ------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fps", [30, 60])
def test_a_fast_link_gets_everything_for_few_acknowledgements(fps, seed):
    r = run(fast_link(), 8, camera=Camera(fps, nbytes=160_000), seed=seed)
    assert plans(r.between(0.5, 8)) == {BEST}
    assert r.fps(1, 8) >= 0.99 * fps
    assert r.latency(0, 8, share=1) <= 0.05
    assert r.acks_per_s(1, 8) <= 6


class Aim(NamedTuple):
    """What is wanted of a link: frames a second, and seconds."""

    link: Link
    fps: float
    p95: float
    gap: float


AIMS = {
    "30 Mbit/s": Aim(Link(mbit(30), ms(10)), 25, 0.16, 0.3),
    "10 Mbit/s": Aim(Link(mbit(10), ms(20)), 18, 0.2, 0.5),
    "10 Mbit/s, jitter and loss": Aim(Link(mbit(10), ms(50), ms(30), 0.05), 18, 0.25, 1.0),
    "2 Mbit/s": Aim(Link(mbit(2), ms(20)), 8, 0.4, 1.0),
    "2 Mbit/s, jitter and loss": Aim(Link(mbit(2), ms(50), ms(30), 0.05), 8, 0.4, 1.0),
    "0.5 Mbit/s": Aim(Link(mbit(0.5), ms(20)), 3, 1.0, 1.0),
    "0.5 Mbit/s, jitter and loss": Aim(Link(mbit(0.5), ms(50), ms(30), 0.05), 3, 1.0, 3.0),
    "0.3 Mbit/s": Aim(Link(mbit(0.3), ms(20)), 2, 1.2, 1.5),
}


@pytest.mark.parametrize("name", AIMS)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_slow_link_gets_what_it_carries_in_time(name, seed):
    aim = AIMS[name]
    r = run(dataclasses.replace(aim.link), 24, seed=seed)
    assert r.fps(4, 24) >= aim.fps
    assert r.latency(4, 24) <= aim.p95
    assert r.gap(4, 24) <= aim.gap
    # It does not get later and later.
    assert r.latency(14, 24, share=0.5) <= 1.5 * r.latency(4, 14, share=0.5)


@pytest.mark.parametrize(("capacity", "share"), [(30, 0.75), (10, 0.75), (2, 0.75), (0.5, 0.75)])
def test_most_of_a_link_is_used(capacity, share):
    r = run(Link(mbit(capacity), ms(20)), 20)
    assert sum(item.nbytes for item in r.between(5, 20)) / 15 >= share * mbit(capacity)


@pytest.mark.parametrize(("capacity", "first"), [(100, 0.05), (10, 0.1), (0.5, 0.4), (0.3, 0.6)])
def test_the_first_picture_comes_soon_and_the_next_are_not_late(capacity, first):
    r = run(Link(mbit(capacity), ms(20)), 4)
    assert r.first() <= first
    assert r.latency(0, 4, share=1) <= max(0.5, 3.5 * r.first())


def test_a_fast_link_far_away_gets_there_too():
    r = run(Link(mbit(100), ms(100)), 12, camera=Camera(nbytes=160_000))
    assert plans(r.between(4, 12)) == {BEST}
    assert r.fps(4, 12) >= 29
    assert r.acks_per_s(4, 12) <= 6


def test_messages_that_a_full_buffer_drops_do_not_stop_it():
    r = run(Link(mbit(10), ms(20), buffer=60_000), 15)
    assert len(r.sent) > len(r.page.got)
    assert r.fps(5, 15) >= 5
    assert r.gap(5, 15) <= 1


def test_plans_change_seldom():
    r = run(Link(mbit(10), ms(20)), 20)
    changes = sum(a.plan != b.plan for a, b in itertools.pairwise(r.between(5, 20)))
    assert changes / 15 <= 3


# --- Links and pages that change ------------------------------------------------------------------


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("jitter", [0, 20])
def test_it_follows_the_capacity_down_and_up(jitter, seed):
    link = Link(lambda now: mbit(1 if at(8) <= now < at(16) else 10), ms(25), ms(jitter))
    r = run(link, 24, seed=seed)
    assert r.latency(11, 16) <= 0.45
    assert r.fps(11, 16) >= 5
    assert r.gap(8, 16) <= 1
    assert r.fps(18, 24) >= 18
    assert r.latency(16, 24) <= 0.25
    assert sum(item.nbytes for item in r.between(19, 22)) / 3 >= 0.6 * mbit(10)


def test_a_longer_route_is_taken_for_one():
    link = Link(mbit(10), ms(10))
    r = run(link, 5)
    link.one_way = ms(160)
    r.until(20)
    assert r.fps(12, 20) >= 18
    assert r.latency(5, 20) <= 0.45


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("fps", [30, 60])
def test_a_page_that_stood_still_goes_on_at_once(fps, seed):
    page = Page(stalls=[(at(5), at(7))])
    r = run(fast_link(), 9, camera=Camera(fps, nbytes=160_000), seed=seed, page=page)
    waited = [when for when, _, _ in r.sent if at(5) <= when < at(7)]
    assert len(waited) <= 0.4 * fps + 4
    assert r.between(7, 7.1)[-1].latency < ms(100)
    assert r.fps(7.1, 9) >= 0.95 * fps
    assert plans(r.between(7.1, 9)) == {BEST}


def test_a_page_that_stood_still_on_a_slow_link_is_not_flooded():
    r = run(Link(mbit(2), ms(20)), 12, page=Page(stalls=[(at(5), at(7))]))
    assert len([when for when, _, _ in r.sent if at(5.2) <= when < at(7)]) <= 5
    assert r.latency(7.2, 9) <= 0.4
    assert r.fps(7.2, 9) >= 8


def test_a_scene_that_becomes_costly_is_late_only_for_a_moment():
    camera = Camera(nbytes=60_000)
    r = run(Link(mbit(10), ms(20)), 6, camera=camera)
    camera.nbytes = 240_000
    r.until(14)
    assert r.latency(6, 8, share=1) <= 1
    assert r.latency(8, 14) <= 0.25
    assert r.fps(8, 14) >= 18


# --- What the user wants --------------------------------------------------------------------------


def test_a_limit_of_frames_is_kept_and_reached():
    r = run(fast_link(), 5, fps_limit=12)
    assert 11 <= r.fps(1, 5) <= 12.5
    assert plans(r.between(1, 5)) == {BEST}


def test_fewer_frames_make_room_for_better_ones():
    slow = run(Link(mbit(10), ms(20)), 8, fps_limit=5)
    assert min(plan.quality for plan in plans(slow.between(4, 8))) >= 75
    assert 4.5 <= slow.fps(4, 8) <= 5.5
    few = run(Link(mbit(10), ms(20)), 8, camera=Camera(5))
    assert min(plan.quality for plan in plans(few.between(4, 8))) >= 75


def test_the_source_is_taken_for_a_usual_one_where_its_rate_is_not_known():
    pacer = Pacer()
    pacer.set_source_fps(2)
    pacer.set_source_fps(None)
    r = Run(pacer, [(Link(mbit(10), ms(20)), Page())]).until(6)
    assert r.fps(3, 6) >= 18


@pytest.mark.parametrize("capacity", [100, 2])
def test_a_quality_that_was_asked_for_is_kept(capacity):
    r = run(Link(mbit(capacity), ms(5)), 8, quality=90)
    assert {plan.quality for plan in plans(r.page.got)} == {90}
    assert (capacity == 100) == (Plan(90, 1.0) in plans(r.between(4, 8)))
    assert r.latency(4, 8) <= 0.5
    assert r.fps(4, 8) >= 3


# --- Several views, and none ----------------------------------------------------------------------


def two(slow_page, link=None):
    pacer = Pacer()
    slow = (link or Link(mbit(2), ms(20)), slow_page)
    return Run(pacer, [(fast_link(), Page(VIEW)), slow])


def test_the_slowest_view_decides():
    slow = Page(OTHER)
    r = two(slow).until(10)
    assert r.latency(4, 10, page=slow) <= 0.4
    assert 8 <= r.fps(4, 10) <= 20
    assert plans(r.between(4, 10)) == {CHEAPEST}


def test_when_the_slowest_leaves_the_others_get_everything():
    r = two(Page(OTHER))
    r.do(at(5), r.pacer.leave, OTHER)
    r.until(8)
    assert plans(r.between(6, 8)) == {BEST}
    assert r.fps(6, 8) >= 29


def test_a_view_that_is_out_of_sight_costs_nothing_until_it_is_back():
    slow = Page(OTHER)
    r = two(slow)
    r.tell(4, r.pacer.set_visible, OTHER, False)
    r.until(6)
    assert plans(r.between(5, 6)) == {BEST}
    assert r.fps(5, 6) >= 29
    r.tell(6, r.pacer.set_visible, OTHER, True)
    r.until(14)
    assert plans(r.between(7, 14)) == {CHEAPEST}


def test_a_view_that_lapsed_no_longer_counts_until_it_speaks():
    page = Page(OTHER, stalls=[(at(4), at(12))])
    r = two(page, fast_link())
    r.until(12)
    assert r.fps(5, 7) <= 5
    assert r.fps(8, 12) >= 29
    r.until(16)
    assert r.fps(13, 16) >= 29
    page_died = Page(OTHER, stalls=[(at(14), at(99))])
    again = two(page_died, fast_link()).until(20)
    assert again.fps(18, 20) >= 29


def test_a_newcomer_starts_with_care_and_lets_the_others_go_on():
    late = Page(OTHER, joins=at(4))
    r = two(late, Link(mbit(10), ms(20))).until(10)
    assert r.first(late) <= 4.3
    assert r.gap(4, 10) <= 0.5
    assert r.latency(5, 10, page=late) <= 0.25


def test_nothing_is_sent_where_nobody_looks():
    pacer = Pacer()
    assert not pacer.watched
    assert pacer.next_send_us(0) is None
    pacer.join(VIEW, 0)
    assert pacer.watched
    assert pacer.next_send_us(0) <= 0
    pacer.set_visible(VIEW, on=False, now_us=1)
    assert not pacer.watched
    assert pacer.next_send_us(2) is None
    pacer.set_visible(VIEW, on=True, now_us=3)
    assert pacer.next_send_us(4) <= 4
    pacer.leave(VIEW)
    assert pacer.next_send_us(5) is None
    pacer.set_visible(VIEW, on=True, now_us=6)  # nobody by this name
    assert not pacer.watched


def test_a_page_that_died_is_asked_a_few_times_and_then_left_alone_until_it_says_hello():
    r = run(fast_link(), 60, page=Page(stalls=[(at(5), at(999))]))
    sent = [when for when, _, _ in r.sent if when >= at(5)]
    assert len(sent) <= 20
    assert sent[-1] <= at(10)
    assert not r.pacer.watched
    assert r.pacer.next_send_us(at(60)) is None
    r.pacer.join(VIEW, at(61))
    assert r.pacer.watched
    assert r.pacer.next_send_us(at(61)) <= at(61)


def test_views_are_limited_and_those_that_lapsed_make_way():
    pacer = Pacer()
    for number in range(100):
        pacer.join(f"{number:016}", 0)
    assert len(pacer._accounts) == 64
    pacer.sent(1, 1000, 0, asked=True)
    pacer.join(VIEW, at(1))
    assert VIEW not in pacer._accounts
    pacer.join(VIEW, at(60))
    assert list(pacer._accounts) == [VIEW]


# --- While nothing can be heard -------------------------------------------------------------------


def test_a_link_that_is_known_to_be_fast_goes_on_as_before_without_being_heard():
    r = run(fast_link(), 12, camera=Camera(nbytes=160_000), deaf=[(at(4), at(10))])
    assert r.fps(4, 12) >= 29
    assert plans(r.between(4, 12)) == {BEST}
    assert r.acks_per_s(4.5, 9.5) <= 1.5
    assert r.acks_per_s(10, 12) >= 4


@pytest.mark.parametrize("capacity", [10, 2, 0.5])
def test_a_slow_link_is_not_filled_without_being_heard(capacity):
    r = run(Link(mbit(capacity), ms(20)), 20, deaf=[(at(5), at(15))])
    assert sum(item.nbytes for item in r.between(6, 15)) / 9 <= 0.75 * mbit(capacity)
    assert r.latency(6, 15) <= 0.45
    assert r.fps(5, 15) >= 2
    assert r.fps(16, 20) >= 0.9 * r.fps(2, 5)
    assert r.latency(15, 20) <= 0.5


def test_an_unknown_link_gets_little_until_something_is_heard():
    r = run(fast_link(), 10, deaf=[(1, at(6))])
    assert 9 <= r.fps(1, 6) <= 10.5
    assert sum(item.nbytes for item in r.between(0, 6)) / 6 <= 200_000
    assert plans(r.between(6.7, 10)) == {BEST}
    assert r.fps(6.7, 10) >= 29


def test_no_view_lapses_while_nothing_can_be_heard():
    pacer = Pacer()
    pacer.join(VIEW, 0)
    pacer.set_deaf(True, 0)
    pacer.set_deaf(True, 1)
    assert pacer.deaf
    for n in range(1, 2000):
        pacer.sent(n, 1000, at(n), asked=pacer.wants_ack(at(n)))
        assert pacer.watched
        assert pacer.next_send_us(at(n)) is not None
    pacer.set_deaf(False, at(2000))
    assert not pacer.deaf
    assert pacer.watched
    assert pacer.next_send_us(at(2000)) <= at(2000)


def test_short_spells_of_deafness_leave_the_pacing_as_it_was():
    spells = [(at(4 + n / 5), at(4.1 + n / 5)) for n in range(10)]
    r = run(fast_link(), 8, deaf=spells)
    assert r.fps(4, 8) >= 29
    assert plans(r.between(4, 8)) == {BEST}


# --- Pages that mean harm -------------------------------------------------------------------------


def heard_state(pacer):
    budget = pacer._accounts[VIEW].budget
    return budget.bytes_per_s, budget.way_us, pacer._accounts[VIEW].in_flight, pacer.plan


@pytest.mark.parametrize(
    "said",
    [
        ack(0),
        ack(9),  # never sent
        ack(2**53),
        ack(1),  # said before
        ack(3, held_us=2**53),  # received before it was sent
        ack(3, view="stranger" * 2),
    ],
)
def test_acknowledgements_that_make_no_sense_change_nothing(said):
    pacer = Pacer()
    pacer.join(VIEW, 0)
    for n in (1, 2, 3):
        pacer.sent(n, 15_000, n * 10_000, asked=True)
    pacer.heard(VIEW, ack(1), 40_000)
    before = heard_state(pacer)
    pacer.heard(said.view, said, 50_000)
    assert heard_state(pacer) == before


def test_a_thousand_acknowledgements_at_once_do_no_harm():
    r = run(fast_link(), 3, camera=Camera(nbytes=160_000))
    last = len(r.sent)
    for n in [*range(last + 5), *range(last, 0, -1)] * 5:
        r.pacer.heard(VIEW, ack(n, bytes=2**53, span_us=0), int(r.now))
    assert r.pacer.plan == BEST
    r.until(6)
    assert r.fps(3, 6) >= 29
    assert r.acks_per_s(3, 6) <= 6


def test_clocks_of_browsers_may_be_coarse():
    pacer = Pacer()
    pacer.join(VIEW, 0)
    pacer.sent(1, 15_000, 0, asked=True)
    pacer.heard(VIEW, ack(1, held_us=60_000), 10_000)
    assert pacer.rtt_us == 0
    assert pacer.next_send_us(100_000) <= 100_000


@st.composite
def deeds(draw):
    view = st.sampled_from([VIEW, OTHER])
    number = st.integers(0, 2**53) | st.integers(0, 100)
    said = st.builds(
        Ack, view=view, n=st.integers(0, 60) | number, painted=number, missed=number,
        held_us=number, bytes=number, span_us=number, decode_us=number,
    )  # fmt: skip
    deed = st.one_of(
        st.tuples(st.just("sent"), st.integers(1, 3_000_000), st.booleans()),
        st.tuples(st.just("heard"), said),
        st.tuples(st.just("join"), view),
        st.tuples(st.just("leave"), view),
        st.tuples(st.just("visible"), view, st.booleans()),
        st.tuples(st.just("deaf"), st.booleans()),
        st.tuples(st.just("fps"), st.none() | st.floats(0, 1000)),
    )
    return draw(st.lists(st.tuples(st.sampled_from([0, 1000, 33_000, 10**6]), deed), max_size=60))


def do(pacer, n, now, deed, *values):
    """Do a deed, and return the number of the last message."""
    match deed:
        case "sent":
            pacer.sent(n + 1, values[0], now, asked=values[1], plan=pacer.plan)
            return n + 1
        case "heard":
            pacer.heard(values[0].view, values[0], now)
        case "leave":
            pacer.leave(*values)
        case "fps":
            pacer.set_source_fps(*values)
        case _:
            name = {"join": "join", "visible": "set_visible", "deaf": "set_deaf"}[deed]
            getattr(pacer, name)(*values, now)
    return n


@settings(max_examples=60)
@given(deeds())
def test_whatever_happens_a_message_may_go_in_time_or_nobody_looks(things):
    pacer = Pacer()
    n = now = 0
    for passed, (deed, *values) in things:
        now += passed
        n = do(pacer, n, now, deed, *values)
    pacer.wants_ack(now)
    assert 1 <= pacer.plan.quality <= 100
    for _ in range(10):
        when = pacer.next_send_us(now)
        assert (when is None) == (not pacer.watched)
        if when is None or when <= now:
            break
        assert when <= now + at(60 * 60)
        now = when
    else:
        pytest.fail("it puts off and puts off")


# --- The read-out and the parts -------------------------------------------------------------------


def test_nothing_is_told_before_it_is_known():
    pacer = Pacer()
    assert pacer.rtt_us is pacer.delay_us is pacer.bytes_per_s is pacer.fps is None
    pacer.join(VIEW, 0)
    assert pacer.rtt_us is pacer.delay_us is pacer.bytes_per_s is pacer.fps is None


def test_the_read_out_tells_what_is():
    r = run(fast_link(), 5, camera=Camera(nbytes=160_000))
    assert r.pacer.fps == pytest.approx(30, abs=1)
    assert r.pacer.bytes_per_s == pytest.approx(30 * 160_000, rel=0.2)
    assert r.pacer.rtt_us == pytest.approx(15_000, abs=5000)
    assert r.pacer.delay_us <= 10_000
    slow = run(Link(mbit(10), ms(20)), 5)
    assert slow.pacer.delay_us <= 150_000
    slow.pacer.next_send_us(at(7))
    assert slow.pacer.fps == 0


def test_stills_teach_nothing_about_pictures():
    pacer = Pacer()
    pacer.join(VIEW, 0)
    pacer.sent(1, 20_000, 0, asked=True, plan=pacer.plan)
    pacer.heard(VIEW, ack(1), 3_000)
    pacer.sent(2, 5_000_000, 200_000, asked=True)
    assert pacer.plan != CHEAPEST
    assert pacer.next_send_us(200_000) > 400_000


def test_a_still_may_have_what_goes_through_in_a_second():
    pacer = Pacer()
    assert pacer.still_bytes == 0
    r = run(Link(mbit(10), ms(20)), 6)
    assert 0.7 * mbit(10) <= r.pacer.still_bytes <= 1.4 * mbit(10)


def test_what_waited_to_be_told_does_not_turn_time_back():
    pacer = Pacer()
    pacer.join(VIEW, 0)
    pacer.sent(1, 15_000, 0, asked=True)
    pacer.next_send_us(200_000)
    pacer.heard(VIEW, ack(1), 50_000)
    assert pacer.rtt_us == 50_000
    assert pacer.next_send_us(200_000) <= 200_000


def test_a_ladder_goes_down_at_once_and_up_with_room():
    ladder = Ladder(None)
    assert ladder.plan == CHEAPEST
    ladder.choose(1e9)
    assert ladder.plan == CHEAPEST  # nothing is known of what pictures cost
    ladder.learn(BEST, 100_000)
    ladder.choose(110_000)
    assert Plan(70, 1.0) <= ladder.plan < BEST
    ladder.choose(120_000)
    assert ladder.plan == BEST
    assert ladder.is_best
    ladder.choose(106_000)
    assert ladder.plan == BEST  # what fits is kept
    ladder.choose(100_000)
    assert ladder.plan < BEST
    ladder.choose(1)
    assert ladder.plan == CHEAPEST


def test_quality_goes_before_size():
    ladder = Ladder(None)
    ladder.learn(BEST, 100_000)
    seen = []
    for nbytes in range(150_000, 1_000, -1_000):
        ladder.choose(nbytes)
        seen.append(ladder.plan)
    assert seen == sorted(seen, reverse=True)
    assert all(plan.scale == 1.0 for plan in seen if plan.quality > 40)
    assert {BEST, CHEAPEST, Plan(40, 1.0)} <= set(seen)


def test_a_ladder_believes_growth_at_once():
    ladder = Ladder(None)
    ladder.learn(BEST, 10_000)
    ladder.choose(50_000)
    assert ladder.plan == BEST
    ladder.learn(BEST, 100_000)
    ladder.choose(50_000)
    assert ladder.plan.quality < 60


def test_a_throttle_holds_rates_on_average():
    throttle = Throttle(100_000, 20)
    now, sent = at(1), []
    while now < at(6):
        now = max(now, throttle.next_us(now))
        sent.append(now)
        throttle.sent(1_000 if len(sent) % 2 else 9_000, now)
        now += 1
    assert len(sent) == pytest.approx(100, abs=3)
    throttle.set(100_000, None, now)
    throttle.sent(1_000_000, now)
    assert throttle.next_us(now) == pytest.approx(now + at(10), abs=at(0.2))
    throttle.set(10_000_000, None, now)
    assert throttle.next_us(now) == pytest.approx(now + at(0.1), abs=at(0.05))


def test_a_meter_forgets_after_a_second():
    meter = Meter()
    meter.sent(10, 0)
    meter.sent(20, at(0.5))
    assert (meter.messages, meter.nbytes) == (2, 30)
    meter.tick(at(1.2))
    assert (meter.messages, meter.nbytes) == (1, 20)
    meter.tick(at(3))
    assert (meter.messages, meter.nbytes) == (0, 0)
