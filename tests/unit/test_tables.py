"""Tables as text: how wide things are, and what becomes of them where there is no room."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cuframes_nb._show.tables import Column, Sheet, Table, clean, cut, width_of


@pytest.mark.parametrize(
    ("text", "width"),
    [("", 0), ("cam", 3), ("カメラ", 6), ("e\N{COMBINING ACUTE ACCENT}", 1), ("–…", 2)],
)
def test_a_text_takes_as_much_room_as_a_terminal_gives_it(text, width):
    assert width_of(text) == width


def test_what_is_cut_says_so():
    assert cut("camera", 6) == "camera"
    assert cut("camera", 5) == "came…"
    assert cut("カメラ", 5) == "カメ…"
    assert cut("カメラ", 4) == "カ…"
    assert (cut("camera", 1), cut("camera", 0)) == ("…", "")


@given(st.text(), st.integers(0, 20))
def test_what_is_cut_fits(text, width):
    assert width_of(cut(clean(text), width)) <= width


def test_columns_are_under_their_heads_whatever_is_in_them():
    table = Table("t", ["key", Column("n", number=True)], [["カメラ", "1"], ["cam", "10"]])
    assert table.text() == "t\nkey      n\nカメラ   1\ncam     10"


def test_the_widest_words_are_cut_first_and_numbers_never():
    table = Table("t", ["key", Column("n", number=True), "why"], [["k" * 30, "1" * 9, "w" * 12]])
    assert table.text(40).split("\n")[-1] == f"{'k' * 14}…  {'1' * 9}  {'w' * 12}"
    assert table.text(30).split("\n")[-1] == f"{'k' * 7}…  {'1' * 9}  {'w' * 8}…"
    assert table.text(200) == table.text()


@given(
    st.lists(st.lists(st.text(), min_size=3, max_size=3), max_size=3),
    st.integers(1, 60),
)
def test_no_line_is_wider_than_the_terminal(rows, width):
    table = Table("a caption of some length", ["a", Column("b", number=True), "c"], rows)
    lines = table.text(width).split("\n")
    assert len(lines) == 1 + bool(rows) + len(rows)
    assert all(width_of(line) <= width for line in lines)


def test_a_table_without_words_is_cut_at_the_edge():
    table = Table("t", [Column("n", number=True)], [["12345678"]])
    assert table.text(5) == "t\n    …\n1234…"


def test_a_sheet_is_cut_like_its_tables():
    sheet = Sheet(Table("a" * 9, ["x"], []), Table("b", ["x"], []))
    assert sheet.text(5) == "aaaa…\n\nb"
