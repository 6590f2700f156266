"""Other users, other namespaces."""

import os
import subprocess
import threading

import pytest

import cuframes_nb as cf
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.frames import check, publish, publisher, until

NOBODY, OTHERS = 65534, 65533

pytestmark = [
    pytest.mark.process,
    pytest.mark.alone,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user"),
]


@pytest.fixture
def stream(runtime_dir):
    with publisher() as pub:
        publish(pub)
        yield pub


def error_of(source, **who):
    with child(programs.attach_as, str(source), **who) as stranger:
        return stranger.expect("error")


def test_another_user_may_not_even_look(stream, runtime_dir):
    # lifetime.md, 8
    error = error_of("cam", uid=NOBODY, gid=NOBODY)
    assert (error["code"], error["name"]) == ("permission", "AccessDeniedError")
    assert f"may not look into {runtime_dir}" in error["text"]
    assert "group=" in error["text"]
    assert error["listed"] == 0


def test_another_user_may_not_connect(stream, runtime_dir):
    # lifetime.md, 8
    runtime_dir.chmod(0o755)
    error = error_of("cam", uid=NOBODY, gid=NOBODY)
    assert error["code"] == "permission"
    assert "may not connect to" in error["text"]
    assert "group=" in error["text"]


def test_another_user_who_gets_through_is_refused_by_the_publisher(stream, runtime_dir):
    # lifetime.md, 8
    runtime_dir.chmod(0o755)
    stream.info.path.chmod(0o666)
    error = error_of("cam", uid=NOBODY, gid=NOBODY)
    assert error["code"] == "permission"
    assert "stream 'cam' is open to root (0), not to nobody (65534)" in error["text"]
    assert error["listed"] == 0
    assert stream.stats.subscribers == 0
    with cf.subscribe("cam") as sub:
        check(sub.next(timeout=30))


@pytest.mark.parametrize("how", ["its own", "supplementary"])
def test_a_member_of_the_group_may(runtime_dir, how):
    # lifetime.md, 8
    with publisher(group=OTHERS) as pub:
        publish(pub)
        who = {"gid": OTHERS} if how == "its own" else {"gid": NOBODY, "groups": [OTHERS]}
        with child(programs.attach_as, "cam", uid=NOBODY, **who) as member:
            assert member.expect("frame")["seq"] == 1
        assert error_of("cam", uid=NOBODY, gid=NOBODY)["code"] == "permission"
        runtime_dir.chmod(0o755)
        pub.info.path.chmod(0o666)
        error = error_of("cam", uid=NOBODY, gid=NOBODY)
        assert "members of group" in error["text"]
        until(lambda: pub.stats.subscribers == 0)
        assert pub.stats.slots_leased == 0


def test_a_publisher_of_another_user_has_to_be_trusted(runtime_dir, monkeypatch):
    # lifetime.md, 8
    runtime_dir.chmod(0o755)
    directory = runtime_dir / "theirs"
    with child(programs.publish_as, "cam", str(directory), uid=NOBODY, gid=NOBODY) as theirs:
        theirs.expect("ready")
        path = directory / "cam.sock"
        with pytest.raises(cf.AccessDeniedError, match=r"trusted_uids=\(65534,\)") as caught:
            cf.subscribe(path)
        assert caught.value.code == "permission"
        assert isinstance(caught.value, PermissionError)
        with cf.subscribe(path, trusted_uids=[NOBODY]) as sub:
            check(sub.next(timeout=30))
        monkeypatch.setenv("CUFRAMES_TRUSTED_UIDS", f"5, {NOBODY}")
        with cf.subscribe(path) as sub:
            check(sub.next(timeout=30))
        monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", str(directory))
        (info,) = cf.list_streams()
        assert info.key == "cam"
        monkeypatch.delenv("CUFRAMES_TRUSTED_UIDS")
        assert cf.list_streams() == []
        assert [i.key for i in cf.list_streams(trusted_uids=[NOBODY])] == ["cam"]


def test_a_directory_of_another_user_is_not_published_in(runtime_dir):
    # lifetime.md, 8
    os.chown(runtime_dir, NOBODY, NOBODY)
    with pytest.raises(cf.AccessDeniedError, match="could be replaced by theirs"):
        publisher()


def need_namespaces(options):
    try:
        subprocess.run(["unshare", *options, "true"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"namespaces cannot be made here: {error}")


@pytest.mark.parametrize(
    "options",
    [
        ["--pid", "--fork"],
        ["--ipc"],
        ["--net"],
        ["--mount"],
        ["--uts", "--cgroup"],
        ["--pid", "--ipc", "--net", "--mount", "--uts", "--fork"],
    ],
    ids=" ".join,
)
def test_namespaces_need_not_be_shared(options):
    # lifetime.md, 3 and 8
    need_namespaces(options)
    stop = threading.Event()

    def keep_publishing():
        while not stop.wait(0.001):
            publish(pub)

    with publisher() as pub:
        thread = threading.Thread(target=keep_publishing)
        thread.start()
        try:
            with child(programs.attach_in_namespaces, "cam", options=options) as reader:
                reader.expect("ready")
                (info,) = pub.info.subscribers
                assert info.pid > 0
                assert info.pid == reader.pid or "--fork" in options
                reader.send("stop")
                done = reader.expect("done")
                assert done["torn"] == []
                assert done["count"] >= 20
        finally:
            stop.set()
            thread.join()
        until(lambda: pub.stats.subscribers == 0)
        assert pub.stats.slots_leased == 0


def test_a_publisher_in_namespaces_of_its_own_is_read(runtime_dir):
    # lifetime.md, 3 and 8
    options = ["--pid", "--ipc", "--net", "--uts", "--fork", "--kill-child"]
    need_namespaces(options)
    with child(programs.publish_in_namespaces, "cam", options=options) as theirs:
        theirs.expect("ready")
        with cf.subscribe("cam") as sub:
            for _ in range(20):
                with sub.next(timeout=30) as frame:
                    check(frame)
            assert sub.info.path == runtime_dir / "cam.sock"
        theirs.send("stop")
        assert theirs.expect("done")["slots_leased"] == 0
