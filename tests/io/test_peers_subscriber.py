"""A subscriber and publishers that send what they should not."""

import contextlib
import dataclasses
import fcntl
import os
import socket
import threading

import pytest

import cuframes_nb as cf
from cuframes_nb._memory.host import HostArena
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.listener import Listener
from cuframes_nb._os.memfd import create_sealed
from cuframes_nb._wire.codec import encode
from cuframes_nb._wire.control import CONTROL_NBYTES, Record
from cuframes_nb._wire.messages import (
    ArenaDescription,
    Goodbye,
    MemoryKind,
    Refuse,
    SlotPlace,
    Status,
    Tiling,
    Welcome,
)
from tests.helpers.frames import check, publish, publisher

ADD_SEALS = 1033


class Fake:
    """What a publisher's side of one connection can say, true or not."""

    def __init__(self, sock, ring):
        self.sock = sock
        self.ring = ring
        self.senders = []

    def say(self, message, fds=(), change=bytes):
        """Send a message; `change` may spoil its bytes. Closes `fds`."""
        try:
            self.sock.send(change(encode(message)), fds)
        finally:
            for fd in fds:
                fd.close()

    def welcome(self, index=0, start=0):
        sender, receiver = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.senders.append(sender)
        self.say(Welcome("cam", os.getpid(), index, start), [OwnedFd(receiver.detach())])

    def epoch(self, message=None, control=None, pixels=None):
        """Send the ring's epoch, with other parts where given."""
        fds = self.ring.export()
        for index, other in enumerate((control, pixels)):
            if other is not None:
                fds[index].close()
                fds[index] = other
        self.say(message or self.ring.message, fds)

    def hear(self):
        packet = self.sock.receive_within(cf.now_ns() / 1e9 + 30)
        return packet and packet.data

    def close(self):
        for sender in self.senders:
            sender.close()
        self.sock.close()


@contextlib.contextmanager
def fake_publisher(script):
    """Run ``script(fake)`` for each connection to ``cam``, once its first message is there.

    What is true in what it says is of another publisher's ring. That one is returned.
    """
    pub = publisher("true")
    listener = Listener("cam")
    stop = threading.Event()
    failures, fakes = [], []

    def serve():
        while not stop.wait(0.002):
            sock = listener.accept()
            if sock is None:
                continue
            fake = Fake(sock, pub._ring)
            fakes.append(fake)
            try:
                fake.hear()
                script(fake)
            except (BrokenPipeError, ConnectionResetError):
                pass  # the subscriber had enough
            except Exception as error:  # noqa: BLE001  told by the test's own thread
                failures.append(error)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield pub
    finally:
        stop.set()
        thread.join()
        for fake in fakes:
            fake.close()
        listener.close()
        pub.close()
        assert failures == []


def with_ring(message, **changes):
    return dataclasses.replace(message, ring=dataclasses.replace(message.ring, **changes))


def memfd(nbytes, seals=None):
    fd = OwnedFd(os.memfd_create("test", os.MFD_ALLOW_SEALING))
    os.ftruncate(fd.fileno(), nbytes)
    if seals is not None:
        fcntl.fcntl(fd.fileno(), ADD_SEALS, seals)
    return fd


def small_sealed(nbytes):
    fd, mapping = create_sealed("test", nbytes)
    mapping.close()
    return fd


def devnull():
    return OwnedFd(os.open("/dev/null", os.O_RDONLY))


def other_version(fake):
    fake.say(
        Welcome("cam", 1, 0, 0), [devnull()], change=lambda data: data[:4] + b"\x07" + data[5:]
    )


def say_nothing_more(fake):
    del fake


def no_descriptor(fake):
    fake.say(Welcome("cam", 1, 0, 0))


def too_many_for_welcome(fake):
    fake.say(Welcome("cam", 1, 0, 0), [devnull(), devnull()])


def a_file_to_wake(fake):
    fake.say(Welcome("cam", 1, 0, 0), [devnull()])


def index_too_high(fake):
    fake.say(Welcome("cam", 1, 256, 0), [devnull()])


def epoch_first(fake):
    fake.epoch()


def status_first(fake):
    fake.say(Status("cam", 1, 1, 1, 0, 0, 0, fake.ring.description, ()))


def goodbye_first(fake):
    fake.say(Goodbye("no"))


def welcome_twice(fake):
    fake.welcome()
    fake.welcome()


def too_few_for_epoch(fake):
    fake.welcome()
    control, pixels = fake.ring.export()
    pixels.close()
    fake.say(fake.ring.message, [control])


def too_many_for_epoch(fake):
    fake.welcome()
    fake.say(fake.ring.message, [*fake.ring.export(), devnull()])


def far_too_many_for_epoch(fake):
    fake.welcome()
    fake.say(fake.ring.message, [*fake.ring.export(), *(devnull() for _ in range(150))])


def unsealed_pixels(fake):
    fake.welcome()
    fake.epoch(pixels=memfd(1 << 20))


def half_sealed_pixels(fake):
    fake.welcome()
    fake.epoch(pixels=memfd(1 << 20, seals=0x4))


def unsealed_control(fake):
    fake.welcome()
    fake.epoch(control=memfd(CONTROL_NBYTES))


def file_for_pixels(fake):
    fake.welcome()
    fake.epoch(pixels=OwnedFd(os.open(__file__, os.O_RDONLY)))


def pipe_for_control(fake):
    fake.welcome()
    fake.epoch(control=OwnedFd(os.open("/dev/null", os.O_RDONLY)))


def small_pixels(fake):
    fake.welcome()
    fake.epoch(pixels=small_sealed(4096))


def small_control(fake):
    fake.welcome()
    fake.epoch(control=small_sealed(4096))


def zeroed_control(fake):
    fake.welcome()
    fake.epoch(control=small_sealed(CONTROL_NBYTES))


def swapped(fake):
    fake.welcome()
    control, pixels = fake.ring.export()
    fake.say(fake.ring.message, [pixels, control])


def other_epoch(fake):
    fake.welcome()
    fake.epoch(dataclasses.replace(fake.ring.message, epoch=2))


def other_control_size(fake):
    fake.welcome()
    fake.epoch(dataclasses.replace(fake.ring.message, control_nbytes=1 << 30))


def slot_behind_the_arena(fake):
    fake.welcome()
    fake.epoch(with_ring(fake.ring.message, slots=(SlotPlace(0, 1 << 40),)))


def slot_at_the_end_of_numbers(fake):
    fake.welcome()
    fake.epoch(with_ring(fake.ring.message, slots=(SlotPlace(0, 2**64 - 1),)))


def slot_in_no_arena(fake):
    fake.welcome()
    fake.epoch(with_ring(fake.ring.message, slots=(SlotPlace(9, 0),)))


def no_slots(fake):
    fake.welcome()
    fake.epoch(with_ring(fake.ring.message, slots=()))


def too_many_slots(fake):
    fake.welcome()
    fake.epoch(with_ring(fake.ring.message, slots=(SlotPlace(0, 0),) * 65))


def arena_larger_than_said(fake):
    fake.welcome()
    arena = ArenaDescription(MemoryKind.HOST, 1 << 50)
    fake.epoch(with_ring(fake.ring.message, arenas=(arena,)))


def arena_without_descriptor(fake):
    fake.welcome()
    control, pixels = fake.ring.export()
    pixels.close()
    arena = dataclasses.replace(fake.ring.message.ring.arenas[0], has_fd=False)
    fake.say(with_ring(fake.ring.message, arenas=(arena,)), [control])


def tiled_and_out_of_range(fake):
    fake.welcome()
    arena = dataclasses.replace(fake.ring.message.ring.arenas[0], tiling=Tiling.OPTIMAL)
    fake.epoch(with_ring(fake.ring.message, arenas=(arena,), slots=(SlotPlace(0, 1 << 40),)))


SPOILED = {
    other_version: r"speaks protocol 7\.0 and this one 1\.0",
    no_descriptor: "came with 0 descriptors, says 1 and needs 1",
    too_many_for_welcome: "came with 2 descriptors",
    a_file_to_wake: "something else than a socket",
    index_too_high: "index 256 is above 255",
    epoch_first: "may not say Epoch on a connection that is greeted",
    status_first: "may not say Status",
    goodbye_first: "may not say Goodbye",
    welcome_twice: "may not say Welcome",
    too_few_for_epoch: "came with 1 descriptors, says 2",
    too_many_for_epoch: "came with 3 descriptors, says 2",
    far_too_many_for_epoch: "too many descriptors",
    unsealed_pixels: "pixels that is not sealed against shrinking",
    half_sealed_pixels: "pixels that is not sealed against shrinking",
    unsealed_control: "control block that is not sealed",
    file_for_pixels: "pixels that is no memory file",
    pipe_for_control: "control block that is no memory file",
    small_pixels: "says that pixels has",
    small_control: "says that the control block has 8192 bytes, but its memory has 4096",
    zeroed_control: "control block is not that of epoch 1",
    swapped: "control block is not that of epoch 1|says that pixels has",
    other_epoch: "control block is not that of epoch 2",
    other_control_size: "control block has 1073741824 bytes and not 8192",
    slot_behind_the_arena: "slot 0 ends at byte",
    slot_at_the_end_of_numbers: "slot 0 ends at byte",
    slot_in_no_arena: "slot 0 lies in arena 9 of 1",
    no_slots: "at least one arena and one slot",
    too_many_slots: "at most 64 are allowed",
    arena_larger_than_said: "says that pixels has",
    tiled_and_out_of_range: "cannot be tiled",
}


@pytest.mark.parametrize("script", SPOILED, ids=lambda script: script.__name__)
def test_a_publisher_that_lies_is_refused(script):
    # lifetime.md, 7
    with (
        fake_publisher(script),
        pytest.raises(cf.RemoteProtocolError, match=SPOILED[script]) as caught,
    ):
        cf.subscribe("cam")
    assert caught.value.code == "protocol"
    assert isinstance(caught.value, cf.VersionMismatchError) == (script is other_version)


def test_memory_without_its_descriptor_is_refused():
    # lifetime.md, 7
    with (
        fake_publisher(arena_without_descriptor),
        pytest.raises(cf.RemoteProtocolError, match="without a descriptor"),
    ):
        cf.subscribe("cam")


def test_silence_is_timed():
    with fake_publisher(say_nothing_more), pytest.raises(cf.FrameTimeout, match="did not answer"):
        cf.subscribe("cam", timeout=0.05)
    with (
        fake_publisher(Fake.welcome),
        pytest.raises(cf.FrameTimeout, match="did not answer in time") as caught,
    ):
        cf.subscribe("cam", timeout=0.05)
    assert caught.value.code == "timeout"


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ("permission", cf.AccessDeniedError),
        ("in-use", cf.InUseError),
        ("protocol", cf.RemoteProtocolError),
        ("moon", cf.PublisherGoneError),
    ],
)
def test_a_refusal_is_the_matching_error(reason, error):
    def refuse(fake):
        fake.say(Refuse(reason, "not today"))

    with fake_publisher(refuse), pytest.raises(error, match="not today"):
        cf.subscribe("cam", timeout=0)


def test_the_fake_can_tell_the_truth():
    def honest(fake):
        fake.welcome()
        fake.epoch()

    with fake_publisher(honest) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        check(sub.next(timeout=10))


@pytest.mark.parametrize("mode", ["newest", "strict"])
def test_a_record_with_another_number_ends_the_connection(mode):
    # lifetime.md, 7
    def honest(fake):
        fake.welcome()
        fake.epoch()

    with fake_publisher(honest) as pub, cf.subscribe("cam", mode) as sub:
        ring = pub._ring
        ring.control.write_record(0, Record(6, 0, 1))
        ring.control.complete(0, 5)
        ring.control.announce(0, Record(5, 0, 1))
        with pytest.raises(cf.RemoteProtocolError, match="announced as frame 5 and recorded as 6"):
            sub.next(timeout=10)
        assert ring.slots_leased() == 0
        assert "waiting" in repr(sub)
        ring.control.complete(0, 0)


@pytest.mark.parametrize(
    ("script", "says"),
    [
        (unsealed_pixels, "not sealed"),
        (small_pixels, "says that pixels has"),
        (too_few_for_epoch, "came with 1"),
        (welcome_twice, "may not say Welcome"),
    ],
)
def test_a_later_lie_ends_the_connection_and_leaves_the_frames(script, says):
    # lifetime.md, 6 and 7
    fakes = []

    def turns(fake):
        fakes.append(fake)
        fake.welcome()
        fake.epoch()

    with fake_publisher(turns) as pub, cf.subscribe("cam") as sub:
        publish(pub)
        frame = sub.next(timeout=10)
        fake = fakes[0]
        if script is not welcome_twice:
            fake.welcome = lambda: None  # that was said already
        script(fake)
        with pytest.raises(cf.RemoteProtocolError, match=says):
            sub.next(timeout=10)
        check(frame)


def test_the_true_publisher_is_found_after_a_false_one():
    # lifetime.md, 7
    with fake_publisher(unsealed_pixels), pytest.raises(cf.RemoteProtocolError):
        cf.subscribe("cam")
    with publisher() as pub, cf.subscribe("cam") as sub:
        publish(pub)
        check(sub.next(timeout=10))


def test_memory_that_was_attached_is_not_handed_on():
    # lifetime.md, 7
    arena = HostArena.create(4096)
    attached = HostArena.attach(arena.describe(), arena.export())
    with pytest.raises(cf.CuframesError, match="not handed on"):
        attached.export()
    attached.close()
    arena.close()
