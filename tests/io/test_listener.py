"""The socket is the claim on a name: one live owner, and nothing to clear up by hand."""

import os
import socket
import stat
import threading
import time

import pytest

from cuframes_nb._os import listening
from cuframes_nb._os.listener import Listener
from cuframes_nb._os.packets import PacketSocket
from cuframes_nb.errors import AccessDeniedError, StreamExistsError

OTHER_UID, OTHER_GID = 65534, 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes on another user: needs root")


@pytest.fixture
def path(runtime_dir):
    return runtime_dir / "cam1.sock"


@pytest.fixture
def listener():
    it = Listener("cam1")
    yield it
    it.close()


def soon():
    return time.monotonic() + 20


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def leave_socket(path, kind=socket.SOCK_SEQPACKET):
    """Leave a socket behind as a process does that is killed."""
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.bind(str(path))
        if kind != socket.SOCK_DGRAM:
            sock.listen()


def test_connections_are_accepted_in_order_and_nobody_is_waited_for(listener, path):
    assert listener.accept() is None
    clients = [PacketSocket.connect(path, soon()) for _ in range(2)]
    clients[0].send(b"first")
    accepted = [listener.accept(), listener.accept()]
    assert listener.accept() is None
    assert accepted[0].receive_within(soon()).data == b"first"
    for sock in (*clients, *accepted):
        sock.close()


def test_who_left_the_queue_again_is_at_its_end(listener, path):
    PacketSocket.connect(path, soon()).close()
    accepted = listener.accept()
    assert accepted.receive_within(soon()) is None
    accepted.close()


def test_a_socket_is_its_owners_alone(listener, path):
    assert listener.path == path
    assert mode(path) == 0o600
    assert mode(path.parent) == 0o700


def test_so_it_is_from_the_first_and_whatever_the_umask(path, monkeypatch):
    seen = []
    monkeypatch.setattr(Listener, "_widen", lambda self: seen.append(mode(self.path)))
    path.parent.chmod(0o750)
    before = os.umask(0)
    try:
        Listener("cam1", path.parent.stat().st_gid).close()
        assert os.umask(0) == 0
    finally:
        os.umask(before)
    assert seen == [0o600]


@as_root
def test_a_group_may_connect(path):
    listener = Listener("cam1", OTHER_GID)
    assert (mode(path), path.lstat().st_gid) == (0o660, OTHER_GID)
    assert (mode(path.parent), path.parent.stat().st_gid) == (0o750, OTHER_GID)
    listener.close()


@as_root
def test_a_group_that_one_is_no_member_of_is_refused_and_nothing_remains(path):
    os.chown(path.parent, OTHER_UID, OTHER_GID)
    path.parent.chmod(0o750)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setgroups([])
            os.setegid(OTHER_UID)
            os.seteuid(OTHER_UID)
            try:
                Listener("cam1", OTHER_GID)
            except AccessDeniedError as error:
                status = 0 if "only a member of that group" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert not path.exists()


# --- What is there already ------------------------------------------------------------------------


def test_a_dead_publishers_socket_is_taken_over(path):
    leave_socket(path)
    listener = Listener("cam1")
    PacketSocket.connect(path, soon()).close()
    listener.close()
    assert not path.exists()


def test_a_live_publisher_keeps_its_name(listener, path):
    with pytest.raises(StreamExistsError, match="is being published already"):
        Listener("cam1")
    listener.accept().close()  # the look was a connection, which ended
    PacketSocket.connect(path, soon()).close()


def test_one_whose_queue_is_full_is_alive(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(path))
        sock.listen(0)
        waiting = []
        with pytest.raises(BlockingIOError):
            while True:
                waiting.append(PacketSocket.connect(path, time.monotonic()))
        with pytest.raises(StreamExistsError):
            Listener("cam1")
        for client in waiting:
            client.close()


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_DGRAM])
def test_another_programs_live_socket_is_left_alone(path, kind):
    with socket.socket(socket.AF_UNIX, kind) as sock:
        sock.bind(str(path))
        if kind == socket.SOCK_STREAM:
            sock.listen()
        with pytest.raises(StreamExistsError):
            Listener("cam1")
        assert path.is_socket()


@pytest.mark.parametrize("what", ["file", "directory", "link", "link to a socket"])
def test_what_is_no_socket_is_left_alone(path, runtime_dir, what):
    if what == "file":
        path.write_text("mine")
    elif what == "directory":
        path.mkdir()
    else:
        leave_socket(runtime_dir / "elsewhere")
        path.symlink_to(runtime_dir / ("elsewhere" if what == "link to a socket" else "nowhere"))
    with pytest.raises(StreamExistsError, match="is in the way"):
        Listener("cam1")
    assert path.lstat()


@as_root
def test_somebody_elses_socket_is_left_alone(path):
    leave_socket(path)
    os.chown(path, OTHER_UID, -1)
    with pytest.raises(AccessDeniedError, match=f"belongs to user .*{OTHER_UID}"):
        Listener("cam1")
    assert path.exists()


def test_of_many_that_start_at_once_one_wins(path):
    leave_socket(path)  # so that all of them want to take it over
    barrier = threading.Barrier(8)
    won, lost = [], []

    def start():
        barrier.wait()
        try:
            won.append(Listener("cam1"))
        except StreamExistsError:
            lost.append(1)

    threads = [threading.Thread(target=start) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(won), len(lost)) == (1, 7)
    PacketSocket.connect(path, soon()).close()
    won[0].close()
    assert not path.exists()


# --- The end --------------------------------------------------------------------------------------


@pytest.fixture
def late(path, monkeypatch):
    """Another comes between the look and the bind, without the lock."""
    monkeypatch.setattr(listening, "_make_room", lambda *_: leave_socket(path))


def test_who_comes_too_late_is_told_so(path, late):
    with pytest.raises(StreamExistsError, match="published already"):
        Listener("cam1")


def test_closing_is_idempotent_and_frees_the_name(listener, path):
    listener.close()
    assert not path.exists()
    listener.close()
    again = Listener("cam1")
    listener.close()
    assert path.exists()
    again.close()


def test_closing_removes_no_other_socket_of_that_name(listener, path):
    path.unlink()
    again = Listener("cam1")
    listener.close()
    assert path.exists()
    PacketSocket.connect(path, soon()).close()
    again.close()


def test_closing_without_the_directory_is_no_trouble(listener, path):
    path.unlink()
    listener.close()


def test_a_forked_child_neither_listens_nor_frees_the_name(listener, path):
    pid = os.fork()
    if not pid:
        status = 1
        try:
            listener.close()
            status = listener.fileno() != -1 or not path.exists()
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    PacketSocket.connect(path, soon()).close()
    listener.accept().close()
