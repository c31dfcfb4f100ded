"""Raw text is split into words as the training words were."""

from __future__ import annotations

import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domainbert.tokenization.align import align_text, align_words, basic_words
from domainbert.tokenization.splitting import (
    align_raw,
    check_splitting,
    infer_splitting,
    joins_previous,
    merge_pretokens,
    printed_texts,
)
from tests.refusals import refused

WORDS = ["The", "savings-group", "of", "women's", "3.5", "crédit", "café-owners", "and/or", "U.S.", "loan"]


def split(text, splitting):
    (pretokens,) = basic_words([text])
    return merge_pretokens(pretokens, joins_previous(text, pretokens, splitting))


def words_of(text, splitting):
    return [text[start:stop] for start, stop in split(text, splitting)]


def test_marks_inside_of_training_words_stay_and_others_are_split_off():
    sentences = [[*WORDS, ","], ["A", "loan", "."], ["Costs", ":", "3.5", "%", "(", "café", ")", "."]] * 3
    sentences += [["Nothing", "changed", "."]] * 9
    splitting = infer_splitting(sentences)
    assert splitting["inside_left"] == splitting["inside_right"] == "'-./"
    text = "A savings-group, i.e. café-owners' (women's) loans: 3.5%."
    assert words_of(text, splitting) == (
        ["A", "savings-group", ",", "i.e", ".", "café-owners", "'", "(", "women's", ")", "loans", ":", "3.5", "%", "."]
    )
    assert words_of(text, "whitespace") == text.split()
    assert words_of(text, "punctuation") == [text[start:stop] for start, stop in basic_words([text])[0]]


@pytest.mark.parametrize(
    "sentences, expected",
    [
        ([["savings", "-", "groups", ",", "crédit", "."]], "punctuation"),
        ([["Nothing", "changed"]], "punctuation"),
        ([["The", "savings-groups,", "and", "(all)", "loans."], ["Nothing", "changed;", "no."]], "whitespace"),
    ],
)
def test_the_simplest_splitting_that_reproduces_the_words_is_taken(sentences, expected):
    assert infer_splitting(sentences) == expected


def test_endings_are_split_off_where_training_splits_them():
    splitting = infer_splitting([["women", "'s", "micro-loans", ",", "men", "'s", "cafés"]])
    text = "Girls, micro-loans of banks: the bank's."
    assert words_of(text, splitting) == ["Girls", ",", "micro-loans", "of", "banks", ":", "the", "bank", "'s", "."]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=12), max_size=8), st.data())
def test_words_are_whole_pre_tokens_in_order(parts, data):
    """Of any text and splitting: nothing is lost, and no word crosses white space or overlaps another."""
    text = " ".join(parts)
    marks = st.dictionaries(st.sampled_from(["begin", "end", "inside_left", "inside_right", "repeated"]), st.text())
    splitting = data.draw(st.sampled_from(["punctuation", "whitespace"]) | marks)
    words, (pretokens,) = split(text, splitting), basic_words([text])
    assert {start for start, _ in words} <= {start for start, _ in pretokens}
    assert {stop for _, stop in words} <= {stop for _, stop in pretokens}
    assert all(one[1] <= other[0] for one, other in pairwise(words))
    assert not any(" " in text[start:stop] for start, stop in words)


def test_a_long_run_without_spaces():
    text = "中," * 30_000
    joined = joins_previous(text, [(index, index + 1) for index in range(len(text))], {"inside_right": ","})
    assert joined == [False, *[False, True] * 29_999, False]


PRINTED = {
    "The bank's rate (5%) rose, é.": [
        "The bank 's rate ( 5 % ) rose , é .",  # Penn Treebank, spaCy
        "The bank ' s rate ( 5 % ) rose , é .",  # split at each mark
        "The bank's rate (5%) rose, é.",  # split at white space
    ],
    "He can't say \"no\" to the firms' [net] $5-loans.": [
        "He ca n't say `` no '' to the firms ' -LSB- net -RSB- $ 5-loans .",  # Penn Treebank
        "He ca n't say \" no \" to the firms ' [ net ] $ 5-loans .",  # spaCy
    ],
    "Drug-induced “loss” and/or NF-κB-dependent, anti-CD3 pre- and post-test TNF+ T-cells.": [
        "Drug - induced “ loss ” and / or NF - κB - dependent , anti - CD3 pre- and post - test TNF + T - cells .",
        "Drug -induced “ loss ” and / or NF-κB -dependent , anti- CD3 pre- and post-test TNF+ T-cells .",  # GENIA
        "Drug-induced “ loss ” and/or NF-κB-dependent , anti-CD3 pre- and post-test TNF+ T-cells .",  # Penn Treebank
    ],
    "Dell'uomo: l'effet.": ["Dell' uomo : l' effet ."],
    "Deficient in C5 - a complement protein": ["Deficient in C5 - a complement protein"],  # split at white space
}


@pytest.mark.parametrize("text, words", [(text, words) for text, rows in PRINTED.items() for words in rows])
def test_words_are_joined_to_their_printed_text(text, words):
    sentences = [words.split()]
    if text == words:  # a file split at white space is recognized by its commas
        sentences.append(["a,", "b", "c,"])
    printed, spans = printed_texts(sentences)[0]
    assert printed == text
    treebank = {"``": '"', "''": '"', "-LSB-": "[", "-RSB-": "]"}
    assert [text[start:stop] for start, stop in spans] == [treebank.get(word, word) for word in words.split()]


def test_marks_that_print_with_and_without_blanks():
    words = ["and", "/", "or", "T", "-", "cells", ",", "-", "LPS", "-induced", ",", "anti-", "CD3"]
    assert [printed_texts([words], compact)[0][0] for compact in (True, False)] == [
        "and/or T-cells, - LPS-induced, anti-CD3",
        "and / or T - cells, - LPS -induced, anti- CD3",
    ]


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), max_size=12), st.booleans())
def test_printed_words_keep_their_order_and_characters(words, compact):
    text, spans = printed_texts([words], compact)[0]
    assert re.sub("\\s", "", text) == re.sub("\\s", "", "".join(text[start:stop] for start, stop in spans))
    assert all(one[1] <= other[0] for one, other in pairwise(spans)) and len(spans) == len(words)


CISPLATIN = [["cisplatin", "-", "induced", "ototoxicity"]] * 400 + [["5-fluorouracil", "at", "0.5", "mg"]] * 100


def test_a_mark_between_two_words_is_split_off_as_in_most_training_words():
    """Beside digits the same mark may belong to a word, as in spaCy's tokens."""
    splitting = infer_splitting(CISPLATIN)
    assert words_of("Famotidine-associated 5-fluorouracil (0.5 mg)", splitting)[:4] == (
        ["Famotidine", "-", "associated", "5-fluorouracil"]
    )
    letters = infer_splitting([*CISPLATIN, *[["self-employment", "vitamin", "B", "-", "6"]] * 2_000])
    assert words_of("well-being B-6", letters) == ["well-being", "B", "-", "6"]
    older = {"inside_left": "-", "inside_right": "-"}  # of a folder without places for digits
    assert words_of("well-being 5-fluorouracil", older) == ["well-being", "5-fluorouracil"]


def test_pieces_of_raw_text_are_those_of_its_words(make_tokenizer):
    """Raw text gives a model the same pieces as in training, for any splitting."""
    tokenizer = make_tokenizer()
    sentence = ["the", "banks-rates", ",", "men's", "rate", "é-bank", "."]
    splitting = infer_splitting([sentence])
    ((text, spans),) = printed_texts([sentence])
    (words,), (raw,) = align_words(tokenizer, [sentence]), align_raw(tokenizer, [text], splitting)
    assert raw.word_offsets == spans
    for name in ("input_ids", "word_index", "starts_pretoken", "first_piece", "extra"):
        assert getattr(raw, name) == getattr(words, name)
    assert align_raw(tokenizer, [text], None) == align_text(tokenizer, [text])


@pytest.mark.parametrize("value", ["other", 3, ["-"], {"middle": "-"}, {"end": 3}])
def test_a_broken_splitting_is_refused(value):
    with refused(where="domainbert_word_splitting", found="..."):
        check_splitting(value)
