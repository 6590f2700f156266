"""A stream socket that never blocks, and descriptors that go with bytes of it."""

import os
import socket

import pytest

from cuframes_nb._os.byte_stream import ByteStream
from cuframes_nb._os.fds import OwnedFd


@pytest.fixture
def ends():
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    stream = ByteStream(ours)
    yield stream, theirs
    stream.close()
    theirs.close()


def memfd():
    return OwnedFd(os.memfd_create("x", os.MFD_CLOEXEC))


def test_bytes_come_in_order_however_they_were_written(ends):
    stream, theirs = ends
    for part in (b"one", b"two", b"three"):
        stream.write(part)
    assert stream.unsent
    stream.flush()
    assert not stream.unsent
    assert theirs.recv(100) == b"onetwothree"


def test_a_descriptor_comes_with_its_own_bytes(ends):
    stream, theirs = ends
    fd = memfd()
    inode = os.fstat(fd.fileno()).st_ino
    stream.write(b"before")
    stream.write(b"with", fd)
    stream.write(b"behind")
    stream.flush()
    assert fd.closed
    assert theirs.recv(6) == b"before"
    data, fds, _, _ = socket.recv_fds(theirs, 4, 4)
    assert data == b"with"
    with OwnedFd(*fds) as received:
        assert os.fstat(received.fileno()).st_ino == inode
    assert socket.recv_fds(theirs, 100, 4)[:2] == (b"behind", [])


def test_what_does_not_fit_waits_with_its_descriptor(ends):
    stream, theirs = ends
    first, second = bytes(100_000), b"x" * 100_000
    fd = memfd()
    stream.write(first)
    stream.write(second, fd)
    stream.flush()
    assert stream.unsent
    assert not fd.closed
    got, received = b"", []
    while len(got) < len(first) + len(second):
        data, fds, _, _ = socket.recv_fds(theirs, 50_000, 4)
        assert not fds or b"x" in data  # a read may begin before those, and ends with them
        got += data
        received += fds
        stream.flush()
    assert got == first + second
    assert fd.closed
    assert not stream.unsent
    OwnedFd(*received).close()


def test_what_was_not_sent_is_closed(ends):
    stream, theirs = ends
    waiting, late = memfd(), memfd()
    stream.write(bytes(1_000_000))
    stream.write(b"x", waiting)
    stream.flush()
    theirs.close()
    stream.flush()
    assert waiting.closed
    stream.write(b"x", late)
    stream.close()
    assert late.closed
