from __future__ import annotations

from collections.abc import Callable

import pytest

from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.report import (
    LongWord,
    WordStatistics,
    count_words_of_texts,
    report_lines,
    transfer_view,
    vocabulary_overlap,
    vocabulary_report,
    word_statistics,
)
from domainbert.tokenization.surfaces import vocabulary_of


def test_words_hold_a_letter_or_a_digit() -> None:
    assert count_words_of_texts(["The men's 1,000 -- !", "The"]) == {"The": 2, "men": 1, "s": 1, "1": 1, "000": 1}


def test_every_occurrence_counts(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    tokenizer = make_tokenizer(["bank", "##s", "##er"])
    counts = {"Bank": 5, "banks": 2, "bankers": 2, "unheard": 1}
    assert word_statistics(tokenizer, counts) == WordStatistics(
        words=10,
        distinct_words=4,
        pieces_per_word=(5 + 4 + 6 + 1) / 10,
        share_unknown=0.1,
        share_continued=0.4,
        longest_split=[LongWord("bankers", ["bank", "##er", "##s"], 2), LongWord("banks", ["bank", "##s"], 2)],
    )
    assert word_statistics(tokenizer, {}) == WordStatistics(0, 0, 0.0, 0.0, 0.0, [])


def test_overlap_is_the_share_of_our_entries(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    ours, theirs = make_tokenizer(["bank", "##s", "loan", "rate"]), make_tokenizer(["bank", "s"])
    assert vocabulary_overlap(ours, theirs) == {"shared": 1, "share_of_ours": 0.25, "share_of_theirs": 0.5}


def test_the_report_compares_on_the_same_words(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    ours, theirs = make_tokenizer(["bank", "##s"]), make_tokenizer(["banks", "b", "##a", "##n", "##k"])
    report = vocabulary_report(ours, theirs, {"corpus": {"bank": 3, "banks": 1}})
    text = report["texts"]["corpus"]
    assert (text["ours"]["pieces_per_word"], text["theirs"]["pieces_per_word"]) == (1.25, 3.25)
    assert text["difference"] == pytest.approx(-2.0)
    assert report["compared"] == {"vocab_size": 10, "shared": 0, "share_of_ours": 0.0, "share_of_theirs": 0.0}
    lines = report_lines(report)
    assert lines[1].split() == ["ours", "4", "1.2500", "0.00", "%", "25.00", "%", "corpus"]
    assert lines[3].split() == ["difference", "-2.0000", "corpus"]
    assert lines[-1] == "  banks (1 times): bank ##s"
    assert report["transfer"] == {
        "shares": {"copied": 5 / 7, "composed": 1 / 7, "new": 1 / 7},
        "pieces_saved": 2.0,
        "shortened_words": [{"word": "bank", "before": ["b", "##a", "##n", "##k"], "after": ["bank"], "count": 3}],
    }
    assert lines[5:8] == [
        "change of a model from their vocabulary to ours:",
        "entries: 71.4 % copied, 14.3 % composed, 14.3 % new; 2.0000 pieces per word fewer",
        "  bank (3 times): b ##a ##n ##k -> bank",
    ]


def test_the_words_that_save_most_come_first(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    letters = ["b", "a", "##a", "##b", "##c"]
    new = make_tokenizer([*letters, "abc", "bb", "ba", "ab"])
    view = transfer_view(
        vocabulary_of(new), vocabulary_of(make_tokenizer(letters)), {"abc": 2, "bb": 3, "ba": 4, "b": 9}
    )
    assert [(word["word"], word["count"]) for word in view["shortened_words"]] == [("abc", 2), ("ba", 4), ("bb", 3)]
    assert view["pieces_saved"] == (2 * 2 + 4 + 3) / 18
    assert view["shortened_words"][0]["before"] == ["a", "##b", "##c"]


def test_the_report_of_one_vocabulary(make_tokenizer: Callable[..., DomainTokenizer]) -> None:
    report = vocabulary_report(make_tokenizer(["bank"]), None, {"corpus": {"bank": 3}})
    assert report["compared"] is None
    assert set(report["texts"]["corpus"]) == {"ours"}
    assert report_lines(report)[-1] == "words of corpus with the most pieces: no word is split"
