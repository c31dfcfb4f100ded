from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from domainbert.base.layout import paragraph, printable, width


def test_widths_are_those_of_a_terminal():
    assert [width(text) for text in ("abc", "é", "e\u0301", "東京", "🍰", "")] == [3, 1, 1, 4, 2, 0]


@given(st.text())
def test_nothing_printed_acts_on_the_terminal(text):
    found = printable(text)
    assert found.isprintable()
    if text.isprintable():
        assert found == text


def test_what_cannot_be_seen_is_spelt():
    assert printable("a\x1b[2J\u200d\ud83c\n") == r"a\x1b[2J\u200d\ud83c\n"


@given(st.lists(st.text(st.characters(categories=["L", "So"]), min_size=1, max_size=30), max_size=40))
def test_a_paragraph_has_all_words_in_lines_of_some_length(words):
    lines = paragraph(words, "  ")
    assert [word for line in lines for word in line.split(" ") if word] == words
    assert all(width(line) <= 110 and line.startswith("  ") for line in lines)
