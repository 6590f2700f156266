"""A publisher in C, written from docs/protocol.md, and our subscribers."""

import contextlib
import os
import signal
import socket
import stat
import struct
import subprocess
import threading
import time

import pytest

import cuframes_nb as cf
from cuframes_nb._wire.codec import HEADER, MAGIC, decode, encode
from cuframes_nb._wire.messages import (
    Epoch,
    Hello,
    Passed,
    Query,
    ReadMode,
    Refuse,
    Status,
    Welcome,
)
from tests.helpers import c_publisher, programs
from tests.helpers.c_publisher import SLOTS, check, needs_compiler, running, wrong
from tests.helpers.children import child
from tests.helpers.frames import publisher, until

pytestmark = pytest.mark.process

HELLO = encode(Hello(1, ReadMode.STRICT, "peer"))
NOBODY = 65534


@pytest.fixture(scope="module")
def programs_in_c(tmp_path_factory):
    """Return the publisher as it is built for use, and built to find its own mistakes."""
    needs_compiler()
    folder = tmp_path_factory.mktemp("c")
    sanitizers = ("-g", "-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    return {
        "plain": c_publisher.build(folder / "plain", "-O2", "-DHOST"),
        "sanitized": c_publisher.build(folder / "sanitized", "-O1", "-DHOST", *sanitizers),
    }


@pytest.fixture
def sanitized(programs_in_c):
    return programs_in_c["sanitized"]


@pytest.fixture
def stream(sanitized):
    with running(sanitized) as it:
        yield it


def info():
    (found,) = cf.list_streams()
    return found


def receive(sock):
    """Return the next message, or None at the end; closes its descriptors."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, 65536, 64)
    except ConnectionResetError:
        return receive(sock)
    for fd in fds:
        os.close(fd)
    return decode(data, len(fds)) if data else None


def everything(sock):
    return list(iter(lambda: receive(sock), None))


@pytest.fixture
def raw(runtime_dir):
    """Return a function that makes a bare connection."""
    with contextlib.ExitStack() as stack:

        def connect():
            sock = stack.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
            sock.settimeout(30)
            sock.connect(str(runtime_dir / "cam.sock"))
            return sock

        yield connect


# --- The compiler ---------------------------------------------------------------------------------


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_the_file_compiles_without_a_warning(compiler, level, tmp_path):
    needs_compiler(compiler)
    more = ("-Wshadow", "-Wconversion")
    c_publisher.build(tmp_path / "program", "-DHOST", level, *more, compiler=compiler)


@pytest.mark.parametrize("level", ["-O0", "-O3"])
def test_the_build_for_a_gpu_compiles_without_a_warning(level, tmp_path):
    needs_compiler()
    headers = ("-isystem", str(c_publisher.cuda_headers()))
    more = ("-Wshadow", "-Wconversion")
    c_publisher.build(tmp_path / "program.o", "-c", level, *more, *headers)


# --- Frames ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["newest", "strict"])
@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("built", ["plain", "sanitized"])
def test_every_frame_is_whole(programs_in_c, built, count, mode):
    torn, seqs = [], [[] for _ in range(count)]

    def follow(seen):
        with cf.subscribe("cam", mode, timeout=30) as sub:
            while len(seen) < 300:
                with sub.next(timeout=30) as frame:
                    seen.append(frame.seq)
                    torn.extend(filter(None, [wrong(frame.planes, frame.seq)]))

    with running(programs_in_c[built]):
        threads = [threading.Thread(target=follow, args=(seen,)) for seen in seqs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        dropped = info().dropped
    assert torn == []
    assert dropped == 0
    for seen in seqs:
        assert len(seen) == 300
        assert seen == sorted({*seen})


@pytest.mark.parametrize(("width", "height"), [(1, 1), (2, 7), (67, 3), (69, 33), (641, 359)])
def test_sizes_may_be_odd(sanitized, width, height):
    with running(sanitized, width=width, height=height), cf.subscribe("cam", timeout=30) as sub:
        for _ in range(30):
            with sub.next(timeout=30) as frame:
                assert frame.y.shape == (height, width)
                assert frame.uv.shape == (-(-height // 2), -(-width // 2), 2)
                check(frame)


def test_arrays_are_on_the_publisher_s_memory(stream):
    # lifetime.md, 4
    with cf.subscribe("cam", timeout=30) as sub:
        addresses = set()
        for _ in range(40):
            with sub.next(timeout=30) as frame:
                addresses.add(frame.y.ctypes.data)
                assert not frame.y.flags.writeable
        assert len(addresses) <= SLOTS
        with open("/proc/self/maps", encoding="utf-8") as lines:  # noqa: PTH123  read at once
            ranges = [
                [int(part, 16) for part in line.split()[0].split("-")]
                for line in lines
                if "cuframes:pixels" in line
            ]
    for address in addresses:
        assert any(start <= address < end for start, end in ranges)


def test_times_are_those_of_the_publisher(stream):
    with cf.subscribe("cam", timeout=30) as sub:
        before = 0
        for _ in range(20):
            with sub.next(timeout=30) as frame:
                assert before < frame.pts_ns <= cf.now_ns()
                assert 0 <= frame.age_ns < 10**10
                before = frame.pts_ns


# --- Looking --------------------------------------------------------------------------------------


def test_the_stream_is_listed_as_it_is(stream, runtime_dir):
    with cf.subscribe("cam", "strict", name="wätcher", timeout=30) as sub:
        frame = sub.next(timeout=30)
        for found in (info(), sub.info):
            assert (found.key, found.state, found.pid) == ("cam", "live", stream.pid)
            assert (found.width, found.height, found.fps) == (320, 180, 200)
            assert (found.format, found.memory, found.completion) == ("nv12", "host", "host")
            assert (found.policy, found.slots, found.epoch) == ("drop-oldest", SLOTS, 1)
            assert found.color == cf.ColorSpec("bt709", "limited", "bt709", "bt709")
            assert found.pitches == (512, 512)
        found = info()
        assert found.published >= frame.seq
        assert found.uptime_ns > found.age_ns >= 0
        (reader,) = found.subscribers
        assert (reader.name, reader.pid, reader.uid) == ("w??tcher", os.getpid(), os.geteuid())
        assert (reader.mode, reader.holds) == ("strict", 1)
        frame.release()
        until(lambda: info().subscribers[0].holds == 0)
    until(lambda: info().subscribers == ())


def test_what_it_makes_is_for_its_user_alone(sanitized, runtime_dir):
    # lifetime.md, 8
    runtime_dir.rmdir()
    with running(sanitized):
        modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in runtime_dir.iterdir()}
        assert modes == {"cam.sock": 0o600, f".lock-{os.geteuid()}": 0o600}
        assert stat.S_IMODE(runtime_dir.stat().st_mode) == 0o700


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_is_refused(stream, runtime_dir):
    # lifetime.md, 8
    runtime_dir.chmod(0o755)
    (runtime_dir / "cam.sock").chmod(0o666)
    with child(programs.attach_as, "cam", uid=NOBODY, gid=NOBODY) as stranger:
        error = stranger.expect("error")
    assert error["code"] == "permission"
    assert "is open to user 0 only" in error["text"]
    assert error["listed"] == 0


def test_a_directory_that_others_may_write_to_is_refused(sanitized, runtime_dir):
    # lifetime.md, 8
    runtime_dir.chmod(0o777)
    run = subprocess.run([sanitized, "cam"], capture_output=True, check=False, timeout=30)
    assert run.returncode == 1
    assert b"others may not write to" in run.stderr


# --- Readers that are slow, stopped or dead -------------------------------------------------------


def test_a_stopped_reader_stops_nobody(stream):
    # lifetime.md, 1 and 2
    with child(c_publisher.hold, "cam", count=2) as holder, cf.subscribe("cam", timeout=30) as sub:
        held = holder.expect("holds")["seqs"]
        holder.signal(signal.SIGSTOP)
        for _ in range(300):
            with sub.next(timeout=30) as frame:
                check(frame)
        found = info()
        assert found.dropped == 0
        assert found.published > max(held) + SLOTS
        assert {reader.name: reader.holds for reader in found.subscribers}["holder"] == 2
        holder.signal(signal.SIGCONT)
        holder.send("look")
        assert holder.expect("sees")["wrong"] == ["", ""]


def test_killed_readers_leave_their_slots(stream):
    # lifetime.md, 3
    with cf.subscribe("cam", timeout=30) as sub:
        for _ in range(SLOTS - 1):
            with child(c_publisher.hold, "cam") as holder:
                holder.expect("holds")
                holder.kill()
                until(lambda: len(info().subscribers) == 1)
        for _ in range(100):
            with sub.next(timeout=30) as frame:
                check(frame)
        assert info().dropped == 0


def test_a_full_ring_drops_frames_until_there_is_room(stream):
    # lifetime.md, 2
    with cf.subscribe("cam", timeout=30) as sub, cf.subscribe("cam", timeout=30) as other:
        held = [sub.next(timeout=30) for _ in range(SLOTS - 2)]
        with contextlib.suppress(cf.FrameTimeout):  # once the ring is full, nothing is new
            held.extend(other.next(timeout=0.5) for _ in range(SLOTS - 2))
        until(lambda: info().dropped > 10)
        before = info().published
        for frame in held:
            check(frame)
            frame.release()
        until(lambda: info().published > before + 50)
        with sub.next(timeout=30) as frame:
            check(frame)


# --- Publishers that end --------------------------------------------------------------------------


def test_a_killed_publisher_is_told_and_the_next_one_followed(sanitized):
    # lifetime.md, 3
    with (
        running(sanitized) as first,
        cf.subscribe("cam", timeout=30) as follows,
        cf.subscribe("cam", timeout=30, reconnect=False) as ends,
    ):
        held = follows.next(timeout=30)
        first.end(signal.SIGKILL)
        with pytest.raises(cf.PublisherGoneError, match=f"process {first.pid}.* without a word"):
            for _ in range(SLOTS + 1):
                ends.next(timeout=30).release()
        with running(sanitized) as second:  # with the dead one's socket still there
            while follows.stats.connects < 2:
                with contextlib.suppress(cf.FrameTimeout):
                    follows.next(timeout=1).release()
            assert follows.info.pid == second.pid
            with follows.next(timeout=30) as frame:
                check(frame)
            check(held)
            held.release()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_it_says_goodbye(sanitized, runtime_dir, number):
    with (
        running(sanitized) as stream,
        cf.subscribe("cam", timeout=30, reconnect=False) as sub,
        cf.subscribe("cam", timeout=30, reconnect=False) as other,
    ):
        frame = sub.next(timeout=30)
        assert stream.end(number) == 0
        assert "frames published, 0 dropped" in stream.process.stdout.read()
        assert list(runtime_dir.glob("*.sock")) == []
        for seen in other:  # ends without an error
            check(seen)
        with pytest.raises(cf.PublisherGoneError, match="closed: the publisher ended"):
            for _ in range(SLOTS + 1):
                sub.next(timeout=30).release()
        check(frame)
        frame.release()


def test_it_ends_after_so_many_frames(sanitized, runtime_dir):
    with running(sanitized, frames=(150,)) as stream:
        with cf.subscribe("cam", "strict", timeout=30, reconnect=False) as sub:
            seqs = [frame.seq for frame in sub if not check(frame)]
        assert stream.process.wait(30) == 0
        assert stream.process.stdout.read() == "150 frames published, 0 dropped\n"
    assert seqs[-1] == 150
    assert list(runtime_dir.glob("*.sock")) == []


def test_a_key_has_one_publisher(sanitized, stream, runtime_dir):
    run = subprocess.run([sanitized, "cam"], capture_output=True, check=False, timeout=30)
    assert run.returncode == 1
    assert run.stderr.startswith(b"stream cam is being published already")
    with pytest.raises(cf.StreamExistsError):
        publisher("cam")
    with publisher("ours"):
        run = subprocess.run([sanitized, "ours"], capture_output=True, check=False, timeout=30)
        assert b"is being published already" in run.stderr
    (runtime_dir / "file.sock").touch()
    run = subprocess.run([sanitized, "file"], capture_output=True, check=False, timeout=30)
    assert b"it is no socket" in run.stderr
    with cf.subscribe("cam", timeout=30) as sub, sub.next(timeout=30) as frame:
        check(frame)


@pytest.mark.parametrize(
    "arguments",
    [(), ("a/b",), (".x",), ("x" * 65,), ("x", 0, 1, 1), ("x", 1, 40000, 1), ("x", 1, 1, 0),
     ("x", 1), ("x", "a", 1, 1), ("x", 1, 1, "nan")],
)  # fmt: skip
def test_arguments_that_cannot_be_are_refused(sanitized, arguments, runtime_dir):
    command = [str(argument) for argument in (sanitized, *arguments)]
    run = subprocess.run(command, capture_output=True, check=False, timeout=30)
    assert run.returncode == 1
    assert b"usage" in run.stderr or b"cannot name a stream" in run.stderr
    assert list(runtime_dir.iterdir()) == []


# --- Peers that send what they should not ---------------------------------------------------------


def changed(data, at, value):
    return data[:at] + value + data[at + len(value) :]


def packet(code, body=b"", *, version=(1, 0), length=None, fds=0):
    size = HEADER.size + len(body) if length is None else length
    return HEADER.pack(MAGIC, *version, code, size, fds, 0) + body


GARBAGE = {
    "one byte": b"x",
    "noise": os.urandom(500),
    "noise behind the magic": MAGIC + os.urandom(200),
    "noise behind a header": HELLO[:16] + os.urandom(13),
    "zeros": bytes(64),
    "magic": changed(HELLO, 0, b"CFNX"),
    "major": changed(HELLO, 4, b"\x09"),
    "cut": HELLO[:-1],
    "cut at the header": HELLO[:16],
    "length": packet(1, HELLO[16:], length=28),
    "cut in a field": packet(1, b"\1\0"),
    "without a name": packet(1, struct.pack("<IBH", 1, 1, 9)),
    "trailing": packet(1, HELLO[16:] + b"more"),
    "long": packet(1, bytes(60000)),
    "too long": bytes(70000),
    "type": packet(99),
    "mode": packet(1, struct.pack("<IBH", 1, 7, 0)),
    "name": packet(1, struct.pack("<IBH", 1, 1, 65) + bytes(65)),
    "longest name": packet(1, struct.pack("<IBH", 1, 1, 65535) + bytes(60000)),
    "said to have descriptors": packet(1, HELLO[16:], fds=1),
    "passed first": encode(Passed(5)),
    "query with a body": packet(7, b"x"),
    "welcome": packet(2, struct.pack("<IHQH", 1, 0, 0, 0)),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_ends_its_connection_and_no_other(stream, raw, name):
    # lifetime.md, 7
    with cf.subscribe("cam", timeout=30) as sub:
        sock = raw()
        sock.send(GARBAGE[name])
        (refusal,) = everything(sock)
        assert isinstance(refusal, Refuse)
        assert refusal.reason == "protocol"
        if name == "major":
            assert "speaks protocol 9.0 and this one 1.0" in refusal.text
        for _ in range(3):
            with sub.next(timeout=30) as frame:
                check(frame)
        assert len(info().subscribers) == 1
        until(lambda: stream.has_only(subscribers=1))


@pytest.mark.parametrize("says", [HELLO, encode(Query()), b"x" * 40, packet(4, b"x")])
def test_garbage_after_the_handshake_ends_that_connection_only(stream, raw, says):
    # lifetime.md, 7
    with cf.subscribe("cam", timeout=30) as sub:
        sock = raw()
        sock.send(HELLO)
        assert isinstance(receive(sock), Welcome)
        assert isinstance(receive(sock), Epoch)
        sock.send(says)
        assert [type(message) for message in everything(sock)] == [Refuse]
        until(lambda: len(info().subscribers) == 1)
        with sub.next(timeout=30) as frame:
            check(frame)


@pytest.mark.parametrize("count", [1, 3, 72, 250])
def test_descriptors_where_none_belong_are_closed(stream, raw, count):
    # lifetime.md, 7 and 12
    for message in (HELLO, changed(HELLO, 12, struct.pack("<H", count)), encode(Query()), b"x"):
        sock = raw()
        socket.send_fds(sock, [message], [0] * count)
        (refusal,) = everything(sock)
        assert refusal.reason == "protocol"
    until(stream.has_only)


def test_a_later_minor_version_may_append_fields(stream, raw):
    sock = raw()
    sock.send(packet(1, HELLO[16:] + b"more", version=(1, 7)))
    assert isinstance(receive(sock), Welcome)
    assert isinstance(receive(sock), Epoch)
    sock.send(packet(4, bytes(8) + b"more", version=(1, 7)))
    until(lambda: info().subscribers[0].name == "peer")
    sock = raw()
    sock.send(packet(7, b"more", version=(1, 7)))
    assert isinstance(receive(sock), Status)


def test_a_storm_of_connections_that_close_at_once(stream, raw):
    # lifetime.md, 2 and 12
    with cf.subscribe("cam", timeout=30) as sub:
        for number in range(400):
            with raw() as sock, contextlib.suppress(BrokenPipeError):
                if says := (b"", HELLO, b"x", encode(Query()))[number % 4]:
                    sock.send(says)
            if number % 20 == 0:
                with sub.next(timeout=30) as frame:
                    check(frame)
        until(lambda: stream.has_only(subscribers=1))
        assert len(info().subscribers) == 1


def test_a_crowd_that_says_nothing_is_let_go(stream, raw):
    # lifetime.md, 2 and 12
    with cf.subscribe("cam", timeout=30) as sub:
        crowd = [raw() for _ in range(300)]  # more than it takes in at once
        with sub.next(timeout=30) as frame:
            check(frame)
        began = time.monotonic()
        with cf.subscribe("cam", timeout=60) as late, late.next(timeout=30) as frame:
            check(frame)
        assert time.monotonic() - began > 2
        with sub.next(timeout=30) as frame:
            check(frame)
        for sock in crowd:
            assert everything(sock) == []
        until(lambda: stream.has_only(subscribers=1))


def test_a_peer_that_reads_nothing_delays_nobody(stream, raw):
    # lifetime.md, 2
    sock = raw()
    sock.send(HELLO)
    with cf.subscribe("cam", timeout=30) as sub:
        for _ in range(300):
            with sub.next(timeout=30) as frame:
                check(frame)
        assert info().dropped == 0


# --- What is left ---------------------------------------------------------------------------------


def test_three_hundred_attachments_leave_nothing(stream):
    # lifetime.md, 12
    def attach(number):
        mode = ("newest", "strict")[number % 2]
        with cf.subscribe("cam", mode, timeout=30) as sub, sub.next(timeout=30) as frame:
            check(frame)
        if number % 10 == 0:
            info()

    for number in range(300):
        attach(number)
    until(stream.has_only)
    assert info().dropped == 0


@pytest.mark.parametrize("spare", range(6))
def test_without_descriptors_it_goes_on_and_takes_in_again(stream, raw, spare):
    # lifetime.md, 2, 7 and 12
    with cf.subscribe("cam", timeout=30) as sub:
        sub.next(timeout=30).release()
        until(lambda: stream.has_only(subscribers=1))
        stream.let_open(spare)
        crowd = [raw() for _ in range(10)]
        with pytest.raises(cf.CuframesError) as caught:
            cf.subscribe("cam", timeout=0.3).close()
        assert caught.value.code in {"timeout", "in-use", "protocol"}
        for _ in range(20):
            with sub.next(timeout=30) as frame:
                check(frame)
        for sock in crowd:
            sock.close()
        stream.let_open(None)
        with cf.subscribe("cam", timeout=30) as other, other.next(timeout=30) as frame:
            check(frame)
        until(lambda: stream.has_only(subscribers=1))
