"""GStreamer's ``cudaipcsink`` in host memory, as the real one behaves; and one that misbehaves.

`Sink` follows the protocol, table by table; its "GPU memory" is a memfd, which `HostImporter` maps.
Frame *n* has the pts *n* and the pixels of `tests.helpers.frames`. `dialogue` lets a test say
whatever it wants, byte by byte.
"""

import contextlib
import os
import socket
import struct
import threading
import time
import weakref
from pathlib import Path

from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._runtime.leases import Lease
from cuframes_nb._views.host import HostPlanes
from cuframes_nb.bridges.gst.codec import packet
from cuframes_nb.bridges.gst.memory import Importer, Memory
from cuframes_nb.bridges.gst.messages import HEADER, MAGIC, Kind
from cuframes_nb.errors import RemoteProtocolError
from cuframes_nb.formats import FrameLayout
from tests.helpers.frames import value

__all__ = [
    "CAPS",
    "HostImporter",
    "Sink",
    "caps",
    "config",
    "dialogue",
    "have_data",
    "have_mmap_data",
    "receive",
    "run_sink",
    "send_fd",
]

PITCH = 256
ALIGNMENT = 4096


def caps(width=64, height=48, format_="NV12", rate="30/1", more=""):
    """Return caps as the sink writes them."""
    return (
        f"video/x-raw(memory:CUDAMemory), format=(string){format_}, width=(int){width}, "
        f"height=(int){height}, framerate=(fraction){rate}, pixel-aspect-ratio=(fraction)1/1{more}"
    )


CAPS = caps()


def config(text=CAPS, *, mmap=True, pid=None):
    """Return a CONFIG packet."""
    payload = struct.pack("<iI", os.getpid() if pid is None else pid, mmap) + text.encode() + b"\0"
    return packet(Kind.CONFIG, payload)


def _frame(token, *, pts, size, max_size, pitch, offsets, text, metas):
    said = b"" if text is None else text.encode() + b"\0"
    return (
        struct.pack("<QIII4I", pts, size, max_size, pitch, *offsets)
        + token
        + struct.pack("<I", len(said))
        + said
        + struct.pack("<I", len(metas))
        + metas
    )


def have_mmap_data(
    number=3, *, pts=1, size=18432, max_size=20480, pitch=PITCH, offsets=(0, 12288, 0, 0),
    text=None, metas=b"",
):  # fmt: skip
    """Return a HAVE_MMAP_DATA packet, by default that of a 64x48 NV12 frame; the fd comes after."""
    payload = _frame(
        struct.pack("<i", number), pts=pts, size=size, max_size=max_size, pitch=pitch,
        offsets=offsets, text=text, metas=metas,
    )  # fmt: skip
    return packet(Kind.HAVE_MMAP_DATA, payload)


def have_data(
    handle, *, pts=1, size=18432, pitch=PITCH, offsets=(0, 12288, 0, 0), text=None, metas=b""
):
    """Return a HAVE_DATA packet."""
    payload = _frame(
        handle, pts=pts, size=size, max_size=size, pitch=pitch, offsets=offsets, text=text,
        metas=metas,
    )  # fmt: skip
    return packet(Kind.HAVE_DATA, payload)


def send_fd(sock, *fds):
    """Send the byte that carries descriptors."""
    socket.send_fds(sock, [b"\0"], fds)


def receive(sock):
    """Return kind and payload of the next packet, None at the end."""
    head = _exactly(sock, HEADER.size)
    if head is None:
        return None
    kind, length, magic = HEADER.unpack(head)
    assert magic == MAGIC
    return Kind(kind), _exactly(sock, length)


def _exactly(sock, count):
    data = b""
    while len(data) < count:
        try:
            more = sock.recv(count - len(data))
        except ConnectionResetError:
            return None
        if not more:
            return None
        data += more
    return data


@contextlib.contextmanager
def dialogue(path, script):
    """Run ``script(sock)`` on a thread for the first connection; an error in it is raised here."""
    failures = []

    def run():
        try:
            sock, _ = listener.accept()
            with sock:
                sock.settimeout(30)
                script(sock)
        except OSError:
            pass  # nobody came, or went
        except BaseException as error:  # noqa: BLE001  told to the test
            failures.append(error)

    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join(30)
            Path(path).unlink()
    if failures:
        raise failures[0]


class _Buffer:
    """One allocation of the sink's pool."""

    def __init__(self, nbytes):
        self.nbytes = -(-nbytes // ALIGNMENT) * ALIGNMENT
        self.fd = os.memfd_create("gst", os.MFD_CLOEXEC)
        os.truncate(self.fd, self.nbytes)
        with OwnedFd(os.dup(self.fd)) as fd:
            self.mapping = Mapping(fd, self.nbytes, writable=True, inherit=True)
        self.users = 0

    def handle(self):
        return struct.pack("<qq", os.getpid(), self.fd).ljust(64, b"\xee")

    def close(self):
        self.mapping.close()
        os.close(self.fd)


class _Sample:
    def __init__(self, seq, buffer, layout, text):
        self.seq, self.buffer, self.layout, self.text = seq, buffer, layout, text


class Sink:
    """A sink; `render` shows a frame, `stop` ends it in order.

    Attributes
    ----------
    said
        Each packet of clients, by kind.
    closed_for
        Why connections were closed that broke a rule.
    held
        The most frames that one client held at once.
    """

    def __init__(self, path, mode="mmap", **format_):
        self.path, self.mmap = str(path), mode == "mmap"
        self._changed = threading.Condition()
        self._newest, self._seq, self._stopping = None, 0, False
        self._buffers, self._threads, self._socks = [], [], []
        self.said, self.closed_for, self.held = [], [], 0
        self.metas = b""
        self.set_caps(**format_)
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(self.path)
        self._listener.listen()
        self._accepter = threading.Thread(target=self._accept)
        self._accepter.start()

    def set_caps(self, width=64, height=48, format_="NV12", **more):
        """Have the next frames be of this kind, in new buffers."""
        name = {"NV12": "nv12", "P010_10LE": "p010", "RGB": "rgb24", "RGBA": "rgba32"}[format_]
        with self._changed:
            self._text = caps(width, height, format_, **more)
            self._layout = FrameLayout.make(name, width, height, pitch=PITCH * (width // 65 + 1))
            self._retire()

    def say_caps(self, text):
        """Have the next frames come with these caps, whatever they are."""
        with self._changed:
            self._text = text

    def replace_buffers(self):
        """Free what nobody uses, so that descriptors' numbers come back for other memory."""
        with self._changed:
            self._retire()

    def render(self):
        """Show the next frame; return its number."""
        with self._changed:
            self._seq += 1
            buffer = self._free_buffer()
            planes = HostPlanes(buffer.mapping.address, self._layout, writable=True)
            for index, plane in enumerate(self._layout.planes):
                planes.plane(index, None)[...] = value(self._seq, index, plane.itemsize)
            if self._newest is not None:
                self._newest.buffer.users -= 1
            buffer.users += 1
            self._newest = _Sample(self._seq, buffer, self._layout, self._text)
            self._changed.notify_all()
            return self._seq

    @property
    def newest_fd(self):
        """The number that names the newest frame's memory."""
        with self._changed:
            return self._newest.buffer.fd

    @property
    def live(self):
        """The connections that there are."""
        return [thread for thread in self._threads if thread.is_alive()]

    @property
    def pool(self):
        """How many buffers there are."""
        with self._changed:
            return len(self._buffers)

    @property
    def in_use(self):
        """How many buffers are held by clients or are the newest frame."""
        with self._changed:
            return sum(buffer.users > 0 for buffer in self._buffers)

    def stop(self, seconds=10):
        """End in order; return whether all clients let go in time."""
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        deadline = time.monotonic() + seconds
        for thread in list(self._threads):
            thread.join(max(0, deadline - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    def close(self):
        """End at once, as by a kill: the socket's file stays unless it was stopped. Idempotent."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._accepter.join(10)
        for sock in self._socks:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        with self._changed:
            stopped, self._stopping = self._stopping, True
            self._changed.notify_all()
        for thread in self._threads:
            thread.join(10)
        if stopped:
            Path(self.path).unlink(missing_ok=True)
        while self._buffers:
            self._buffers.pop().close()

    def __enter__(self):
        return self

    def __exit__(self, *exc_info):
        self.close()

    def _free_buffer(self):
        need = self._layout.nbytes
        for buffer in self._buffers:
            if not buffer.users and buffer.nbytes >= need:
                return buffer
        self._buffers.append(_Buffer(need))
        return self._buffers[-1]

    def _retire(self):
        for buffer in [b for b in self._buffers if not b.users]:
            buffer.close()
            self._buffers.remove(buffer)

    def _accept(self):
        while True:
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(sock,))
            self._socks.append(sock)
            self._threads.append(thread)
            thread.start()

    def _serve(self, sock):
        held, bound = [], []
        try:
            with sock:
                self._converse(sock, held, bound)
        except AssertionError as error:
            self.closed_for.append(str(error))
        except OSError:
            pass  # the client is gone
        finally:
            with self._changed:
                for sample in held + bound:
                    sample.buffer.users -= 1

    def _bind(self, bound, after):
        """Wait for a frame newer than `after`, and bind it; None at the end."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._stopping or (self._newest and self._newest.seq > after)
            )
            if self._stopping:
                return None
            self._newest.buffer.users += 1
            bound.append(self._newest)
            return self._newest

    def _converse(self, sock, held, bound):
        sample = self._bind(bound, 0)
        if sample is None:
            return
        text, last = sample.text, 0
        sock.sendall(config(text, mmap=self.mmap))
        while (said := receive(sock)) is not None:
            kind, payload = said
            self.said.append(kind)
            if kind is Kind.NEED_DATA:
                if not bound:
                    sample = self._bind(bound, last)
                if not bound:
                    sock.sendall(packet(Kind.EOS))
                    continue
                last = sample.seq
                self._offer(sock, sample, None if sample.text == text else sample.text)
                text = sample.text
            elif kind is Kind.READ_DONE:
                assert bound, "read done without a frame"
                held.append(bound.pop())
                self.held = max(self.held, len(held))
            elif kind is (Kind.RELEASE_MMAP_DATA if self.mmap else Kind.RELEASE_DATA):
                self._release(held, payload)
            elif kind is Kind.FIN:
                return
            else:
                raise AssertionError(f"a client said {kind}")

    def _release(self, held, token):
        for sample in held:
            if self._token(sample.buffer) == token:
                held.remove(sample)
                with self._changed:
                    sample.buffer.users -= 1
                return
        raise AssertionError("a frame was released that is not held")

    def _token(self, buffer):
        return struct.pack("<i", buffer.fd) if self.mmap else buffer.handle()

    def _offer(self, sock, sample, text):
        planes = sample.layout.planes
        offsets = ([plane.offset for plane in planes] + [0] * 4)[:4]
        common = {
            "pts": sample.seq, "size": sample.layout.nbytes, "pitch": planes[0].pitch,
            "offsets": offsets, "text": text, "metas": self.metas,
        }  # fmt: skip
        buffer = sample.buffer
        if self.mmap:
            sock.sendall(have_mmap_data(buffer.fd, max_size=buffer.nbytes, **common))
            send_fd(sock, buffer.fd)
        else:
            sock.sendall(have_data(buffer.handle(), **common))


class _HostMemory(Memory):
    def __init__(self, mapping, where):
        super().__init__()
        self._mapping = mapping
        self.nbytes, self.where = mapping.nbytes, where
        self.device_uuid = bytes(16)

    def _planes_of(self, layout):
        return HostPlanes(self._mapping.address, layout, writable=False)

    def _lease(self, table, number, hold):
        return Lease(table, number, hold)


class HostImporter(Importer):
    """Maps what `Sink` shares; `maps` counts, and `alive` are the mappings that there are."""

    def __init__(self):
        self.maps = 0
        self.alive = weakref.WeakSet()

    def from_fd(self, fd, nbytes):
        size = os.fstat(fd.fileno()).st_size
        if not 0 < nbytes <= size:
            raise RemoteProtocolError(f"the driver says {size} bytes, the pipeline {nbytes}")
        return self._map(fd, nbytes, "descriptors")

    def from_handle(self, handle):
        pid, number = struct.unpack_from("<qq", handle)
        try:
            fd = OwnedFd(os.open(f"/proc/{pid}/fd/{number}", os.O_RDONLY | os.O_CLOEXEC))
        except OSError as error:
            raise RemoteProtocolError(f"the driver does not know the handle: {error}") from error
        with fd:
            return self._map(fd, os.fstat(fd.fileno()).st_size, "handles")

    def _map(self, fd, nbytes, where):
        memory = _HostMemory(Mapping(fd, nbytes, writable=False, inherit=True), where)
        self.alive.add(memory)
        self.maps += 1
        return memory


def run_sink(link, path, mode="mmap", pause=0.005):
    """Render until told to stop, or killed; for a process of its own."""
    with Sink(path, mode) as sink:
        sink.render()
        link.say("ready", pid=os.getpid())
        done = threading.Event()
        threading.Thread(target=lambda: (link.wait(), done.set()), daemon=True).start()
        while not done.wait(pause):
            sink.render()
        sink.stop()
