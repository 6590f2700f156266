"""What attached GPU memory came with is kept as long as it may be handed on, and no longer."""

import gc
import os

import pytest

from cuframes_nb._memory.pieces import Piece, Pieces, piece_at
from cuframes_nb._os.fds import OwnedFd
from cuframes_nb._runtime.backend import CompletionWriter
from cuframes_nb._runtime.vulkan_backend import _Completion
from cuframes_nb._wire.messages import Completion

BASE = 0x7F0000000000


def piece(start, nbytes, memory_type=None):
    return Piece(BASE + start, nbytes, OwnedFd(os.memfd_create("piece")), memory_type)


@pytest.fixture
def pieces():
    pieces = Pieces([piece(0, 4096), piece(4096, 8192, 7)])
    yield pieces
    pieces.close()


@pytest.mark.parametrize(
    ("offset", "start"), [(0, 0), (4095, 0), (4096, 4096), (12287, 4096), (-1, None), (12288, None)]
)
def test_a_piece_is_found_by_any_of_its_addresses(pieces, offset, start):
    found = piece_at(BASE + offset)
    assert (found and found.address - BASE) == start


def test_closed_pieces_are_not_found(pieces):
    pieces.close()
    pieces.close()
    assert piece_at(BASE) is None


def test_what_is_dropped_is_closed_and_forgotten():
    Pieces([piece(0, 4096)])
    gc.collect()
    assert piece_at(BASE) is None  # and the fixtures see that no descriptor is left


class Noted(CompletionWriter):
    """Notes what it is told, as the control block and as the GPU."""

    method = Completion.GPU
    reason = "the GPU writes"

    def __init__(self):
        self.told = []

    def complete(self, *told):
        self.told.append(told)

    def close(self):
        self.told.append("closed")


def test_without_a_stream_the_cpu_says_that_a_frame_is_complete():
    control, gpu = Noted(), Noted()
    completion = _Completion(control, gpu)
    completion.complete(1, 7, None)
    assert (control.told, gpu.told) == ([(1, 7)], [])
    completion.complete(2, 8, 42)
    assert (control.told, gpu.told) == ([(1, 7)], [(2, 8, 42)])
    completion.close()
    assert gpu.told[-1] == "closed"
    assert completion.method is Completion.GPU
    assert "the GPU writes" in completion.reason
