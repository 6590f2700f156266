"""When the next frame is expected."""

from cuframes_nb._core.cadence import Cadence

MS = 1_000_000


def noted(*moments, spin_ns=MS):
    cadence = Cadence(spin_ns)
    for seq, at in moments:
        cadence.note(seq, at)
    return cadence


def test_without_a_rhythm_nothing_is_looked_out_for():
    assert Cadence(MS).plan(5) == (0.0, 0.0)
    assert noted((1, 10 * MS)).plan(11 * MS) == (0.0, 0.0)


def test_it_sleeps_until_shortly_before_and_looks_until_shortly_after():
    sleep, spin = noted((1, 0), (2, 10 * MS)).plan(12 * MS)
    assert (sleep, spin) == (0.007, 0.002)


def test_close_to_the_moment_it_does_not_sleep():
    sleep, spin = noted((1, 0), (2, 10 * MS)).plan(20 * MS)
    assert (sleep, spin) == (0.0, 0.001)


def test_an_overdue_frame_is_waited_for_asleep():
    assert noted((1, 0), (2, 10 * MS)).plan(22 * MS) == (0.0, 0.0)


def test_frames_that_were_skipped_count():
    assert noted((1, 0), (4, 30 * MS)).plan(30 * MS) == (0.009, 0.002)


def test_another_publisher_has_its_own_rhythm():
    assert noted((1, 0), (9, 80 * MS), (1, 90 * MS)).plan(90 * MS) == (0.0, 0.0)


def test_a_change_of_rate_is_followed():
    cadence = noted(*((seq, seq * 10 * MS) for seq in range(1, 20)))
    for step in range(1, 60):
        cadence.note(19 + step, 190 * MS + step * 4 * MS)
    sleep, _ = cadence.plan(190 * MS + 59 * 4 * MS)
    assert 0.0025 < sleep < 0.0035


def test_a_clock_that_stands_still_harms_nothing():
    assert noted((1, 5), (2, 5), (3, 5)).plan(5) == (0.0, 0.0)
