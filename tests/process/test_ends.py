"""How processes end, are interrupted and fork; and what happens without descriptors."""

import os
import signal
import socket
from pathlib import Path

import pytest

import cuframes_nb as cf
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.frames import check, publish, publisher, until

pytestmark = [pytest.mark.process, pytest.mark.alone]


@pytest.mark.parametrize("mode", ["return", "exit", "_exit", "raise"])
def test_a_process_may_end_with_everything_open(mode, runtime_dir):
    # lifetime.md, 3 and 10
    quiet = {"PYTHONWARNINGS": "default,ignore::ResourceWarning"}
    with child(programs.leave_everything_open, mode=mode, env=quiet) as process:
        process.expect("ready")
        process.stop()
        assert process.stderr() == ""
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        check(sub.next(timeout=30))


@pytest.mark.parametrize("how", ["next", "timeout", "iterate"])
def test_waiting_can_be_interrupted(how):
    # lifetime.md, 10
    with publisher() as pub, child(programs.be_interrupted, "cam", how=how) as reader:
        for expected in range(1, 4):
            reader.expect("waiting")
            until(lambda: _sleeps(reader.pid))
            reader.signal(signal.SIGINT)
            assert reader.expect("interrupted") == {"descriptors": 0}
            assert pub.stats.slots_leased == 0
            reader.send("go on")
            publish(pub)
            assert reader.expect("frame")["seq"] == expected
        reader.expect("closed")
        until(lambda: pub.stats.subscribers == 0)


def _sleeps(pid):
    return (
        Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] == "S"
    )


def test_a_fork_s_child_is_refused_and_holds_nothing(runtime_dir):
    # lifetime.md, 3 and 10
    with child(programs.fork_with_everything) as process:
        said = process.expect("child")
        assert said["said"] == "fine"
        assert said["fine"]
        process.send("die or close")
        process.expect("again")


def test_a_fork_s_child_does_not_keep_a_dead_parent_s_stream_and_leases():
    # lifetime.md, 3
    with publisher() as pub:
        publish(pub)
        with child(programs.fork_and_die, "cam") as parent:
            pid = parent.expect("ready")["child"]
            try:
                assert pub.stats.slots_leased == 1
                with cf.subscribe("mine") as sub:
                    check(sub.next(timeout=30))
                    parent.kill()
                    os.kill(pid, 0)  # the child lives
                    assert pub.stats.slots_leased == 0
                    until(lambda: pub.stats.subscribers == 0)
                    with publisher("mine") as mine:
                        publish(mine, 2)
                        with sub.next(timeout=30) as frame:
                            assert frame.seq == 2
                            check(frame)
            finally:
                os.kill(pid, signal.SIGKILL)


# --- Without descriptors --------------------------------------------------------------------------


@pytest.mark.parametrize("spare", range(7))
def test_a_publisher_without_descriptors_goes_on_and_takes_in_again(spare, runtime_dir):
    # lifetime.md, 2, 7 and 12
    with child(programs.publish_with_few_descriptors, "cam", spare=spare) as process:
        process.expect("ready")
        crowd = []
        try:
            for _ in range(10):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                crowd.append(sock)
                sock.connect(str(runtime_dir / "cam.sock"))
            with pytest.raises(cf.CuframesError) as caught:
                cf.subscribe("cam", timeout=0.3).close()
            assert caught.value.code in {"timeout", "in-use", "protocol"}
        finally:
            for sock in crowd:
                sock.close()
        if spare >= 6:
            seen = []

            def attach():
                try:
                    with cf.subscribe("cam", timeout=1) as sub, sub.next(timeout=30) as frame:
                        check(frame)
                        seen.append(frame.seq)
                except (cf.FrameTimeout, cf.InUseError, cf.PublisherGoneError):
                    return False
                return True

            until(attach)
            assert seen
        process.send("stop")
        assert process.expect("done")["leased"] == 0


def test_a_subscriber_without_descriptors_says_so_and_leaves_nothing():
    # lifetime.md, 7 and 12
    with publisher() as pub:
        publish(pub)
        with child(programs.attach_with_few_descriptors, "cam", spares=[*range(12), 40]) as process:
            done = process.expect("done")
        assert done["left"] == []
        assert done["outcomes"][-1] == "frame"
        assert done["outcomes"][0] != "frame"
        assert set(done["outcomes"]) <= {"frame", "protocol", "OSError"}
        until(lambda: pub.stats.subscribers == 0)
        assert pub.stats.slots_leased == 0
