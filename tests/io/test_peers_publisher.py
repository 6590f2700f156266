"""A publisher among peers that send what they should not."""

import contextlib
import os
import socket
import struct
import threading

import pytest

import cuframes_nb as cf
from cuframes_nb._runtime import hub as hub_module
from cuframes_nb._wire.codec import HEADER, MAGIC, decode, encode
from cuframes_nb._wire.messages import (
    Epoch,
    Goodbye,
    Hello,
    Passed,
    Query,
    ReadMode,
    Refuse,
    Status,
    Welcome,
)
from tests.helpers.frames import check, publish, publisher, until
from tests.helpers.leaks import open_fds

HELLO = encode(Hello(1, ReadMode.STRICT, "peer"))


def raw(pub):
    """Return a bare connection to a publisher."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sock.settimeout(30)

    def connect():
        with contextlib.suppress(BlockingIOError):  # the queue is full
            sock.connect(str(pub.info.path))
            return True
        return False

    until(connect)
    return sock


def receive(sock):
    """Return the next message, or None at the end; closes its descriptors."""
    try:
        data, fds, _, _ = socket.recv_fds(sock, 65536, 64)
    except ConnectionResetError:
        return None
    for fd in fds:
        os.close(fd)
    return decode(data, len(fds)) if data else None


def everything(sock):
    """Return all messages until the end."""
    messages = []
    while (message := receive(sock)) is not None:
        messages.append(message)
    return messages


def changed(data, at, value):
    return data[:at] + value + data[at + len(value) :]


def packet(code, body=b"", *, version=(1, 0), length=None, fds=0):
    size = HEADER.size + len(body) if length is None else length
    return HEADER.pack(MAGIC, *version, code, size, fds, 0) + body


GARBAGE = {
    "one byte": (b"x", "shorter than a header"),
    "noise": (os.urandom(500), "other side is no cuframes_nb"),
    "zeros": (bytes(64), "other side is no cuframes_nb"),
    "http": (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "other side is no cuframes_nb"),
    "magic": (changed(HELLO, 0, b"CFNX"), "other side is no cuframes_nb"),
    "major": (changed(HELLO, 4, b"\x09"), r"speaks protocol 9\.0 and this one 1\.0"),
    "truncated": (HELLO[:-1], "says that it has"),
    "cut at the header": (HELLO[: HEADER.size], "says that it has"),
    "cut and honest": (packet(1, b"\1\0"), "inside a field"),
    "trailing": (packet(1, HELLO[HEADER.size :] + b"more"), "4 bytes too many"),
    "long": (packet(1, bytes(60000)), "not a valid ReadMode|bytes too many"),
    "too long": (bytes(70000), "too many bytes"),
    "unknown type": (packet(99), "message type 99 does not exist"),
    "mode": (packet(1, struct.pack("<IBH", 1, 7, 0)), "not a valid ReadMode"),
    "name": (packet(1, struct.pack("<IBH", 1, 1, 65)), "at most 64 are allowed"),
    "text": (packet(1, struct.pack("<IBH", 1, 1, 2) + b"\xff\xfe"), "not UTF-8"),
    "passed first": (encode(Passed(5)), "may not say Passed on a connection that is new"),
    "goodbye": (encode(Goodbye("x")), "may not say Goodbye"),
    "refuse": (encode(Refuse("x", "y")), "may not say Refuse"),
    "welcome": (packet(2, struct.pack("<IHQH", 1, 0, 0, 0), fds=1), "came with 0 descriptors"),
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_with_the_reason(name):
    # lifetime.md, 7
    data, says = GARBAGE[name]
    with publisher() as pub, cf.subscribe("cam") as sub:
        with raw(pub) as sock:
            sock.send(data)
            (refusal,) = everything(sock)
            assert isinstance(refusal, Refuse)
            assert refusal.reason == "protocol"
            with pytest.raises(AssertionError, match=says):
                raise AssertionError(refusal.text)
        publish(pub)
        check(sub.next(timeout=10))
        assert pub.stats.subscribers == 1


AFTERWARDS = {
    "a second hello": HELLO,
    "a query": encode(Query()),
    "noise": b"x" * 40,
    "an epoch": packet(3, bytes(100), fds=2),
}


@pytest.mark.parametrize("name", AFTERWARDS)
def test_garbage_after_the_handshake_ends_that_connection_only(name):
    # lifetime.md, 7
    with publisher() as pub, cf.subscribe("cam") as sub:
        with raw(pub) as sock:
            sock.send(HELLO)
            assert isinstance(receive(sock), Welcome)
            assert isinstance(receive(sock), Epoch)
            until(lambda: pub.stats.subscribers == 2)
            sock.send(AFTERWARDS[name])
            assert [type(m) for m in everything(sock)] == [Refuse]
        until(lambda: pub.stats.subscribers == 1)
        publish(pub)
        check(sub.next(timeout=10))


@pytest.mark.parametrize("count", [1, 3, 72, 100, 250])
def test_descriptors_where_none_belong_are_closed(count):
    # lifetime.md, 7 and 12
    with publisher() as pub, cf.subscribe("cam") as sub:
        until(lambda: pub.stats.subscribers == 1)
        before = len(open_fds())
        for message in (HELLO, encode(Query()), b"x"):
            with raw(pub) as sock:
                socket.send_fds(sock, [message], [0] * count)
                (refusal,) = everything(sock)
                assert refusal.reason == "protocol"
        until(lambda: len(open_fds()) == before)
        publish(pub)
        check(sub.next(timeout=10))


def test_an_empty_packet_ends_the_connection():
    with publisher() as pub, raw(pub) as sock:
        socket.send_fds(sock, [b""], [0])
        assert everything(sock) == []


def test_a_strict_peer_may_say_any_number():
    # lifetime.md, 7
    with (
        publisher(policy="strict-wait") as pub,
        cf.subscribe("cam", "strict") as sub,
        raw(pub) as sock,
    ):
        sock.send(HELLO)
        for seq in (2**64 - 1, 0, 5):
            sock.send(encode(Passed(seq)))
        until(lambda: pub.stats.subscribers == 2)
        for expected in range(1, 10):
            publish(pub)
            with sub.next(timeout=10) as frame:
                assert frame.seq == expected
                check(frame)


def test_a_query_is_answered_and_ends():
    with publisher() as pub, raw(pub) as sock:
        sock.send(encode(Query()))
        (status,) = everything(sock)
        assert isinstance(status, Status)
        assert status.key == "cam"


def test_idle_connections_are_dropped_and_harm_nobody(monkeypatch):
    # lifetime.md, 2 and 12
    monkeypatch.setattr(hub_module, "_HANDSHAKE_SECONDS", 0.3)
    with publisher() as pub, cf.subscribe("cam") as before:
        idle = [raw(pub) for _ in range(100)]
        try:
            with cf.subscribe("cam") as after:
                publish(pub)
                check(before.next(timeout=10))
                check(after.next(timeout=10))
            assert [everything(sock) for sock in idle] == [[]] * 100
        finally:
            for sock in idle:
                sock.close()
        publish(pub)
        check(before.next(timeout=10))


@pytest.mark.parametrize(
    "says",
    [b"", HELLO, HELLO + b"x", encode(Query())],
    ids=["nothing", "hello", "garbage", "query"],
)
def test_a_storm_of_connections_that_close_at_once(says):
    # lifetime.md, 2 and 12
    with publisher() as pub, cf.subscribe("cam") as sub:
        until(lambda: pub.stats.subscribers == 1)
        before = len(open_fds())

        def storm():
            for _ in range(150):
                with raw(pub) as sock:
                    if says:
                        sock.send(says)

        threads = [threading.Thread(target=storm) for _ in range(2)]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            publish(pub)
            check(sub.next(timeout=10))
        for thread in threads:
            thread.join()
        until(lambda: pub.stats.subscribers == 1 and len(open_fds()) == before)


def test_a_subscriber_that_never_reads_its_wake_ups_delays_nothing():
    # lifetime.md, 2
    with publisher() as pub, cf.subscribe("cam") as sub, raw(pub) as sock:
        sock.send(HELLO)
        until(lambda: pub.stats.subscribers == 2)
        for _ in range(10_000):  # its pipe holds 4096 wake-ups
            publish(pub)
        check(sub.next(timeout=10))


def test_a_subscriber_that_floods_delays_no_publish():
    # lifetime.md, 2
    with publisher() as pub, cf.subscribe("cam") as sub, raw(pub) as sock:
        sock.send(HELLO)
        stop = threading.Event()

        def flood():
            seq = 0
            while not stop.is_set():
                seq += 1
                sock.send(encode(Passed(seq)))

        thread = threading.Thread(target=flood)
        thread.start()
        for _ in range(200):
            publish(pub)
            check(sub.next(timeout=10))
        stop.set()
        thread.join()


def test_one_subscriber_too_many_is_told():
    with publisher() as pub:
        peers = []
        try:
            for _ in range(256):
                sock = raw(pub)
                peers.append(sock)
                sock.send(HELLO)
                assert isinstance(receive(sock), Welcome)
                assert isinstance(receive(sock), Epoch)
            with pytest.raises(cf.InUseError, match="256 subscribers, the most it may"):
                cf.subscribe("cam")
            peers.pop().close()
            until(lambda: pub.stats.subscribers == 255)
            with cf.subscribe("cam") as sub:
                publish(pub)
                check(sub.next(timeout=10))
            assert len(pub.info.subscribers) in {255, 256}
            (info,) = cf.list_streams()
            assert len(info.subscribers) >= 255
        finally:
            for sock in peers:
                sock.close()
