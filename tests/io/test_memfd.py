"""Sealed memory: no peer can shrink it, grow it, or write it."""

import ctypes
import errno
import fcntl
import mmap
import os
import resource
from pathlib import Path

import pytest

from cuframes_nb._os import memfd
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._os.memfd import check_sealed, create_sealed, reopen_read_only
from cuframes_nb.errors import RemoteProtocolError, UnsupportedError

NBYTES = 8192

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="takes on another user: needs root")


@pytest.fixture
def sealed():
    fd, mapping = create_sealed("test", NBYTES)
    yield fd, mapping
    mapping.close()
    fd.close()


@pytest.fixture
def reader(sealed):
    with reopen_read_only(sealed[0]) as fd:
        yield fd


def plain_memfd(nbytes=NBYTES, seals=0):
    fd = OwnedFd(os.memfd_create("plain", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING))
    os.ftruncate(fd.fileno(), nbytes)
    if seals:
        fcntl.fcntl(fd.fileno(), memfd._F_ADD_SEALS, seals)
    return fd


# --- Made by us -----------------------------------------------------------------------------------


def test_it_is_zeroed_and_what_the_maker_writes_a_reader_sees(sealed, reader):
    _, mapping = sealed
    theirs = Mapping(reader, NBYTES, writable=False)
    view, written = theirs.view(), mapping.view()
    assert bytes(view) == bytes(NBYTES)
    written[17] = 42
    assert view[17] == 42
    with pytest.raises(TypeError, match="read-only"):
        view[17] = 1
    theirs.close()


def test_it_passes_its_own_check(reader):
    check_sealed(reader, NBYTES, "x")


def test_it_says_what_it_is_and_may_be_read_by_its_owner_only(sealed):
    fd, _ = sealed
    assert "cuframes:test" in str(Path(f"/proc/self/fd/{fd.fileno()}").readlink())
    assert os.fstat(fd.fileno()).st_mode & 0o777 == 0o400
    assert not os.get_inheritable(fd.fileno())


def test_memory_is_reserved_at_once(sealed):
    fd, _ = sealed
    assert os.fstat(fd.fileno()).st_blocks * 512 >= NBYTES


@pytest.mark.parametrize("nbytes", [0, 1, NBYTES // 2, NBYTES + 1])
def test_not_even_the_maker_can_change_its_size(sealed, nbytes):
    with pytest.raises(PermissionError):
        os.ftruncate(sealed[0].fileno(), nbytes)


def test_the_seals_cannot_be_changed(sealed):
    with pytest.raises(PermissionError):
        fcntl.fcntl(sealed[0].fileno(), memfd._F_ADD_SEALS, 0x0008)  # F_SEAL_WRITE


def test_a_readers_descriptor_writes_nothing(reader):
    for write in (
        lambda: os.pwrite(reader.fileno(), b"x", 0),
        lambda: os.ftruncate(reader.fileno(), 0),
        lambda: Mapping(reader, NBYTES, writable=True),
    ):
        with pytest.raises(
            OSError, match=r"Bad file descriptor|Invalid argument|Permission denied"
        ):
            write()


def test_a_reader_that_reopens_it_for_writing_writes_nothing(sealed, reader):
    # The same user may, whatever the mode says: it could give itself the right.
    os.fchmod(reader.fileno(), 0o600)
    number = os.open(f"/proc/self/fd/{reader.fileno()}", os.O_RDWR | os.O_CLOEXEC)
    with OwnedFd(number) as fd:
        with pytest.raises(PermissionError):
            os.pwrite(fd.fileno(), b"x", 0)
        with pytest.raises(PermissionError):
            os.ftruncate(fd.fileno(), 0)
        with pytest.raises(PermissionError):
            Mapping(fd, NBYTES, writable=True)
        with pytest.raises(PermissionError):
            mmap.mmap(fd.fileno(), NBYTES)
        with pytest.raises(OSError, match=r"Operation not (permitted|supported)"):
            fallocate_hole(fd)
    assert bytes(sealed[1].view()) == bytes(NBYTES)


def fallocate_hole(fd):
    """Punch the whole file out, which would be a way to write zeros."""
    libc = ctypes.CDLL(None, use_errno=True)
    keep_size, punch_hole = 1, 2
    start, nbytes = ctypes.c_int64(0), ctypes.c_int64(NBYTES)
    if libc.fallocate(fd.fileno(), keep_size | punch_hole, start, nbytes):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


@as_root
def test_another_user_cannot_reopen_it_for_writing(sealed, reader):
    read, write = os.pipe()
    number = os.dup(reader.fileno())  # the child's own copies of `reader` and `sealed` are closed
    pid = os.fork()
    if not pid:
        answer = b""
        try:
            os.setgroups([])
            os.setegid(65534)
            os.seteuid(65534)
            for flags in (os.O_RDONLY, os.O_WRONLY, os.O_RDWR):
                try:
                    os.open(f"/proc/self/fd/{number}", flags)
                except OSError as error:
                    answer += errno.errorcode[error.errno].encode() + b" "
                else:
                    answer += b"opened "
            answer += str(os.pread(number, 4, 0)).encode()
        finally:
            os.write(write, answer)
            os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    os.close(number)
    assert os.read(read, 100) == b"EACCES EACCES EACCES " + str(bytes(4)).encode()
    os.close(read)


def test_each_reopening_is_a_description_of_its_own(sealed):
    with reopen_read_only(sealed[0]) as one, reopen_read_only(sealed[0]) as other:
        os.lseek(one.fileno(), 10, os.SEEK_SET)
        assert os.lseek(other.fileno(), 0, os.SEEK_CUR) == 0
        for fd in (one, other):
            assert fcntl.fcntl(fd.fileno(), fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY
            assert not os.get_inheritable(fd.fileno())


# --- Where it cannot be made ----------------------------------------------------------------------


def test_without_a_descriptor_left_nothing_remains():
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.open("/dev/null", os.O_RDONLY)
    os.close(lowest)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            create_sealed("x", NBYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def test_without_a_descriptor_left_to_reopen_nothing_remains(sealed):
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (sealed[0].fileno() + 1, limits[1]))
    fillers = []
    try:
        with pytest.raises(OSError, match="Too many open files"):
            while True:
                fillers.append(reopen_read_only(sealed[0]))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for fd in fillers:
            fd.close()


def test_more_memory_than_there_is_is_an_error_before_any_is_taken():
    with pytest.raises(OSError, match="MiB are available") as caught:
        create_sealed("x", 2**62)
    assert caught.value.errno == errno.ENOMEM


def test_where_the_memory_cannot_be_asked_for_it_is_tried(monkeypatch):
    def refuse(self, encoding):
        raise PermissionError

    monkeypatch.setattr(memfd.Path, "read_text", refuse)
    fd, mapping = create_sealed("x", NBYTES)
    mapping.close()
    fd.close()


def test_a_size_that_the_kernel_refuses_is_an_error_and_nothing_remains():
    with pytest.raises(OSError, match="Invalid argument"):
        create_sealed("x", 0)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (NBYTES - 1, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            create_sealed("x", NBYTES)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_kernel_that_cannot_seal_is_told_of(monkeypatch):
    monkeypatch.setattr(memfd, "_OURS", 1 << 30)
    with pytest.raises(UnsupportedError, match=r"Linux 5\.1"):
        create_sealed("x", NBYTES)


# --- Sent by a peer -------------------------------------------------------------------------------


@pytest.mark.parametrize("seals", [0, memfd._F_SEAL_GROW, memfd._F_SEAL_GROW | memfd._F_SEAL_SEAL])
def test_memory_that_could_shrink_is_refused(seals):
    words = r"pixels.*not sealed against shrinking"
    with plain_memfd(seals=seals) as fd, pytest.raises(RemoteProtocolError, match=words):
        check_sealed(fd, NBYTES, "pixels")


def test_memory_that_cannot_shrink_is_enough_for_a_reader():
    with plain_memfd(seals=memfd._F_SEAL_SHRINK) as fd:
        check_sealed(fd, NBYTES, "pixels")


def test_memory_that_is_too_small_is_refused():
    with plain_memfd(NBYTES - 1, memfd._F_SEAL_SHRINK) as fd:
        check_sealed(fd, NBYTES - 1, "pixels")
        with pytest.raises(RemoteProtocolError, match=f"has {NBYTES} bytes, but its memory has"):
            check_sealed(fd, NBYTES, "pixels")
        with pytest.raises(RemoteProtocolError):
            check_sealed(fd, 2**64 - 1, "pixels")


def test_what_is_no_memory_file_is_refused(tmp_path):
    file = tmp_path / "file"
    file.write_bytes(bytes(NBYTES))
    read, write = os.pipe()
    os.close(write)
    numbers = [os.open(file, os.O_RDONLY), os.open("/dev/zero", os.O_RDONLY), read]
    for number in numbers:
        with OwnedFd(number) as fd, pytest.raises(RemoteProtocolError, match="no memory file"):
            check_sealed(fd, NBYTES, "pixels")
