"""Who is at the other end, by the kernel's word."""

import os
import socket
import struct
from pathlib import Path

import pytest

from cuframes_nb._os.credentials import (
    group_id,
    group_name,
    peer_credentials,
    user_name,
)

as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="takes on another user and groups: needs root"
)


@pytest.fixture
def listener(runtime_dir):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(runtime_dir / "x"))
        sock.listen()
        yield sock


def connect_as(listener, uid, gid, groups):
    """Return the child's pid, and what the kernel says of a child that connects as somebody."""
    path = Path(listener.getsockname())
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            path.chmod(0o666)
            path.parent.chmod(0o755)
            os.setgroups(groups)
            os.setegid(gid)
            os.seteuid(uid)
            client.connect(str(path))
            client.recv(1)  # until the parent has looked
            status = 0
        finally:
            os._exit(status)
    client.close()
    accepted, _ = listener.accept()
    with accepted:
        found = peer_credentials(accepted)
    assert os.waitpid(pid, 0)[1] == 0
    return pid, found


def test_a_pair_in_one_process_is_oneself():
    a, b = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with a, b:
        found = peer_credentials(a)
    assert (found.pid, found.uid) == (os.getpid(), os.geteuid())
    assert found.gids == {os.getegid(), *os.getgroups()}


@as_root
def test_the_other_ends_user_and_all_of_its_groups_are_told(listener):
    pid, found = connect_as(listener, 65534, 12345, [23456, 34567])
    assert found == (pid, 65534, frozenset({12345, 23456, 34567}))


@as_root
def test_even_a_member_of_very_many_groups_is_seen_whole(listener):
    many = list(range(100_000, 101_000))
    _, found = connect_as(listener, 65534, 12345, many)
    assert found.gids == {12345, *many}


def test_a_kernel_that_does_not_tell_leaves_the_main_group():
    class Silent:
        """A socket whose descriptor answers nothing."""

        def fileno(self):
            return -1

        def getsockopt(self, *args):
            return struct.pack("iII", 7, 1000, 100)

    assert peer_credentials(Silent()) == (7, 1000, frozenset({100}))


def test_users_and_groups_are_named_where_they_have_a_name():
    assert user_name(0) == "root (0)"
    assert group_name(0) == "root (0)"
    assert user_name(2**31 - 5) == group_name(2**31 - 5) == str(2**31 - 5)


def test_a_group_is_given_by_name_or_number():
    assert group_id("root") == group_id(0) == 0
    with pytest.raises(LookupError):
        group_id("no such group")
