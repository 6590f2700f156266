"""The control block over plain bytes: what one side writes, the other reads."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb._wire.control import (
    COMPLETIONS_OFFSET,
    CONTROL_NBYTES,
    LOCK_STRIDE,
    RECORD_NBYTES,
    RECORDS_OFFSET,
    SEQS_OFFSET,
    ControlReader,
    ControlWriter,
    Record,
    RingState,
)
from cuframes_nb._wire.messages import MAX_SLOTS, MAX_SUBSCRIBERS

SLOTS = 4


class Block:
    """A block and both of its sides."""

    def __init__(self, epoch=7, slots=SLOTS):
        self.memory = bytearray(CONTROL_NBYTES)
        self.writer = ControlWriter(memoryview(self.memory), epoch)
        self.reader = ControlReader(memoryview(self.memory).toreadonly(), slots)

    def publish(self, slot, seq, pts_ns=0, published_ns=0):
        record = Record(seq, pts_ns, published_ns)
        self.writer.complete(slot, seq)
        self.writer.write_record(slot, record)
        self.writer.announce(slot, record)
        return record


@pytest.fixture
def block():
    return Block()


def test_a_fresh_block_is_for_its_epoch_and_has_no_frame(block):
    assert block.reader.is_for(7)
    assert not block.reader.is_for(8)
    assert block.reader.state == RingState.LIVE
    assert block.reader.seqs() == block.reader.completions() == [0] * SLOTS
    assert (block.reader.published, block.reader.dropped, block.reader.last_publish_ns) == (0, 0, 0)


def test_bytes_that_are_no_block_are_for_no_epoch():
    reader = ControlReader(memoryview(bytes(CONTROL_NBYTES)), SLOTS)
    assert not reader.is_for(0)


@given(
    st.integers(0, MAX_SLOTS - 1),
    st.integers(1, 2**63 - 1),
    st.integers(-(2**63), 2**63 - 1),
    st.integers(0, 2**63 - 1),
)
def test_a_record_survives(slot, seq, pts_ns, published_ns):
    block = Block(slots=MAX_SLOTS)
    record = block.publish(slot, seq, pts_ns, published_ns)
    assert block.reader.record(slot) == record
    assert block.reader.holds(slot, seq)
    assert block.reader.seqs()[slot] == block.reader.completions()[slot] == seq
    assert block.reader.last_publish_ns == block.writer.last_publish_ns == published_ns


def test_a_negative_time_is_a_time(block):
    block.publish(1, 5, pts_ns=-1)
    assert block.reader.record(1).pts_ns == -1


def test_slots_do_not_touch_each_other():
    block = Block(slots=MAX_SLOTS)
    records = [block.publish(slot, slot + 1, -slot, slot) for slot in range(MAX_SLOTS)]
    assert [block.reader.record(slot) for slot in range(MAX_SLOTS)] == records
    assert block.reader.seqs() == [record.seq for record in records]
    assert block.reader.published == MAX_SLOTS


def test_a_frame_is_held_only_once_its_pixels_are_complete(block):
    record = Record(3, 0, 0)
    block.writer.write_record(2, record)
    block.writer.announce(2, record)
    assert block.reader.seqs()[2] == 3
    assert not block.reader.holds(2, 3)
    block.writer.complete(2, 3)
    assert block.reader.holds(2, 3)
    assert block.writer.completed(2) == 3


def test_a_withdrawn_frame_is_not_there(block):
    block.publish(0, 1)
    block.writer.withdraw(0)
    assert block.reader.seqs() == [0] * SLOTS
    assert not block.reader.holds(0, 1)
    assert block.reader.published == 1


def test_counts_go_on_over_epochs(block):
    for seq in (1, 2, 3):
        block.publish(0, seq)
    block.writer.count_drop()
    after = Block(epoch=8)
    after.writer.carry_over(block.writer.published, block.writer.dropped)
    after.publish(0, 4)
    after.writer.count_drop()
    assert (after.reader.published, after.reader.dropped) == (4, 2)


@pytest.mark.parametrize("state", RingState)
def test_the_state_is_seen(block, state):
    block.writer.set_state(state)
    assert block.reader.state == state
    assert block.reader.live is (state is RingState.LIVE)


def test_a_reader_sees_only_its_slots():
    block = Block(slots=2)
    assert len(block.reader.seqs()) == len(block.reader.completions()) == 2
    with pytest.raises(IndexError):
        block.reader.holds(2, 1)


def test_a_closed_writer_lets_go_of_its_memory(block):
    block.writer.close()
    with pytest.raises(ValueError, match="released"):
        block.writer.complete(0, 1)


def test_words_lie_where_another_language_looks_for_them(block):
    block.publish(3, 11, pts_ns=-2, published_ns=99)
    block.writer.count_drop()
    words = struct.unpack_from("=8sQQQQQ", block.memory, 0)
    assert words == (b"CFNBCTL1", 7, RingState.LIVE, 1, 1, 99)
    assert struct.unpack_from("=Q", block.memory, SEQS_OFFSET + 3 * 8) == (11,)
    assert struct.unpack_from("=Q", block.memory, COMPLETIONS_OFFSET + 3 * 8) == (11,)
    assert struct.unpack_from("=QqQ", block.memory, RECORDS_OFFSET + 3 * RECORD_NBYTES) == (
        11,
        -2,
        99,
    )


def test_the_parts_do_not_overlap_and_fit():
    assert SEQS_OFFSET >= 6 * 8
    assert SEQS_OFFSET + MAX_SLOTS * 8 <= COMPLETIONS_OFFSET
    assert COMPLETIONS_OFFSET + MAX_SLOTS * 8 <= RECORDS_OFFSET
    assert RECORDS_OFFSET + MAX_SLOTS * RECORD_NBYTES <= CONTROL_NBYTES
    assert LOCK_STRIDE == MAX_SUBSCRIBERS, "each subscriber has a byte of each slot"
