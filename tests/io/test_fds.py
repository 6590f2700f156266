"""Each descriptor has one owner, who closes it once."""

import gc
import os

import pytest

from cuframes_nb._os.fds import OwnedFd, close_all
from cuframes_nb.errors import ClosedError


def is_open(number):
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def in_child(look):
    """Return what ``look()`` returns in a forked child: bytes, at most 4096."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        answer = b"the child failed"
        try:
            answer = look()
        finally:
            os.write(write, answer)
            os._exit(0)
    os.close(write)
    os.waitpid(pid, 0)
    answer = os.read(read, 4096)
    os.close(read)
    return answer


@pytest.fixture
def owned():
    with OwnedFd(os.open("/dev/null", os.O_RDONLY)) as fd:
        yield fd


def test_closing_is_idempotent_and_hits_no_stranger(owned):
    number = owned.fileno()
    owned.close()
    assert owned.closed
    assert not is_open(number)
    with OwnedFd(os.open("/dev/null", os.O_RDONLY)) as stranger:
        assert stranger.fileno() == number, "the kernel hands out the lowest number"
        owned.close()
        assert is_open(number)


def test_a_closed_one_has_no_number(owned):
    owned.close()
    with pytest.raises(ClosedError, match="closed already"):
        owned.fileno()
    with pytest.raises(ClosedError):
        owned.take()
    assert repr(owned) == "<OwnedFd closed>"


def test_what_was_taken_is_the_takers(owned):
    assert repr(owned) == f"<OwnedFd {owned.fileno()}>"
    number = owned.take()
    assert owned.closed
    owned.close()
    assert is_open(number)
    os.close(number)


def test_leaving_the_block_closes():
    with OwnedFd(os.open("/dev/null", os.O_RDONLY)) as fd:
        number = fd.fileno()
    assert not is_open(number)


def test_one_that_is_dropped_is_closed_and_says_so():
    held = [OwnedFd(os.open("/dev/null", os.O_RDONLY))]
    number = held[0].fileno()
    with pytest.warns(ResourceWarning, match=rf"unclosed <OwnedFd {number}>"):
        held.clear()
    assert not is_open(number)


def test_one_that_may_be_dropped_is_closed_without_a_word():
    fd = OwnedFd(os.open("/dev/null", os.O_RDONLY))
    number = fd.fileno()
    fd.let_drop()
    del fd
    gc.collect()
    assert not is_open(number)


def test_one_that_could_not_be_made_is_no_trouble():
    OwnedFd.__new__(OwnedFd).__del__()


def test_several_are_closed():
    fds = [OwnedFd(os.open("/dev/null", os.O_RDONLY)) for _ in range(3)]
    numbers = [fd.fileno() for fd in fds]
    close_all(fds)
    close_all(fds)
    assert not any(map(is_open, numbers))


def test_a_forked_child_starts_with_its_copy_closed(owned):
    number = owned.fileno()

    def look():
        return f"{owned.closed} {is_open(number)}".encode()

    assert in_child(look) == b"True False"
    assert is_open(number)
    assert not owned.closed


def test_a_forked_child_keeps_what_was_taken(owned):
    number = owned.take()
    assert in_child(lambda: str(is_open(number)).encode()) == b"True"
    os.close(number)
