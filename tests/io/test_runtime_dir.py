"""Where streams are found, and which places are not to be trusted."""

import os
import socket
import stat
import threading
from pathlib import Path

import pytest

from cuframes_nb._os import runtime_dir as it
from cuframes_nb._os.listener import Listener
from cuframes_nb._os.runtime_dir import (
    candidate_dirs,
    check_key,
    directory_lock,
    find_socket,
    list_sockets,
    publisher_dir,
    socket_path,
)
from cuframes_nb.errors import AccessDeniedError, FrameTimeout, InvalidArgumentError

OTHER_UID, OTHER_GID = 65534, 12345

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="gives files to another user: needs root")


@pytest.fixture
def places(runtime_dir, monkeypatch):
    """Without ``$CUFRAMES_RUNTIME_DIR``: a system directory and an XDG directory of our own."""
    monkeypatch.delenv("CUFRAMES_RUNTIME_DIR")
    monkeypatch.setattr(it, "_SYSTEM_DIR", runtime_dir / "run/cuframes")
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime_dir / "xdg"))
    return runtime_dir


@pytest.fixture
def chosen(runtime_dir, monkeypatch):
    """Name a directory that does not exist yet."""
    path = runtime_dir / "a/b"
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(path))
    return path


def mode(path):
    return stat.S_IMODE(path.lstat().st_mode)


def put_socket(path):
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(path))


# --- Which directory ------------------------------------------------------------------------------


def test_a_named_directory_is_the_only_one(monkeypatch):
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", "/somewhere")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert candidate_dirs() == [Path("/somewhere")]


@pytest.mark.parametrize("empty", [True, False])
def test_without_one_they_are_tried_in_order(monkeypatch, empty):
    monkeypatch.delenv("CUFRAMES_RUNTIME_DIR")
    if empty:
        monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", "")
    last = Path(f"/tmp/cuframes-{os.geteuid()}")
    monkeypatch.setenv("XDG_RUNTIME_DIR", "/run/user/1")
    assert candidate_dirs() == [Path("/run/cuframes"), Path("/run/user/1/cuframes"), last]
    monkeypatch.delenv("XDG_RUNTIME_DIR")
    assert candidate_dirs() == [Path("/run/cuframes"), last]


def test_the_first_that_can_be_used_is_the_publishers(places):
    (places / "xdg").mkdir()
    assert publisher_dir() == places / "xdg/cuframes"
    (places / "run").mkdir()
    assert publisher_dir() == places / "run/cuframes"


def test_without_any_it_is_made_in_tmp(places, monkeypatch):
    last = places / "tmp/cuframes-1"
    monkeypatch.setattr(it, "candidate_dirs", lambda: [places / "no/where", last])
    assert publisher_dir() == last
    assert mode(last) == 0o700


def test_a_directory_that_is_made_is_its_owners_alone(chosen, places):
    (places / "run").mkdir()
    assert mode(publisher_dir()) == 0o700


def test_a_named_directory_is_made_with_its_parents(chosen):
    assert publisher_dir() == chosen
    assert mode(chosen) == 0o700
    assert publisher_dir() == chosen


def test_one_that_cannot_be_made_is_an_error(chosen):
    chosen.parent.write_text("in the way")
    with pytest.raises(AccessDeniedError, match=r"cannot be made.*CUFRAMES_RUNTIME_DIR"):
        publisher_dir()


# --- Which are not to be trusted ------------------------------------------------------------------


def test_one_that_anybody_may_write_to_is_refused(chosen):
    publisher_dir().chmod(0o777)
    with pytest.raises(AccessDeniedError, match=r"mode 0777.*chmod go-w"):
        publisher_dir()


def test_one_like_tmp_is_accepted(chosen):
    publisher_dir().chmod(0o1777)
    assert publisher_dir() == chosen


def test_a_link_is_not_followed(chosen, runtime_dir):
    (runtime_dir / "real").mkdir(mode=0o700)
    chosen.parent.mkdir()
    chosen.symlink_to(runtime_dir / "real")
    with pytest.raises(AccessDeniedError, match="a link is not followed"):
        publisher_dir()


def test_a_link_among_several_is_passed_over(places):
    (places / "real").mkdir(mode=0o700)
    (places / "run").mkdir()
    (places / "xdg").mkdir()
    (places / "run/cuframes").symlink_to(places / "real")
    assert publisher_dir() == places / "xdg/cuframes"


@as_root
def test_somebody_elses_is_refused(chosen):
    os.chown(publisher_dir(), OTHER_UID, -1)
    with pytest.raises(AccessDeniedError, match=rf"belongs to user .*{OTHER_UID}"):
        publisher_dir()


@as_root
def test_somebody_elses_among_several_is_passed_over(places):
    (places / "xdg").mkdir()
    (places / "run/cuframes").mkdir(parents=True)
    os.chown(places / "run/cuframes", OTHER_UID, -1)
    assert publisher_dir() == places / "xdg/cuframes"


# --- Open to a group ------------------------------------------------------------------------------


@as_root
def test_a_group_is_let_in_and_may_not_write(chosen):
    assert publisher_dir(OTHER_GID) == chosen
    assert (mode(chosen), chosen.stat().st_gid) == (0o750, OTHER_GID)
    publisher_dir(OTHER_GID)
    assert mode(publisher_dir()) == 0o750, "who asks for no group closes nothing"


def test_a_group_that_one_may_not_let_in_is_an_error(chosen, monkeypatch):
    def refuse(*args):
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "chown", refuse)
    with pytest.raises(AccessDeniedError, match="cannot be opened to group"):
        publisher_dir(OTHER_GID)


@as_root
def test_a_group_that_is_let_in_already_is_not_shut_out(chosen):
    publisher_dir(OTHER_GID)
    with pytest.raises(
        AccessDeniedError, match=rf"open to group {OTHER_GID}.*CUFRAMES_RUNTIME_DIR"
    ):
        publisher_dir(OTHER_GID + 1)
    assert (mode(chosen), chosen.stat().st_gid) == (0o750, OTHER_GID)


@as_root
def test_one_that_everybody_may_enter_stays_as_it_is(chosen):
    publisher_dir().chmod(0o755)
    before = chosen.stat()
    assert publisher_dir(OTHER_GID) == chosen
    assert (mode(chosen), chosen.stat().st_gid) == (0o755, before.st_gid)


# --- Keys and sockets -----------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "0", "cam1", "Cam.1_left-b", "x" * 64])
def test_these_name_a_stream(key):
    assert check_key(key) == key


@pytest.mark.parametrize(
    "key",
    [
        "",
        ".",
        "..",
        ".hidden",
        "-x",
        "_x",
        "a/b",
        "../a",
        "a b",
        "a\n",
        "a\0",
        "é",
        "\u0661",
        "x" * 65,
        1,
        None,
    ],
)
def test_these_do_not(key):
    with pytest.raises(InvalidArgumentError, match="cannot name a stream"):
        check_key(key)


def test_a_path_that_the_kernel_would_cut_is_an_error():
    room = 107 - len("/cam1.sock")
    assert len(str(socket_path(Path("/" + "d" * (room - 1)), "cam1"))) == 107
    with pytest.raises(
        InvalidArgumentError, match=r"has 108 bytes.*allows 107.*CUFRAMES_RUNTIME_DIR"
    ):
        socket_path(Path("/" + "d" * room), "cam1")
    with pytest.raises(InvalidArgumentError, match="bytes"):
        socket_path(Path("/" + "é" * 50), "cam1")


def test_streams_are_found_in_the_first_directory_that_has_them(places):
    assert find_socket("cam1") is None
    put_socket(places / "xdg/cuframes/cam1.sock")
    assert find_socket("cam1") == places / "xdg/cuframes/cam1.sock"
    put_socket(places / "run/cuframes/cam1.sock")
    put_socket(places / "run/cuframes/cam2.sock")
    assert find_socket("cam1") == places / "run/cuframes/cam1.sock"
    found = dict(list_sockets())
    assert list(found) == ["cam1", "cam2"]
    assert found["cam1"] == places / "run/cuframes/cam1.sock"


def test_a_live_stream_goes_before_a_dead_one_s_socket(places):
    put_socket(places / "run/cuframes/cam1.sock")
    live = places / "xdg/cuframes/cam1.sock"
    live.parent.mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(live))
        sock.listen()
        assert find_socket("cam1") == live
        assert list_sockets() == [("cam1", live)]
    assert find_socket("cam1") == places / "run/cuframes/cam1.sock"


def test_one_that_tells_nothing_goes_before_a_dead_one(places, monkeypatch):
    dead, closed = places / "run/cuframes/cam1.sock", places / "xdg/cuframes/cam1.sock"
    put_socket(dead)
    put_socket(closed)

    def listens(path):
        if path == closed:
            raise PermissionError(13, "Permission denied")
        return False

    monkeypatch.setattr(it, "somebody_listens", listens)
    assert find_socket("cam1") == closed


def test_what_is_no_stream_is_not_listed(runtime_dir):
    put_socket(runtime_dir / "cam1.sock")
    put_socket(runtime_dir / "other")
    put_socket(runtime_dir / ".hidden.sock")
    (runtime_dir / "file.sock").touch()
    (runtime_dir / "dir.sock").mkdir()
    (runtime_dir / "gone.sock").symlink_to(runtime_dir / "nowhere")
    assert [key for key, _ in list_sockets()] == ["cam1"]
    assert find_socket("file") is None
    assert find_socket("gone") is None


# --- One at a time --------------------------------------------------------------------------------


def test_the_directory_is_held_by_one_at_a_time(runtime_dir):
    held = directory_lock(runtime_dir)
    again = directory_lock(runtime_dir, 0)
    with held, pytest.raises(FrameTimeout, match="fuser"), again:
        pass
    with directory_lock(runtime_dir, 0):
        pass
    assert list_sockets() == []


def test_nobody_who_may_only_look_into_the_directory_can_hold_it(runtime_dir):
    with directory_lock(runtime_dir):
        pass
    (lock,) = runtime_dir.iterdir()
    assert lock.stat().st_mode & 0o777 == 0o600


@as_root
def test_one_that_may_not_be_written_to_is_an_error(runtime_dir):
    runtime_dir.chmod(0o755)
    pid = os.fork()
    if not pid:
        status = 1
        try:
            os.setegid(OTHER_GID)
            os.seteuid(OTHER_UID)
            try:
                Listener("cam1")
            except AccessDeniedError as error:
                says = f"{OTHER_UID}) may not write to {runtime_dir}"
                status = 0 if says in str(error) and "CUFRAMES_RUNTIME_DIR" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0


def test_who_waits_gets_it(runtime_dir):
    order = []

    def second():
        with directory_lock(runtime_dir):
            order.append("second")

    with directory_lock(runtime_dir):
        thread = threading.Thread(target=second)
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]
