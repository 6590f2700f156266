"""Publishers that die and come back: readers follow by themselves, nothing is left over."""

import contextlib
import threading
from pathlib import Path

import psutil
import pytest

import cuframes_nb as cf
from tests.helpers import programs
from tests.helpers.children import child
from tests.helpers.frames import check, publish, publisher, until, wrong
from tests.helpers.leaks import live_threads, open_fds

pytestmark = [pytest.mark.process, pytest.mark.alone]


def test_readers_follow_publishers_that_are_killed(runtime_dir):
    # lifetime.md, 3
    kills = 40
    stop, torn, connects = threading.Event(), [], []

    def follow(mode, keeps):
        kept = []
        with cf.subscribe("cam", mode, timeout=60) as sub:
            while not stop.is_set():
                try:
                    frame = sub.next(timeout=0.2)
                except cf.FrameTimeout:
                    continue
                except cf.LeaseLimitError:
                    kept.clear()
                    continue
                if keeps:
                    kept.append((frame.seq, frame.planes))
                    del kept[:-2]
                    torn.extend(filter(None, (wrong(planes, seq) for seq, planes in kept)))
                torn.extend(filter(None, [wrong(frame.planes, frame.seq)]))
                frame.release()
            connects.append(sub.stats.connects)
        kept.clear()

    threads = [
        threading.Thread(target=follow, args=arguments)
        for arguments in [("newest", False), ("newest", True), ("strict", False)]
    ]
    with child(programs.kill_publishers, "cam", kills=kills) as deaths:
        for thread in threads:
            thread.start()
        result = deaths.expect("done", seconds=100)
    with publisher() as pub:  # at once, with the last one's socket still there
        with cf.subscribe("cam") as sub:
            publish(pub)
            check(sub.next(timeout=30))
        until(lambda: pub.stats.subscribers == 3)
        stop.set()
        for thread in threads:
            thread.join()
    assert result["failed"] == 0
    assert result["started"] >= kills * 3 // 4
    assert torn == []
    assert len(connects) == 3
    assert min(connects) > kills // 4
    assert list(runtime_dir.glob("*.sock")) == []


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_readers_follow_hundreds_of_publishers(runtime_dir):
    # lifetime.md, 3
    with (
        child(programs.kill_publishers, "cam", kills=1000, seed=5, seconds=900) as deaths,
        child(programs.read, "cam", seconds=900) as reader,
    ):
        reader.expect("ready")
        assert deaths.expect("done")["failed"] == 0
        with publisher() as pub:
            publish(pub)
            reader.send("stop")
            result = reader.expect("done")
            assert result["torn"] == []
            assert result["connects"] > 100
    assert list(runtime_dir.glob("*.sock")) == []


def test_a_killed_publisher_s_name_is_free_and_its_frames_stay():
    # lifetime.md, 3 and 6
    with child(programs.publish_and_die, "cam", count=3) as dead:
        dead.expect("ready")
        with cf.subscribe("cam") as sub:
            frame = sub.next(timeout=30)
            dead.kill()
            with publisher() as pub:
                publish(pub)
                with sub.next(timeout=30) as other:
                    assert other.seq == 1
                    check(other)
                assert frame.seq == 3
                check(frame)
                assert pub.stats.slots_leased == 0


def test_without_reconnect_a_killed_publisher_is_told():
    # lifetime.md, 3
    with child(programs.publish_and_die, "cam") as dead:
        dead.expect("ready")
        with cf.subscribe("cam", reconnect=False) as sub:
            sub.next(timeout=30).release()
            dead.kill()
            with pytest.raises(cf.PublisherGoneError, match=f"process {dead.pid}.* ended without"):
                sub.next(timeout=30)
            with pytest.raises(cf.PublisherGoneError):  # iteration does not hide it
                next(iter(sub))


def facts():
    """Return descriptors, mappings of ours and threads; all mappings; memory in MiB."""
    lines = Path("/proc/self/maps").read_text(encoding="utf-8").splitlines()
    ours = len(open_fds()), sum("cuframes" in line for line in lines), len(live_threads())
    return ours, len(lines), psutil.Process().memory_info().rss / 2**20


def attach_and_detach(pub):
    with cf.subscribe("cam") as sub:
        publish(pub)
        with sub.next(timeout=30) as frame:
            y = frame.y
            check(frame)
    del y


def restart(sub):
    with publisher() as pub:
        publish(pub)
        with sub.next(timeout=30) as frame:
            check(frame)


@pytest.mark.parametrize("what", ["attach and detach", "restart", "reconfigure"])
def test_a_thousand_times_leave_nothing(what):
    # lifetime.md, 12
    with contextlib.ExitStack() as stack:
        if what == "restart":
            with publisher():
                sub = stack.enter_context(cf.subscribe("cam"))

            def step(_):
                restart(sub)
        else:
            pub = stack.enter_context(publisher())
            if what == "reconfigure":
                sub = stack.enter_context(cf.subscribe("cam"))

                def step(number):
                    pub.reconfigure(width=16 + number % 100)
                    publish(pub)
                    with sub.next(timeout=30) as frame:
                        check(frame)
            else:

                def step(_):
                    attach_and_detach(pub)
                    until(lambda: pub.stats.subscribers == 0)

        for number in range(200):
            step(number)
        counted, lines, before = facts()
        for number in range(1000):
            step(number)
        until(lambda: facts()[0] == counted)
        _, lines_after, after = facts()
        assert lines_after <= lines + 20  # the allocator's own
        assert after - before < 4
