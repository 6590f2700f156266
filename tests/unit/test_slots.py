"""Which slot is written next: the book against a simple model of what it promises."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, invariant, rule

from cuframes_nb._core.slots import SlotBook


def take(book):
    slot = next(book.candidates())
    book.begin(slot)
    return slot


def test_a_new_book_offers_every_slot():
    assert list(SlotBook(3).candidates()) == [0, 1, 2]


def test_the_newest_frame_is_never_offered():
    book = SlotBook(3)
    for _ in range(10):
        newest = take(book)
        book.publish(newest)
        assert newest not in book.candidates()


def test_the_oldest_content_is_offered_first():
    book = SlotBook(4)
    order = [take(book) for _ in range(4)]
    for slot in reversed(order):
        book.publish(slot)
    assert list(book.candidates()) == [3, 2, 1]


def test_a_slot_being_written_is_not_offered():
    book = SlotBook(2)
    assert take(book) == 0
    assert list(book.candidates()) == [1]


def test_a_slot_given_back_comes_first_and_is_pending_until_its_value_shows():
    book = SlotBook(3)
    for _ in range(3):
        book.publish(take(book))
    slot = take(book)
    value = book.discard(slot)
    assert next(book.candidates()) == slot
    assert book.expected(slot) == value
    assert value >= 1 << 63, "no sequence number"
    assert book.seq(slot) == 0


def test_each_discard_has_a_value_of_its_own():
    book = SlotBook(2)
    values = [book.discard(take(book)) for _ in range(5)]
    assert len(set(values)) == 5


def test_a_published_slot_is_expected_to_show_its_sequence_number():
    book = SlotBook(2, next_seq=41)
    slot = take(book)
    assert book.publish(slot) == 41
    assert (book.expected(slot), book.seq(slot), book.next_seq) == (41, 41, 42)


def test_a_discard_leaves_no_gap():
    book = SlotBook(3)
    book.publish(take(book))
    book.discard(take(book))
    assert book.publish(take(book)) == 2


@pytest.mark.parametrize(("passed", "offered"), [(0, []), (1, [0]), (2, [0, 1]), (9, [0, 1])])
def test_frames_that_were_not_passed_are_not_offered(passed, offered):
    book = SlotBook(3)
    for _ in range(3):
        book.publish(take(book))
    assert list(book.candidates(passed)) == offered


def test_the_newest_slot_can_be_taken_by_name():
    book = SlotBook(3)
    for slot in (0, 1):
        book.begin(slot)
        book.publish(slot)
    assert list(book.candidates()) == [2, 0]
    assert not book.is_taken(1)
    book.begin(1)
    assert book.is_taken(1)
    assert book.writing == [1]
    assert list(book.candidates()) == [2, 0]
    book.discard(1)
    assert not book.is_taken(1)
    assert list(book.candidates()) == [1, 2, 0]
    book.begin(1)
    assert book.publish(1) == 3
    assert list(book.candidates()) == [2, 0]


class Books(RuleBasedStateMachine):
    """Any order of taking, publishing and giving back, with several slots in hand."""

    taken = Bundle("taken")

    @initialize(count=st.integers(2, 6), first=st.integers(1, 1000))
    def start(self, count, first):
        self.book = SlotBook(count, first)
        self.count = count
        self.next_seq = first
        self.content = dict.fromkeys(range(count), 0)  # frame of each slot that is not in hand
        self.returned = []  # slots given back unpublished, the last one first
        self.values = {0}
        self.expected = dict.fromkeys(range(count), 0)

    def candidates(self):
        """Return what the model would offer: given back, then never written, then oldest frame."""
        newest = max(self.content.values(), default=0)
        rest = sorted(
            (slot for slot in self.content if slot not in self.returned),
            key=lambda slot: (self.content[slot], slot),
        )
        return self.returned + [s for s in rest if not newest or self.content[s] != newest]

    @rule(target=taken, pick=st.integers(0, 5))
    def take(self, pick):
        offered = list(self.book.candidates())
        if not offered:
            return None
        slot = offered[min(pick, len(offered) - 1)]  # the first whose lock can be had
        self.book.begin(slot)
        del self.content[slot]
        if slot in self.returned:
            self.returned.remove(slot)
        return slot

    @rule(slot=consumes(taken))
    def publish(self, slot):
        if slot is None:
            return
        assert self.book.publish(slot) == self.next_seq
        self.content[slot] = self.expected[slot] = self.next_seq
        self.values.add(self.next_seq)
        self.next_seq += 1

    @rule(slot=consumes(taken))
    def discard(self, slot):
        if slot is None:
            return
        value = self.book.discard(slot)
        assert value not in self.values
        self.values.add(value)
        self.content[slot], self.expected[slot] = 0, value
        self.returned.insert(0, slot)

    @rule(passed=st.integers(0, 1100))
    def offered_to_strict(self, passed):
        found = list(self.book.candidates(passed))
        assert found == [slot for slot in self.candidates() if self.content[slot] <= passed]

    @invariant()
    def as_the_model(self):
        if not hasattr(self, "book"):
            return
        assert list(self.book.candidates()) == self.candidates()
        for slot in range(self.count):
            assert self.book.seq(slot) == self.content.get(slot, 0)
            assert self.book.expected(slot) == self.expected[slot]
        assert self.book.next_seq == self.next_seq


TestBooks = Books.TestCase
