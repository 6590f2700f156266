"""Mappings have one owner, keep no descriptor, and are not inherited unless asked for."""

import ctypes
import errno
import gc
import os
from pathlib import Path

import pytest

from cuframes_nb._os import mapping as it
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._os.mapping import Mapping
from cuframes_nb._os.memfd import create_sealed
from cuframes_nb.errors import ClosedError

NBYTES = 4096


@pytest.fixture
def memory():
    fd, mapping = create_sealed("mapping", NBYTES)
    yield fd, mapping
    mapping.close()
    fd.close()


def is_mapped(address):
    lines = Path("/proc/self/maps").read_text(encoding="ascii").splitlines()
    return any(int(line.split("-")[0], 16) == address for line in lines)


def test_it_lasts_without_its_descriptor(memory):
    fd, mapping = memory
    mapping.view()[3] = 7
    fd.close()
    assert mapping.view()[3] == 7


def test_all_mappings_show_the_same_bytes(memory):
    fd, mapping = memory
    other = Mapping(fd, NBYTES, writable=False)
    assert other.address != mapping.address
    mapping.view()[:3] = b"abc"
    assert bytes(other.view()[:4]) == b"abc\0"
    assert (other.nbytes, other.writable, mapping.writable) == (NBYTES, False, True)
    other.close()


def test_closing_is_idempotent_and_unmaps_once(memory):
    _, mapping = memory
    address = mapping.address
    assert is_mapped(address)
    mapping.close()
    assert not is_mapped(address)
    mapping.close()
    for use in (lambda: mapping.address, mapping.view):
        with pytest.raises(ClosedError, match="closed already"):
            use()


def test_the_last_reference_unmaps(memory):
    fd, _ = memory
    mapping = Mapping(fd, NBYTES, writable=False)
    address = mapping.address
    del mapping
    gc.collect()
    assert not is_mapped(address)


def test_a_view_keeps_it_mapped(memory):
    fd, _ = memory
    mapping = Mapping(fd, NBYTES, writable=False)
    address, view = mapping.address, mapping.view()
    words = view.cast("Q")[:2]
    del mapping, view
    gc.collect()
    assert is_mapped(address)
    assert words.tolist() == [0, 0]
    del words
    gc.collect()
    assert not is_mapped(address)


def test_what_cannot_be_mapped_raises_and_leaves_nothing(memory):
    fd, _ = memory
    with pytest.raises(OSError, match=r"mapping 0 bytes failed: Invalid argument"):
        Mapping(fd, 0, writable=False)
    with (
        OwnedFd(os.open("/", os.O_RDONLY)) as directory,
        pytest.raises(OSError, match="No such dev"),
    ):
        Mapping(directory, NBYTES, writable=False)
    fd.close()
    with pytest.raises(ClosedError):
        Mapping(fd, NBYTES, writable=False)


def test_one_that_children_would_keep_is_not_made(memory, monkeypatch):
    fd, _ = memory
    addresses = []

    class Libc:
        """Advice is refused."""

        def __getattr__(self, name):
            return getattr(real, name)

        def madvise(self, address, *args):
            addresses.append(address)
            ctypes.set_errno(errno.ENOMEM)
            return -1

    real = it._libc
    monkeypatch.setattr(it, "_libc", Libc())
    with pytest.raises(OSError, match="Cannot allocate") as caught:
        Mapping(fd, NBYTES, writable=False)
    assert caught.value.errno == errno.ENOMEM
    assert not is_mapped(addresses[0])
    Mapping(fd, NBYTES, writable=False, inherit=True).close()


@pytest.mark.parametrize("inherit", [False, True])
def test_a_forked_child_has_it_only_if_asked_for(memory, inherit):
    fd, _ = memory
    mapping = Mapping(fd, NBYTES, writable=False, inherit=inherit)
    address = mapping.address
    pid = os.fork()
    if not pid:
        status = 2
        try:
            inherited = is_mapped(address)
            mapping.close()  # must not touch what the child may have put there itself
            status = inherited != inherit or is_mapped(address) != inherit
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    assert is_mapped(address)
    mapping.close()
