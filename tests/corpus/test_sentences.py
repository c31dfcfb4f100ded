from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from domainbert.corpus.sentences import sample_sentences, split_sentences


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
    other = "Il partit. À midi, il revint. était-ce lui? Суд решил. Истец (да) молчал."
    assert list(split_sentences(other)) == [
        "Il partit.",
        "À midi, il revint. était-ce lui?",
        "Суд решил.",
        "Истец (да) молчал.",
    ]
    assert [len(piece.split()) for piece in split_sentences("a " * 25, max_words=10)] == [10, 10, 5]


def test_scripts_without_capitals_have_sentences():
    hindi, arabic = "\u0926\u0930 \u092c\u0922\u093c\u0940\u0964 \u0926\u0930", "\u0645\u0627\u061f \u0644\u0627"
    assert len(list(split_sentences(hindi))) == len(list(split_sentences(arabic))) == 2
    chinese = "\u5229\u7387\u4e0a\u5347\u3002\u201c\u4e3a\u4ec0\u4e48\uff1f\u201d\u4ed6\u95ee\u3002"
    assert [len(part) for part in split_sentences(chinese)] == [5, 6, 3]


def test_what_closes_a_sentence_stays_with_it():
    assert list(split_sentences('He said "no." Then (he left.) 2 stayed.')) == [
        'He said "no."',
        "Then (he left.)",
        "2 stayed.",
    ]


@given(st.text(alphabet="aB1 .!?\"')](\n"))
def test_no_word_is_lost(text):
    assert " ".join(split_sentences(text)).split() == text.split()


def test_a_sample_is_the_same_every_time_and_in_order():
    texts = ["A a. B b. A a.", "C c. D d.", "E e."]
    assert sample_sentences(texts, None, 0) == (["A a.", "B b.", "C c.", "D d.", "E e."], 6)
    some, total = sample_sentences(texts, 3, 0)
    assert total == 6 and len(some) == 3 and some == sorted(some) == sample_sentences(texts, 3, 0)[0]
    assert sorted(sample_sentences(texts[::-1], 3, 0)[0]) == some, "whatever their order and number"
    assert sample_sentences(texts, 0, 0) == ([], 6) and sample_sentences(texts, 9, 0)[0] == sorted(
        set(["A a.", "B b.", "C c.", "D d.", "E e."])
    )


def test_sentences_are_drawn_alike():
    """Each of 10 sentences is among the 3 drawn in 300 of 1,000 draws, within 4.5 standard deviations."""
    texts = [f"Sentence {letter}." for letter in "abcdefghij"]
    counts = Counter(sentence for seed in range(1000) for sentence in sample_sentences(texts, 3, seed)[0])
    assert max(abs(counts[text] - 300) for text in texts) < 4.5 * (1000 * 0.3 * 0.7) ** 0.5
