"""``CUDA_VISIBLE_DEVICES``, with the answers of a driver: ``tests/gpu/test_devices.py`` asks it."""

import pytest

from cuframes_nb._core.visible_devices import hiding, read

A = "GPU-aabb0000-0001-0000-0000-000000000000"
B = "GPU-aacc0000-0002-0000-0000-000000000000"
C = "GPU-01230000-0003-0000-0000-000000000000"
PART = "MIG-eeee0000-0004-0000-0000-000000000000"
ALL = [A, B, C, PART]


@pytest.mark.parametrize(
    ("value", "order", "ended_by"),
    [
        (None, (0, 1, 2, 3), None),
        ("", (), None),
        ("0", (0,), None),
        ("2,0", (2, 0), None),
        ("0,-1,1", (0,), "-1"),
        ("9,0", (), "9"),
        ("0,", (0,), ""),
        (",0", (), ""),
        (" 1 , 0", (1, 0), None),
        ("+1,00,-0", (1, 0, 0), None),
        ("1abc", (1,), None),
        ("0;1", (0,), None),
        ("0.5", (0,), None),
        (A, (0,), None),
        ("GPU-aab", (0,), None),
        ("GPU-AACC0000-0002", (1,), None),
        ("GPU-aacc00000002", (1,), None),  # dashes do not count
        ("GPU-aaccx", (), "GPU-aaccx"),
        (A + "x", (0,), None),
        (A + " ", (0,), None),
        ("GPU-aa", (), "GPU-aa"),  # fits two
        ("GPU-", (), "GPU-"),
        (" " + A, (), " " + A),
        (A.lower(), (), A.lower()),
        (A[4:], (), A[4:]),
        ("MIG-eeee", (3,), None),
        ("MIG-aabb", (0,), None),  # the word before the digits does not count
        (f"MIG-{A}/0/0", (), f"MIG-{A}/0/0"),
        ("3", (), "3"),  # instances have no ordinals
        ("none", (), "none"),
        ("0,1,nothing,2", (0, 1), "nothing"),
        ("0,GPU-aacc,1", (0,), "GPU-aacc"),  # the first entry says what all are
        ("GPU-aacc,0,GPU-aabb", (1,), "0"),
        ("0x1", (0,), None),
    ],
)
def test_it_is_read_as_the_driver_reads_it(value, order, ended_by):
    reading = read(value, ALL)
    assert (reading.order, reading.ended_by) == (order, ended_by)


@pytest.mark.parametrize("value", ["0,0", f"{A},GPU-aab", "0,1,0", f"{A},{A}x"])
def test_a_gpu_that_is_named_twice_is_noticed(value):
    assert read(value, ALL).repeats
    assert hiding(value, ALL) == f"CUDA_VISIBLE_DEVICES={value!r}, which names a GPU twice"


def test_what_hides_is_told_with_the_entry_that_ends_the_list():
    assert hiding(None, ALL) == ""
    assert hiding("", ALL) == "CUDA_VISIBLE_DEVICES=''"
    assert hiding("0,1", ALL) == "CUDA_VISIBLE_DEVICES='0,1'"
    assert hiding("0,7,1", ALL) == (
        "CUDA_VISIBLE_DEVICES='0,7,1', which ends at '7': that names no GPU here"
    )
    # Which entries are wrong is not known where nobody tells of the GPUs.
    assert hiding("0,7,1", []) == "CUDA_VISIBLE_DEVICES='0,7,1'"
