"""Waking never waits, whatever the one to be woken does."""

import errno
import fcntl
import os
import select
import signal
import socket

import pytest

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.wakeups import WakeReceiver, wake_each, wake_pair


@pytest.fixture
def pair():
    sender, fd = wake_pair()
    receiver = WakeReceiver.adopt(fd)
    yield sender, receiver
    sender.close()
    receiver.close()


@pytest.fixture
def watchdog():
    """End the test, rather than the whole run, where a call waits that must not."""

    def give_up(number, frame):
        raise TimeoutError("a call waited")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def is_awake(receiver):
    return bool(select.select([receiver], [], [], 0)[0])


def set_blocking(number):
    flags = fcntl.fcntl(number, fcntl.F_GETFL)
    fcntl.fcntl(number, fcntl.F_SETFL, flags & ~os.O_NONBLOCK)


def test_a_wake_up_is_seen_until_it_is_drained(pair):
    sender, receiver = pair
    assert not is_awake(receiver)
    sender.wake()
    sender.wake()
    assert is_awake(receiver)
    assert receiver.drain()
    assert not is_awake(receiver)
    assert receiver.drain()
    sender.wake()
    assert is_awake(receiver)


def test_a_full_queue_is_awake_and_waking_it_does_not_wait(pair, watchdog):
    sender, receiver = pair
    for _ in range(100_000):  # more than any queue holds
        sender.wake()
    assert is_awake(receiver)
    while is_awake(receiver):
        receiver.drain()
    sender.wake()
    assert is_awake(receiver)


def test_waking_nobody_is_harmless(pair):
    sender, receiver = pair
    receiver.close()
    receiver.close()
    sender.wake()


def test_a_sender_that_is_gone_is_seen(pair):
    sender, receiver = pair
    sender.wake()
    sender.close()
    sender.close()
    assert is_awake(receiver)
    assert receiver.drain()
    for _ in range(2):
        assert is_awake(receiver), "and so it stays, and nobody should poll it any more"
        assert not receiver.drain()
    sender.wake()  # harmless


def test_no_failure_of_a_wake_up_comes_out(pair):
    sender, receiver = pair

    class Poor:
        """A socket for which the kernel has no memory."""

        def send(self, *args):
            raise OSError(errno.ENOBUFS, "No buffer space available")

    real, sender._sock = sender._sock, Poor()
    sender.wake()
    sender._sock = real
    assert not is_awake(receiver)


def test_one_that_cannot_be_woken_keeps_no_other_asleep(pair):
    sender, receiver = pair
    gone, fd = wake_pair()
    fd.close()
    closed, fd = wake_pair()
    closed.close()
    fd.close()
    wake_each((gone, closed, sender))
    assert is_awake(receiver)
    gone.close()


def test_a_reader_cannot_make_the_sender_wait(pair, watchdog):
    sender, receiver = pair
    set_blocking(receiver.fileno())  # what a hostile one would do
    for _ in range(100_000):
        sender.wake()
    assert not os.get_blocking(sender.fileno())


def test_why_it_is_no_eventfd():
    """Both ends of an eventfd are one description: a reader's flags are the writer's."""
    writer = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
    reader = os.dup(writer)  # as it arrives when sent to another process
    try:
        assert not os.get_blocking(writer)
        set_blocking(reader)
        assert os.get_blocking(writer), "and with a full counter its next write waits for ever"
    finally:
        os.close(writer)
        os.close(reader)


def test_neither_end_is_inherited_by_other_programs(pair):
    sender, receiver = pair
    assert not os.get_inheritable(sender.fileno())
    assert not os.get_inheritable(receiver.fileno())


@pytest.mark.parametrize("kind", ["pipe", "file", "packets"])
def test_something_else_than_a_stream_socket_is_refused_and_closed(kind, tmp_path):
    if kind == "pipe":
        number, other = os.pipe()
        os.close(other)
    elif kind == "file":
        number = os.open(tmp_path / "file", os.O_CREAT | os.O_RDWR)
    else:
        number = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET).detach()
    fd = OwnedFd(number)
    with pytest.raises(OSError, match="socket"):
        WakeReceiver.adopt(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(number)
    fd.close()


def test_a_forked_child_has_neither_end(pair):
    sender, receiver = pair
    pid = os.fork()
    if not pid:
        os._exit(not (sender.fileno() == receiver.fileno() == -1))
    assert os.waitpid(pid, 0)[1] == 0
    sender.wake()
    assert is_awake(receiver)


def test_an_interrupt_while_it_is_taken_over_closes_nothing_twice(monkeypatch):
    theirs, ours = socket.socketpair()
    fd = OwnedFd(ours.detach())
    make = socket.socket

    def interrupted(fileno):
        make(fileno=fileno).close()  # as it is when nobody has it yet
        raise KeyboardInterrupt

    monkeypatch.setattr(socket, "socket", interrupted)
    with theirs, pytest.raises(KeyboardInterrupt):
        WakeReceiver.adopt(fd)
