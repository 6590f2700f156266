"""What ``cudaipcsrc`` says to a sink, byte by byte, and a server of streams in host memory."""

import mmap
import os
import socket
import struct

from cuframes_nb._api.address import Address
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._wire.messages import MemoryKind
from cuframes_nb.bridges.gst.caps import parse_caps
from cuframes_nb.bridges.gst.messages import HEADER, MAGIC, Kind
from cuframes_nb.bridges.gst.serving import Server, _Feeds

__all__ = ["Have", "Source", "serve_host"]


def serve_host(source, path, *, timeout=5.0):
    """Serve a stream whose memory is a memfd, which stands for the GPU's."""
    return Server(_Feeds(Address(source), frozenset(), {MemoryKind.HOST}), path, timeout)


class Have:
    """A frame that was offered, its memory mapped."""

    def __init__(self, payload, fd):
        self.pts, self.size, self.max_size, self.pitch, *self.offsets = struct.unpack_from(
            "<QIII4I", payload
        )
        self.token = payload[36:40]
        (length,) = struct.unpack_from("<I", payload, 40)
        self.caps = payload[44 : 44 + length - 1].decode() if length else None
        assert payload[44 + length :] == bytes(4)  # no metas
        self.identity = os.fstat(fd).st_ino
        with OwnedFd(fd):
            self.memory = mmap.mmap(fd, self.max_size, prot=mmap.PROT_READ)

    def luma(self, width, height):
        """Return the values that the first plane has."""
        rows = range(self.offsets[0], self.offsets[0] + height * self.pitch, self.pitch)
        return {value for row in rows for value in self.memory[row : row + width]}


class Source:
    """A client in raw bytes; reads as GStreamer's does, in exact sizes."""

    def __init__(self, path):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(20)
        self.sock.connect(str(path))

    def config(self):
        """Return pid, mode and caps of the first packet."""
        kind, payload = self.packet()
        assert kind is Kind.CONFIG
        pid, is_mmap = struct.unpack_from("<iI", payload)
        assert payload.endswith(b"\0")
        text = payload[8:-1].decode()
        parse_caps(text)
        return pid, bool(is_mmap), text

    def say(self, kind, payload=b""):
        """Send a packet."""
        self.sock.sendall(struct.pack("<BII", kind, len(payload), MAGIC) + payload)

    def ask(self):
        """Ask for a frame and return it; None at the end of the stream."""
        self.say(Kind.NEED_DATA)
        return self.have()

    def have(self):
        """Return the frame that comes; None at the end of the stream."""
        kind, payload = self.packet()
        if kind is Kind.EOS:
            return None
        assert kind is Kind.HAVE_MMAP_DATA
        data, fds, flags, _ = socket.recv_fds(self.sock, 1, 4)
        assert (data, len(fds), flags & socket.MSG_CTRUNC) == (b"\0", 1, 0)
        return Have(payload, fds[0])

    def take(self):
        """Ask for a frame and say that it was read."""
        have = self.ask()
        self.say(Kind.READ_DONE)
        return have

    def release(self, have):
        """Give a frame back."""
        self.say(Kind.RELEASE_MMAP_DATA, have.token)

    def packet(self):
        """Return kind and payload of the next packet, None at the end."""
        head = self.exactly(HEADER.size)
        if not head:
            return None
        kind, length, magic = HEADER.unpack(head)
        assert magic == MAGIC
        return Kind(kind), self.exactly(length)

    def exactly(self, count):
        """Return so many bytes, fewer only at the end of the connection."""
        data = b""
        while len(data) < count:
            try:
                more = self.sock.recv(count - len(data))
            except ConnectionResetError:
                more = b""
            if not more:
                break
            data += more
        return data

    def ended(self):
        """Wait for the end of the connection, passing over what comes before."""
        while self.exactly(1):
            pass
        return True

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.sock.close()
