"""Unlabelled text has the same outputs for teachers and students of every vocabulary."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from domainbert.base.choices import choices_of
from domainbert.distillation.teachers import unlabelled_contents
from domainbert.labelled.entities import Sentence
from domainbert.labelled.items import Labelled
from domainbert.labelled.tag_schemes import labels_of_types
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.ner.task import NerTask
from domainbert.tasks.token_labels.task import TokenLabelsTask
from domainbert.tokenization.config import TokenizerKindConfig
from domainbert.tokenization.load import DomainTokenizer
from domainbert.tokenization.words import WordCounter

SENTENCES = Labelled(Path("train.conll"), [Sentence(("Loans",), ("O",), line=1, document=0)], "conll")
_TEXT = 'The bank\'s café ("loans"), in Zürich; US$3.5bn of 中国 ... (rates), "grants"), men\'s co-ops. '
_STEMS = ("bank", "loan", "farm", "rate", "price", "trade", "tax", "debt", "fund", "grow")
_SIZES = {"ByteBPE": 320, "Unigram": 128, "WordPiece": 192}


def _vocabulary(name: str, lowercase: bool) -> DomainTokenizer:
    kind = choices_of(TokenizerKindConfig)[name]().build()
    counter = WordCounter(10**9)
    counter.add((_TEXT + " ".join(stem + end for stem in _STEMS for end in ("s", "ed", "ing", "er", "ers"))) * 20)
    return DomainTokenizer(kind.train(kind.select(counter, lowercase, 1), _SIZES[name], lowercase, 1))


@pytest.fixture(scope="module")
def vocabularies() -> list[DomainTokenizer]:
    """All kinds, cased and uncased."""
    assert _SIZES.keys() == choices_of(TokenizerKindConfig).keys()
    return [_vocabulary(name, lowercase) for name in _SIZES for lowercase in (False, True)]


@example(":\U000115dc")
@given(st.text(st.sampled_from(_TEXT + "\u0301\u200d\u00a0\x00") | st.characters(codec="utf-8"), max_size=40))
def test_every_vocabulary_has_the_same_words(vocabularies: list[DomainTokenizer], text: str) -> None:
    contents = unlabelled_contents(SENTENCES, [text, 'Loans (of "men"), and "grants"), rose.'], None)
    assert len(contents[1]) == 16
    tasks = [NerTask(labels_of_types(["x"], scheme)) for scheme in ("IOB2", "BIOES")] + [TokenLabelsTask(["a", "b"])]
    for task in tasks:
        sizes = [
            [example.num_outputs for example in task.encode_contents(contents, tokenizer, 32)]
            for tokenizer in vocabularies
        ]
        assert sizes == [[len(words) for words in contents]] * len(vocabularies), task.name


def test_texts_that_are_labelled_as_a_whole_are_not_split() -> None:
    labelled = Labelled(Path("train.jsonl"), [LabelledText("A loan.", "up", 1)], "jsonl")
    assert unlabelled_contents(labelled, ["Crédit (loans), rose."], None) == ["Crédit (loans), rose."]
