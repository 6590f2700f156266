"""The helper for other processes keeps its word, also when they do not."""

import os
import signal
import sys

import pytest

from tests.helpers.children import child

pytestmark = pytest.mark.process


def echo(link, word, *, times):
    print("not a message")  # noqa: T201 (goes to stderr, not among the messages)
    for _ in range(times):
        link.say("echo", word=word, **link.hear("go"))
    link.wait()


def fail(link):
    sys.exit("out of paint")


def hang(link):
    link.say("pid", pid=os.getpid())
    signal.pause()


def test_messages_go_both_ways():
    with child(echo, "hello", times=2) as it:
        for n in range(2):
            it.send("go", n=n)
            assert it.expect("echo") == {"word": "hello", "n": n}
    assert not it.alive


def test_a_child_that_fails_says_why():
    with pytest.raises(AssertionError, match="status 1") as caught, child(fail):
        pass
    assert "out of paint" in caught.value.__notes__[0]


def test_a_silent_child_is_timed_and_killed():
    with pytest.raises(TimeoutError, match="said nothing"), child(hang) as it:
        it.expect("pid")
        it.expect("more", seconds=0.1)
    assert not it.alive


def test_an_ended_child_is_not_waited_for():
    with pytest.raises(AssertionError, match="ended instead of saying"), child(fail) as it:
        it.expect("ready")


def test_a_killed_child_ended_as_it_should():
    with child(hang) as it:
        assert it.expect("pid") == {"pid": it.pid}
        it.kill()
    assert not it.alive
