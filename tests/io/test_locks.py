"""Leases as the kernel keeps them: they belong to an open file description and die with it."""

import contextlib
import os

import pytest

from cuframes_nb._os.locks import ReadLock, WriteLock, conflicting_lock
from cuframes_nb._os.memfd import create_sealed, reopen_read_only

SLOT, NEXT_SLOT = 256, 512
WRITE = WriteLock(SLOT, 256)


@pytest.fixture
def publisher():
    fd, mapping = create_sealed("locks", 8192)
    yield fd
    mapping.close()
    fd.close()


@pytest.fixture
def readers(publisher):
    fds = [reopen_read_only(publisher) for _ in range(3)]
    yield fds
    for fd in fds:
        fd.close()


def read_lock(index, slot=SLOT):
    return ReadLock(slot + index, 1)


def test_readers_share_and_exclude_the_writer(publisher, readers):
    for index, fd in enumerate(readers):
        assert read_lock(index).try_acquire(fd.fileno())
    for index, fd in enumerate(readers):
        assert not WRITE.try_acquire(publisher.fileno())
        read_lock(index).release(fd.fileno())
    assert WRITE.try_acquire(publisher.fileno())


def test_the_writer_excludes_readers_from_its_slot_alone(publisher, readers):
    assert WRITE.try_acquire(publisher.fileno())
    assert not read_lock(0).try_acquire(readers[0].fileno())
    assert not read_lock(255).try_acquire(readers[0].fileno())
    assert read_lock(0, NEXT_SLOT).try_acquire(readers[0].fileno())
    assert read_lock(255, 0).try_acquire(readers[0].fileno())
    WRITE.release(publisher.fileno())
    assert read_lock(0).try_acquire(readers[0].fileno())


def test_two_readers_may_hold_one_byte(publisher, readers):
    for fd in readers[:2]:
        assert read_lock(7).try_acquire(fd.fileno())
    read_lock(7).release(readers[0].fileno())
    assert not WRITE.try_acquire(publisher.fileno()), "the other one still reads"


def test_locking_twice_is_locking_once(publisher, readers):
    for _ in range(2):
        assert read_lock(0).try_acquire(readers[0].fileno())
    read_lock(0).release(readers[0].fileno())
    assert WRITE.try_acquire(publisher.fileno())
    assert WRITE.try_acquire(publisher.fileno()), "a description is not in its own way"


def test_giving_back_what_is_not_held_is_harmless(readers):
    read_lock(0).release(readers[0].fileno())


def test_a_reader_cannot_pretend_to_be_the_writer(readers):
    with pytest.raises(OSError, match="Bad file descriptor"):
        WRITE.try_acquire(readers[0].fileno())


def test_closing_the_descriptor_gives_everything_back(publisher, readers):
    for slot in (0, SLOT, NEXT_SLOT):
        assert read_lock(0, slot).try_acquire(readers[0].fileno())
    readers[0].close()
    assert conflicting_lock(publisher.fileno(), 0, 1024) is None
    assert WRITE.try_acquire(publisher.fileno())


def test_closing_another_descriptor_of_the_file_gives_nothing_back(publisher, readers):
    # Classic record locks would go here: that is why these belong to the description.
    assert read_lock(0).try_acquire(readers[0].fileno())
    readers[1].close()
    with reopen_read_only(publisher):
        pass
    assert not WRITE.try_acquire(publisher.fileno())


def test_a_duplicate_keeps_the_lock(publisher, readers):
    assert read_lock(0).try_acquire(readers[0].fileno())
    duplicate = os.dup(readers[0].fileno())
    readers[0].close()
    assert not WRITE.try_acquire(publisher.fileno())
    os.close(duplicate)
    assert WRITE.try_acquire(publisher.fileno())


def test_who_is_in_the_way_is_told(publisher, readers):
    fd = publisher.fileno()
    assert conflicting_lock(fd, SLOT, 256) is None
    for index in (200, 3):
        assert read_lock(index).try_acquire(readers[0].fileno())
    assert conflicting_lock(fd, SLOT, 256) in {SLOT + 3, SLOT + 200}
    assert conflicting_lock(fd, SLOT + 3, 1) == SLOT + 3
    assert conflicting_lock(fd, SLOT + 4, 1) is None
    assert conflicting_lock(fd, 0, SLOT) is None


def test_ones_own_locks_are_not_in_the_way(publisher):
    assert WRITE.try_acquire(publisher.fileno())
    assert conflicting_lock(publisher.fileno(), SLOT, 256) is None


@contextlib.contextmanager
def forked_child():
    """Fork a child that does nothing and lives until the block ends."""
    hold, let_go = os.pipe()
    ready, say_ready = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(let_go)
            os.write(say_ready, b"x")
            os.read(hold, 1)  # until the parent closes its end
        finally:
            os._exit(0)
    try:
        os.read(ready, 1)
        yield
    finally:
        for number in (let_go, hold, ready, say_ready):
            os.close(number)
        assert os.waitpid(pid, 0)[1] == 0


def test_a_forked_child_does_not_keep_a_readers_lock(publisher, readers):
    assert read_lock(0).try_acquire(readers[0].fileno())
    with forked_child():
        assert not WRITE.try_acquire(publisher.fileno())
        readers[0].close()
        assert WRITE.try_acquire(publisher.fileno())


def test_a_forked_child_does_not_keep_the_writers_lock():
    fd, mapping = create_sealed("locks", 8192)
    with reopen_read_only(fd) as third:
        assert WRITE.try_acquire(fd.fileno())
        with forked_child():
            fd.close()
            # A mapping holds its description too: that is why the child must not inherit it.
            assert not read_lock(0).try_acquire(third.fileno())
            mapping.close()
            assert read_lock(0).try_acquire(third.fileno())
