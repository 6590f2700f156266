"""Pipelines that read streams of ours: well-behaved ones, and others."""

import fcntl
import gc
import os
import signal
import socket
import stat
import struct
import threading
from pathlib import Path

import pytest

import cuframes_nb as cf
from cuframes_nb._memory.arena import Part
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import ArenaDescription, MemoryKind
from cuframes_nb.bridges import gst
from cuframes_nb.bridges.gst import client as client_module
from cuframes_nb.bridges.gst import listener as listener_module
from cuframes_nb.bridges.gst.caps import parse_caps
from cuframes_nb.bridges.gst.forwarding import Forwarder
from cuframes_nb.bridges.gst.messages import MAGIC, Kind
from cuframes_nb.formats import FrameLayout
from tests.helpers.children import child
from tests.helpers.frames import fill, publish, publisher, until, value, wrong
from tests.helpers.gst_client import Source, serve_host
from tests.helpers.gst_server import HostImporter
from tests.helpers.leaks import open_fds


@pytest.fixture
def path(runtime_dir):
    return runtime_dir / "our.ipc"


@pytest.fixture
def pub():
    with publisher(ring_size=4, fps=30.0) as it:
        yield it


@pytest.fixture
def server(pub, path):
    with serve_host("cam", path) as it:
        yield it


@pytest.fixture
def source(server):
    with Source(server.path) as it:
        yield it


def is_frame(have, seq):
    """Whether the pixels are those of that frame."""
    return have.luma(64, 48) == {value(seq)}


# --- Pipelines that behave ------------------------------------------------------------------------


def test_a_pipeline_is_told_of_the_stream_before_it_has_frames(source):
    pid, is_mmap, caps = source.config()
    assert (pid, is_mmap) == (os.getpid(), True)
    assert caps == (
        "video/x-raw(memory:CUDAMemory), format=(string)NV12, width=(int)64, height=(int)48, "
        "framerate=(fraction)30/1, pixel-aspect-ratio=(fraction)1/1"
    )


def test_frames_lie_where_the_publisher_wrote_them(pub, source):
    source.config()
    for _ in range(10):
        seq = publish(pub)
        have = source.take()
        assert is_frame(have, seq)
        assert (have.pitch, have.caps) == (256, None)
        assert have.offsets[1] - have.offsets[0] == 256 * 48
        assert have.offsets[2:] == [0, 0]
        assert have.size == have.offsets[0] + 256 * (48 + 24) <= have.max_size
        source.release(have)


def test_the_memory_is_the_publisher_s_and_the_server_maps_none(pub, source):
    # lifetime.md, 4
    source.config()
    publish(pub)
    have = source.take()
    maps = Path("/proc/self/maps").read_text().splitlines()
    assert sum(line.split()[4] == str(have.identity) for line in maps) == 2  # pub's and have's


def test_our_own_client_reads_it(pub, server):
    def publish_numbered():
        slot = pub.acquire()
        return pub.publish(slot, pts_ns=fill(slot))

    publish_numbered()
    with gst.subscribe(server.path, "x", "newest", importer=HostImporter()) as sub:
        for _ in range(20):
            seq = publish_numbered()
            frame = sub.next(10)
            while frame.pts_ns < seq:
                frame = sub.next(10)
            assert wrong(frame.planes, seq) == ""
            assert (frame.width, frame.height, frame.format) == (64, 48, "nv12")
            frame.release()
        assert sub.info.memory == "gst (mmap)"
        assert [reader.name[:4] for reader in pub.info.subscribers] == ["gst:"]


def test_the_frame_that_is_there_is_given_at_once_and_once(pub, source):
    seq = publish(pub, 3)
    source.config()
    have = source.take()
    assert is_frame(have, seq)
    source.release(have)
    source.say(Kind.NEED_DATA)
    source.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        source.packet()
    source.sock.settimeout(20)
    assert is_frame(source.have() if publish(pub) else None, 4)


def test_a_slow_pipeline_skips(pub, source):
    source.config()
    publish(pub)
    have = source.take()
    source.release(have)
    publish(pub, 20)
    assert is_frame(source.take(), 21)


def test_times_are_the_publisher_s(pub, source):
    source.config()
    with pub.acquire() as slot:
        slot.pts_ns = 123_456_789
    assert source.take().pts == 123_456_789
    with pub.acquire() as slot:
        slot.pts_ns = -5  # there is none before the clock's beginning
    assert source.take().pts == 0


def test_a_held_frame_is_not_written(pub, source):
    # lifetime.md, 1
    source.config()
    held = []
    for _ in range(2):  # of a ring of 4
        publish(pub)
        held.append(source.take())
    publish(pub, 12)
    assert is_frame(held[0], 1)
    assert is_frame(held[1], 2)
    assert len({have.token for have in held}) == 2
    assert sum(reader.holds for reader in pub.info.subscribers) == 2
    source.release(held[1])  # in any order
    until(lambda: pub.info.subscribers[0].holds == 1)
    publish(pub, 12)
    assert is_frame(held[0], 1)


def test_a_pipeline_that_holds_all_it_may_waits_and_nobody_else(pub, server, source):
    # lifetime.md, 2
    source.config()
    held = []
    for _ in range(2):
        publish(pub)
        held.append(source.take())
    source.say(Kind.NEED_DATA)
    publish(pub)
    with Source(server.path) as other:
        other.config()
        for _ in range(8):
            seq = publish(pub)
            have = other.take()
            assert is_frame(have, seq)
            other.release(have)
    source.sock.settimeout(0.2)
    with pytest.raises(TimeoutError):
        source.packet()
    source.sock.settimeout(20)
    source.release(held[0])
    assert is_frame(source.have(), seq)
    assert pub.stats.dropped == 0


def test_one_slot_has_one_token_and_no_other_has_it(pub, source):
    source.config()
    tokens, files = {}, set()
    for _ in range(24):
        publish(pub)
        have = source.take()
        assert tokens.setdefault(have.token, have.offsets[0]) == have.offsets[0]
        files.add(have.identity)
        source.release(have)
    assert len(tokens) == len(set(tokens.values())) <= 4
    assert len(files) == 1


def test_a_new_size_comes_with_new_caps_and_new_tokens(pub, source):
    source.config()
    publish(pub)
    old = source.take()
    pub.reconfigure(width=32, height=16, fps=30000 / 1001)
    publish(pub)
    new = source.take()
    caps = parse_caps(new.caps)
    assert (caps.width, caps.height, round(caps.fps, 2)) == (32, 16, 29.97)
    assert "framerate=(fraction)30000/1001" in new.caps
    assert new.token != old.token
    assert new.luma(32, 16) == {value(2)}
    assert is_frame(old, 1)
    source.release(old)
    source.release(new)
    publish(pub)
    assert source.take().caps is None


def test_colours_are_told_where_they_are_known(path):
    color = cf.ColorSpec("bt709", "full", "bt709", "bt709")
    with publisher(color=color) as pub, serve_host("cam", path) as server:
        with Source(server.path) as source:
            _, _, caps = source.config()
        assert "colorimetry=(string)1:3:5:1" in caps
        assert parse_caps(caps).color == color
        pub.reconfigure(color=cf.ColorSpec("bt709", "limited", "bt709", "bt709"))
        with Source(server.path) as source:
            assert source.config()[2].endswith("colorimetry=(string)bt709")


def test_the_end_of_the_stream_is_the_end_for_pipelines(pub, server, source):
    source.config()
    publish(pub)
    have = source.take()
    source.say(Kind.NEED_DATA)
    pub.close()
    assert source.packet() == (Kind.EOS, b"")
    assert is_frame(have, 1)
    source.release(have)
    source.say(Kind.FIN)
    assert source.ended()
    until(lambda: server.clients == 0)
    with Source(server.path) as later, publisher(width=32, height=16):
        assert "width=(int)32" in later.config()[2]


def test_closing_tells_pipelines_and_waits_until_they_have_gone(pub, path):
    server = serve_host("cam", path)
    with Source(path) as source, Source(path) as idle:
        source.config()
        idle.config()
        publish(pub)
        have = source.take()
        closer = threading.Thread(target=server.close)
        closer.start()
        assert source.packet() == (Kind.EOS, b"")
        source.say(Kind.NEED_DATA)  # it may not have read that yet
        source.release(have)
        source.say(Kind.FIN)
        assert source.ended()
        assert idle.packet() == (Kind.EOS, b"")
        idle.sock.close()
        closer.join(20)
    assert server.closed
    assert "closed" in repr(server)
    assert not path.exists()
    until(lambda: pub.stats.subscribers == 0)
    server.close()


def test_a_pipeline_that_stays_is_cut_off(pub, path, monkeypatch):
    monkeypatch.setattr(client_module, "_LINGER_SECONDS", 0.1)
    with serve_host("cam", path) as server, Source(path) as source:
        source.config()
        publish(pub)
        source.take()
        server.close()
        assert source.ended()
    until(lambda: pub.stats.subscribers == 0)
    assert pub.stats.slots_leased == 0


def publish_until_killed(link):
    """Publish frames for good."""
    with publisher() as pub:
        publish(pub)
        link.say("ready")
        link.wait()


def test_a_publisher_that_is_killed_is_waited_for(path):
    # lifetime.md, 3
    with child(publish_until_killed) as first:
        first.expect("ready")
        server, source = serve_host("cam", path), Source(path)
        source.config()
        have = source.take()
        first.kill()
    with server, source:
        assert is_frame(have, 1)  # the memory outlives its maker
        source.say(Kind.NEED_DATA)
        with publisher(width=32, height=16) as pub:
            publish(pub)
            new = source.have()
            source.say(Kind.READ_DONE)
            assert "width=(int)32" in new.caps
            assert new.token != have.token
            source.release(have)
            source.release(new)


def read_and_die(link, path):
    """Take a frame and be killed with it."""
    with Source(path) as source:
        source.config()
        source.take()
        link.say("holds")
        link.wait()


def test_a_pipeline_that_dies_gives_back_what_it_held(pub, server):
    # lifetime.md, 3
    publish(pub)
    with child(read_and_die, str(server.path)) as reader:
        reader.expect("holds")
        assert pub.info.subscribers[0].holds == 1
        reader.kill()
    until(lambda: pub.stats.subscribers == 0)
    assert pub.stats.slots_leased == 0
    until(lambda: server.clients == 0)


def test_a_stopped_publisher_holds_up_no_release(path):
    with child(publish_until_killed) as other:
        other.expect("ready")
        with serve_host("cam", path) as server, Source(path) as source:
            source.config()
            have = source.take()
            os.kill(other.pid, signal.SIGSTOP)
            source.release(have)
            source.say(Kind.FIN)
            assert source.ended()
            until(lambda: server.clients == 0)
            os.kill(other.pid, signal.SIGCONT)


# --- Whom and what it serves ----------------------------------------------------------------------


def test_streams_are_named_as_everywhere(pub, path):
    with cf.subscribe("cam") as sub:
        for named in ("cam", "cuframes://cam", pub.info.path, pub, sub):
            with pytest.raises(cf.UnsupportedError, match=r"memory of kind host.*memory='cuda'"):
                gst.serve(named, path)
    assert not path.exists()


def test_a_stream_that_is_not_there_is_waited_for(path):
    with pytest.raises(cf.StreamNotFoundError, match="no stream 'cam'"):
        serve_host("cam", path, timeout=0)
    timer = threading.Timer(0.2, lambda: made.append(publisher()))
    made = []
    timer.start()
    with serve_host("cam", path, timeout=None) as server:
        assert server.clients == 0
        assert "0 connected" in repr(server)
    made[0].close()


def test_a_pipeline_s_own_stream_is_refused(path):
    with pytest.raises(cf.UnsupportedError, match="have cudaipcsrc read /tmp/there"):
        gst.serve("gst:///tmp/there", path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format": "gray8"}, "know no format gray8; publish one of nv12"),
        ({"pitch": (256, 512)}, "one pitch for all planes, and this stream's have 256, 512"),
    ],
)
def test_frames_that_gstreamer_has_no_words_for(path, changes, message):
    with publisher(**changes), pytest.raises(cf.UnsupportedError, match=message):
        serve_host("cam", path)
    assert not path.exists()


def test_a_stream_that_becomes_unreadable_ends_the_connection(pub, source, caplog):
    source.config()
    pub.reconfigure(format="gray8")
    publish(pub)
    source.say(Kind.NEED_DATA)
    assert source.ended()
    until(lambda: "know no format gray8" in caplog.text)


def test_only_its_user_may_connect(server):
    # lifetime.md, 8
    assert stat.S_IMODE(server.path.stat().st_mode) == 0o600


def test_a_stale_socket_is_replaced_and_a_live_one_is_not(pub, path):
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with serve_host("cam", path):
        with pytest.raises(cf.StreamExistsError, match="somebody listens"):
            serve_host("cam", path)
        with Source(path) as source:
            source.config()
    assert not path.exists()


def test_no_runtime_directory_of_its_own_is_needed(pub, path, monkeypatch):
    where = pub.info.path
    monkeypatch.setenv("CUFRAMES_RUNTIME_DIR", "/nowhere")
    with serve_host(where, path), Source(path) as source:
        source.config()
    assert {one.name for one in path.parent.iterdir()} == {where.name, f".lock-{os.geteuid()}"}


def test_two_servers_do_not_take_over_one_socket(pub, path, monkeypatch):
    monkeypatch.setattr(listener_module, "_LOCK_SECONDS", 0.05)
    with OwnedFd(os.open(path.parent, os.O_RDONLY)) as held:
        fcntl.flock(held.fileno(), fcntl.LOCK_EX)
        with pytest.raises(cf.FrameTimeout, match="fuser"):
            serve_host("cam", path)
    assert not path.exists()


def test_what_is_no_socket_is_left_alone(pub, path):
    path.write_text("mine")
    with pytest.raises(cf.StreamExistsError, match="no socket"):
        serve_host("cam", path)
    assert path.read_text() == "mine"
    with pytest.raises(cf.AccessDeniedError, match="a directory that exists"):
        serve_host("cam", path.parent / "none" / "x")
    with pytest.raises(cf.InvalidArgumentError, match="107"):
        gst.serve("cam", path.parent / ("x" * 120))


def test_the_socket_of_a_successor_is_left_alone(pub, path):
    with serve_host("cam", path):
        path.unlink()
        path.write_text("new")
    assert path.read_text() == "new"


# --- Pipelines that do not behave -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "why"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "no cudaipcsrc"),
        (struct.pack("<BII", Kind.NEED_DATA, 0, 0xC0DA10C1), "no cudaipcsrc"),
        (struct.pack("<BII", Kind.CONFIG, 0, MAGIC), "type 1"),
        (struct.pack("<BII", 77, 0, MAGIC), "type 77"),
        (struct.pack("<BII", Kind.RELEASE_DATA, 64, MAGIC), "type 5"),
        (struct.pack("<BII", Kind.NEED_DATA, 2**32 - 1, MAGIC), "4294967295 bytes"),
        (struct.pack("<BII", Kind.RELEASE_MMAP_DATA, 64, MAGIC), "64 bytes"),
        (struct.pack("<BII", Kind.READ_DONE, 0, MAGIC), "READ_DONE"),
        (struct.pack("<BIIi", Kind.RELEASE_MMAP_DATA, 4, MAGIC, 3), "RELEASE_MMAP_DATA"),
        (struct.pack("<BII", Kind.NEED_DATA, 0, MAGIC) * 2, "waits for a frame"),
    ],
)
def test_nonsense_ends_that_connection_alone(pub, server, caplog, said, why):
    # lifetime.md, 7
    with Source(server.path) as good, Source(server.path) as bad:
        good.config()
        bad.config()
        bad.sock.sendall(said)
        assert bad.ended()
        until(lambda: why in caplog.text)
        publish(pub)
        assert is_frame(good.take(), 1)


def test_a_frame_cannot_be_given_back_unread_or_twice(pub, server):
    publish(pub)
    with Source(server.path) as source:
        source.config()
        source.release(source.ask())
        assert source.ended()
    with Source(server.path) as source:
        source.config()
        have = source.take()
        source.release(have)
        source.release(have)
        assert source.ended()
    until(lambda: pub.stats.subscribers == 0)


def test_a_descriptor_from_a_client_ends_its_connection(source, caplog):
    source.config()
    with OwnedFd(os.memfd_create("x")) as fd:
        socket.send_fds(source.sock, [struct.pack("<BII", Kind.NEED_DATA, 0, MAGIC)], [fd.fileno()])
    assert source.ended()
    until(lambda: "sent a descriptor" in caplog.text)


def test_requests_may_come_in_any_pieces(pub, source):
    source.config()
    publish(pub)
    for byte in struct.pack("<BII", Kind.NEED_DATA, 0, MAGIC):
        source.sock.sendall(bytes([byte]))
    have = source.have()
    done = struct.pack("<BII", Kind.READ_DONE, 0, MAGIC)
    release = struct.pack("<BII", Kind.RELEASE_MMAP_DATA, 4, MAGIC) + have.token
    source.sock.sendall(done + release + struct.pack("<BII", Kind.NEED_DATA, 0, MAGIC))
    publish(pub)
    assert is_frame(source.have(), 2)


def test_a_client_that_reads_nothing_costs_nothing(pub, server):
    with Source(server.path) as source:
        source.say(Kind.NEED_DATA)
        publish(pub, 30)
        assert pub.stats.dropped == 0
        until(lambda: pub.info.subscribers and pub.info.subscribers[0].holds == 1)


def test_too_many_clients_wait(pub, server, monkeypatch):
    from cuframes_nb.bridges.gst import serving

    monkeypatch.setattr(serving, "_MOST_CLIENTS", 1)
    with Source(server.path) as one, Source(server.path) as two:
        one.config()
        assert server.clients == 1
        one.say(Kind.FIN)
        two.config()


def test_nothing_grows(pub, server):
    # lifetime.md, 12
    publish(pub)
    for round_ in range(30):
        with Source(server.path) as source:
            source.config()
            have = source.take()
            have.memory.close()
            if round_ % 2:
                source.release(have)
        until(lambda: server.clients == 0)
        if round_ == 5:
            gc.collect()
            before = len(open_fds())
    until(lambda: len(open_fds()) <= before)


def test_a_server_that_is_dropped_ends(pub, path):
    serve_host("cam", path)
    gc.collect()
    until(lambda: not path.exists())


# --- Memory that is handed on ---------------------------------------------------------------------

LAYOUT = FrameLayout.make("nv12", 64, 48)  # 18,432 bytes
PAGE = 2**21


def slot_at(offset, *sizes):
    """Return a slot in a run of allocations of these sizes."""
    descriptions = [
        ArenaDescription(MemoryKind.CUDA_VMM, size, continues=number > 0)
        for number, size in enumerate(sizes)
    ]
    parts = [Part(one, OwnedFd(os.memfd_create("arena"))) for one in descriptions]
    forwarder = Forwarder()
    arena = forwarder.backend_for(descriptions[0]).attach_arena(parts, writable=False)
    assert all(part.fd.closed for part in parts)  # it has taken them over
    return arena, forwarder.planes(arena, offset, LAYOUT)


def test_a_slot_is_told_within_its_own_allocation():
    arena, slot = slot_at(PAGE + 512, PAGE, 2 * PAGE)
    place = slot.place()
    assert (place.max_size, place.pitch) == (2 * PAGE, 256)
    assert place.offsets == (512, 512 + 48 * 256, 0, 0)
    assert place.size == 512 + LAYOUT.nbytes
    assert place is slot.place()
    arena.close()
    assert place.fd.closed


@pytest.mark.parametrize(
    ("offset", "sizes", "message"),
    [
        (PAGE - 4096, (PAGE, PAGE), "across two allocations"),
        (0, (2**32,), "smaller ring_size"),
    ],
)
def test_what_does_not_go_over_the_wire(offset, sizes, message):
    arena, slot = slot_at(offset, *sizes)
    with pytest.raises(cf.UnsupportedError, match=message):
        slot.place()
    arena.close()


@pytest.mark.parametrize(
    ("kind", "way_out"),
    [
        (MemoryKind.HOST, "memory='cuda'"),
        (MemoryKind.CUDA_IPC, "ownership='library'"),
        (MemoryKind.VULKAN, r"Publisher\.write"),
    ],
)
def test_kinds_of_memory_that_are_not_handed_on(kind, way_out):
    with pytest.raises(cf.UnsupportedError, match=way_out):
        Forwarder().backend_for(ArenaDescription(kind, PAGE))
