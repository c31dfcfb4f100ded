from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from domainbert.data.sentences import sample_sentences, split_sentences


def test_sentences_end_where_a_capital_or_a_digit_follows():
    text = 'Rates rose by 3.5 %. "Why?" she asked. 12 members voted.\nA new line\nDr. Fed of the U.S. agreed.'
    assert list(split_sentences(text)) == [
        "Rates rose by 3.5 %.",
        '"Why?" she asked.',
        "12 members voted.",
        "A new line",
        "Dr.",
        "Fed of the U.S. agreed.",
    ]
    assert [len(piece.split()) for piece in split_sentences("a " * 25, max_words=10)] == [10, 10, 5]


@given(st.text())
def test_no_word_is_lost(text):
    found = " ".join(split_sentences(text)).replace(" ", "")
    dropped = [character for character in "\"')]" if character in text]
    assert found == "".join(text.split()) or dropped


def test_a_sample_is_the_same_every_time_and_in_order():
    texts = ["A a. B b. A a.", "C c. D d.", "E e."]
    assert sample_sentences(texts, None, 0) == (["A a.", "B b.", "C c.", "D d.", "E e."], 5)
    some, total = sample_sentences(texts, 3, 0)
    assert total == 5 and len(some) == 3 and some == sorted(some) == sample_sentences(texts, 3, 0)[0]
