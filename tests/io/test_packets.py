"""One packet is one message with its own descriptors, or it is refused and nothing leaks."""

import array
import contextlib
import os
import resource
import socket
import struct
import time
from pathlib import Path

import pytest

from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb._os.packets import MAX_FDS, MAX_PACKET, Packet, PacketSocket
from cuframes_nb.errors import RemoteProtocolError, StreamNotFoundError


@pytest.fixture
def pair():
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    a, b = map(PacketSocket, ends)
    yield a, b
    a.close()
    b.close()


@pytest.fixture
def raw():
    """Return an end that may do anything, and ours."""
    theirs, ours = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    it = PacketSocket(ours)
    with theirs:
        yield theirs, it
    it.close()


@contextlib.contextmanager
def null_fds(count):
    fds = [OwnedFd(os.open("/dev/null", os.O_RDONLY)) for _ in range(count)]
    try:
        yield fds
    finally:
        close_all(fds)


@contextlib.contextmanager
def no_descriptor_left():
    """Take every free number below a lowered limit."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    fillers = [os.open("/dev/null", os.O_RDONLY)]
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(fillers) + 8, limits[1]))
        with contextlib.suppress(OSError):
            while True:
                fillers.append(os.open("/dev/null", os.O_RDONLY))
        yield fillers
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for number in fillers:
            os.close(number)


def count_fds():
    return len(list(Path("/proc/self/fd").iterdir()))


def soon():
    return time.monotonic() + 20


# --- What arrives ---------------------------------------------------------------------------------


def test_packets_keep_their_borders(pair):
    a, b = pair
    a.send(b"one")
    a.send(b"second")
    assert b.receive() == Packet(b"one", ())
    assert b.receive() == Packet(b"second", ())
    with pytest.raises(BlockingIOError):
        b.receive()


def test_a_packet_brings_its_own_descriptors(pair):
    a, b = pair
    read, write = map(OwnedFd, os.pipe())
    with read, write:
        a.send(b"plain")
        a.send(b"with", [write])
        assert b.receive().fds == ()
        packet = b.receive()
        (fd,) = packet.fds
        with fd:
            assert fd.fileno() not in {read.fileno(), write.fileno()}
            os.write(fd.fileno(), b"through")
            assert os.read(read.fileno(), 100) == b"through"


def test_the_senders_descriptors_stay_its_own(pair):
    a, _ = pair
    with null_fds(2) as fds:
        a.send(b"x", fds)
        assert not any(fd.closed for fd in fds)


def test_received_descriptors_are_not_inherited_by_other_programs(pair):
    a, b = pair
    with null_fds(1) as (fd,):
        os.set_inheritable(fd.fileno(), True)
        a.send(b"x", [fd])
    packet = b.receive()
    assert [os.get_inheritable(fd.fileno()) for fd in packet.fds] == [False]
    close_all(packet.fds)


def test_the_largest_packet_fits(pair):
    a, b = pair
    with null_fds(1) as (fd,):
        a.send(bytes(MAX_PACKET), [fd] * MAX_FDS)
    packet = b.receive()
    assert (len(packet.data), len(packet.fds)) == (MAX_PACKET, MAX_FDS)
    close_all(packet.fds)


# --- What is refused ------------------------------------------------------------------------------


def test_a_packet_that_is_too_long_is_refused_and_its_descriptors_closed(raw):
    theirs, ours = raw
    with null_fds(1) as (fd,):
        socket.send_fds(theirs, [bytes(MAX_PACKET + 1)], [fd.fileno()] * 3)
    before = count_fds()
    with pytest.raises(RemoteProtocolError, match="too many bytes"):
        ours.receive()
    assert count_fds() == before


@pytest.mark.parametrize("count", [MAX_FDS + 1, 253])
def test_too_many_descriptors_are_refused_and_none_leaks(raw, count):
    theirs, ours = raw
    with null_fds(1) as (fd,):
        socket.send_fds(theirs, [b"x"], [fd.fileno()] * count)
    before = count_fds()
    with pytest.raises(RemoteProtocolError, match="too many descriptors"):
        ours.receive()
    assert count_fds() == before


@pytest.mark.parametrize("free", [0, 2])
def test_running_out_of_descriptors_is_noticed_and_none_leaks(raw, free):
    theirs, ours = raw
    with null_fds(1) as (fd,):
        socket.send_fds(theirs, [b"x"], [fd.fileno()] * 3)
    with no_descriptor_left() as fillers:
        for _ in range(free):
            os.close(fillers.pop())
        with pytest.raises(RemoteProtocolError, match="none is left here"):
            ours.receive()
        given_back = [os.open("/dev/null", os.O_RDONLY) for _ in range(free)]
        with pytest.raises(OSError, match="Too many open files"):
            os.open("/dev/null", os.O_RDONLY)
        fillers.extend(given_back)


def test_an_empty_packet_is_taken_for_the_end_and_its_descriptors_are_closed(raw):
    theirs, ours = raw
    with null_fds(1) as (fd,):
        socket.send_fds(theirs, [b""], [fd.fileno()])
    before = count_fds()
    assert ours.receive() is None
    assert count_fds() == before


def test_other_ancillary_data_is_no_descriptor(raw):
    theirs, ours = raw
    ours._sock.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
    theirs.sendmsg(
        [b"x"],
        [(socket.SOL_SOCKET, socket.SCM_CREDENTIALS,
          struct.pack("iII", os.getpid(), os.getuid(), os.getgid()))],
    )  # fmt: skip
    assert ours.receive() == Packet(b"x", ())


# --- The other side is gone, or slow --------------------------------------------------------------


def test_what_was_sent_before_the_end_is_read_first(pair):
    a, b = pair
    a.send(b"last")
    a.close()
    a.close()
    assert b.receive() == Packet(b"last", ())
    assert b.receive() is None
    assert b.receive() is None


def test_an_end_with_unread_packets_is_a_reset_and_is_an_end(pair):
    a, b = pair
    b.send(b"never read")
    a.close()
    assert b.receive() is None


@pytest.mark.parametrize("unread", [False, True])
def test_sending_to_nobody_raises(pair, unread):
    a, b = pair
    if unread:
        a.send(b"x")
    b.close()
    with pytest.raises((BrokenPipeError, ConnectionResetError)):
        for _ in range(2):
            a.send(b"x")


def test_sending_never_waits(pair):
    a, _ = pair
    with pytest.raises(BlockingIOError):
        while True:
            a.send(bytes(1000))


def test_a_socket_that_was_made_to_block_does_not_either(pair):
    # Whoever shares the description could do that: each call says anew that it will not wait.
    a, b = pair
    a._sock.setblocking(True)
    with pytest.raises(BlockingIOError):
        while True:
            a.send(bytes(1000))
    assert not b._sock.getblocking()


def test_waiting_ends_with_a_packet_the_end_or_the_time(pair):
    a, b = pair
    with pytest.raises(TimeoutError):
        b.receive_within(time.monotonic())
    a.send(b"x")
    assert b.receive_within(soon()) == Packet(b"x", ())
    a.close()
    assert b.receive_within(soon()) is None


def test_a_connection_that_is_shut_down_is_at_its_end_on_both_sides(pair):
    a, b = pair
    a.shut_down()
    a.shut_down()
    assert a.receive() is b.receive() is None
    assert a.fileno() >= 0
    b.close()
    a.close()
    a.shut_down()


def test_a_closed_socket_has_no_number(pair):
    a, _ = pair
    assert a.fileno() >= 0
    a.close()
    assert a.fileno() == -1


# --- Connecting -----------------------------------------------------------------------------------


def test_connecting_to_nobody_raises_at_once(runtime_dir):
    path = runtime_dir / "x.sock"
    with pytest.raises(FileNotFoundError):
        PacketSocket.connect(path, soon())
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(path))
        with pytest.raises(ConnectionRefusedError):
            PacketSocket.connect(path, soon())


def test_connecting_waits_for_a_full_queue_until_the_deadline(runtime_dir):
    path = runtime_dir / "x.sock"
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock,
        contextlib.ExitStack() as stack,
    ):
        sock.bind(str(path))
        sock.listen(0)
        with pytest.raises(BlockingIOError):
            while True:
                stack.callback(PacketSocket.connect(path, time.monotonic()).close)


def test_a_connection_works_and_a_forked_child_has_none(runtime_dir):
    path = runtime_dir / "x.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(path))
        sock.listen()
        ours = PacketSocket.connect(path, soon())
        theirs = PacketSocket(sock.accept()[0])
    assert ours.peer().pid == theirs.peer().pid == os.getpid()
    pid = os.fork()
    if not pid:
        os._exit(ours.fileno() != -1 or theirs.fileno() != -1)
    assert os.waitpid(pid, 0)[1] == 0
    ours.send(b"x")
    assert theirs.receive_within(soon()).data == b"x"
    ours.close()
    assert theirs.receive_within(soon()) is None, "the child kept no copy open"
    theirs.close()


def test_room_for_descriptors_is_what_the_kernel_writes():
    assert socket.CMSG_SPACE(MAX_FDS * array.array("i").itemsize) < 4096


def test_what_was_sent_before_a_close_with_unread_packets_is_received(pair):
    # The kernel tells of the reset first, and once.
    a, b = pair
    b.send(b"not read")
    a.send(b"one")
    a.send(b"two")
    a.close()
    assert [b.receive().data, b.receive().data] == [b"one", b"two"]
    assert b.receive() is None
    assert b.receive() is None


def test_a_reset_and_nothing_else_is_an_end(pair):
    a, b = pair
    b.send(b"not read")
    a.close()
    assert b.receive() is None


def test_another_type_of_socket_is_no_stream(runtime_dir):
    path = runtime_dir / "x.sock"
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.bind(str(path))
        sock.listen()
        with pytest.raises(StreamNotFoundError, match="of another type"):
            PacketSocket.connect(path, soon())
