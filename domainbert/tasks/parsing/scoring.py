"""Scoring of dependency parsing."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.labelled.char_spans import join_words
from domainbert.labelled.items import label_set
from domainbert.metrics.attachment import ATTACHMENT, LENGTHS, Arc, count_arcs, count_by_label, count_by_length
from domainbert.metrics.counts import scores_by_name
from domainbert.metrics.diagnostics import Pair
from domainbert.metrics.summary import collapse_warnings
from domainbert.metrics.table import Breakdown
from domainbert.tasks.counted_scoring import CountedScoring
from domainbert.tasks.mistakes import Mark, Mistake
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import DEPS, HEAD, LABEL, Sentence, Treebank, is_word
from domainbert.tasks.parsing.trees import Tree

_UNDEFINED = "_"  # an empty field of CoNLL-U


class TreeScoring(CountedScoring):
    """Scoring with labelled and unlabelled attachment scores."""

    suffix = ".conllu"
    statistics = ATTACHMENT
    titles: ClassVar[Mapping[str, str]] = {
        "uas": "UAS",
        "las_no_punctuation": "LAS, no punctuation",
        "uas_no_punctuation": "UAS, no punctuation",
    }
    further: ClassVar[Mapping[str, str]] = {"exact": "exact trees"}
    breakdowns = (
        Breakdown("by label", "per_label"),
        Breakdown("F1 of heads by distance", "by_length", {"f1": ""}),
    )
    config: Parsing
    test: Treebank

    @property
    @override
    def num_gold(self) -> int:
        return self.test.num_words

    @property
    @override
    def title(self) -> str:
        return f"LAS over {self.num_gold:,} words"

    @override
    def predict(self, predictor: Any) -> list[Tree]:
        """Return the tree of each sentence, with the decoding and label reading of the settings."""
        predictor.task.decoding = self.config.decode
        read_label = self.config.format.read_label
        trees: list[Tree] = predictor.predict_trees(self.test.contents)
        return [tree._replace(arcs=[(head, read_label(label)) for head, label in tree.arcs]) for tree in trees]

    def row(self, item: Sentence, prediction: Tree) -> str:
        """Return the sentence in CoNLL-U with predicted heads and labels, without enhanced dependencies."""
        return "\n".join([*_replace_arcs(item, prediction.arcs), "", ""])  # an empty line ends a sentence

    @override
    def mistake(self, item: Sentence, prediction: Tree) -> Mistake | None:
        """Return the error of a sentence, with a mark on the dependent word of each wrong arc; None if all arcs are
        correct."""
        text, offsets = join_words(item.words)
        gold_marks, marks, scores = [], [], []
        words = zip(item.arcs, prediction.arcs, offsets, prediction.scores, strict=True)
        for gold, predicted, word_range, score in words:
            if gold != predicted:
                kind = _error_kind(gold, predicted)
                gold_marks.append(Mark(gold[1], *word_range, kind=kind, head=_head_word(item, gold)))
                marks.append(Mark(predicted[1], *word_range, score, kind, _head_word(item, predicted)))
                scores.append(score)
        return Mistake(text, gold_marks, marks, max(scores)) if scores else None

    @override
    def confusion_pairs(self, item: Sentence, prediction: Tree) -> Iterator[Pair]:
        """Return an iterator over the (gold, predicted) labels of all words, regardless of heads."""
        return ((gold[1], predicted[1]) for gold, predicted in zip(item.arcs, prediction.arcs, strict=True))

    @override
    def confidences(self, item: Sentence, prediction: Tree) -> Iterable[tuple[float, bool]]:
        """Return (probability, is correct) of each labelled arc."""
        return zip(prediction.scores, map(eq, item.arcs, prediction.arcs), strict=True)

    def count(self, predictions: Sequence[Tree]) -> NDArray[np.int64]:
        """Return the counts (sentences, 3, 3) of `count_arcs`."""
        return count_arcs(self.gold, _arcs(predictions), [sentence.punctuation for sentence in self.test.items])

    @override
    def scores(self, predictions: Sequence[Tree], totals: NDArray[Any]) -> dict[str, Any]:
        """Return the scores of one model, also by label and by arc length."""
        labels = sorted(self.labels.union(label_set(self.test.items)))
        arcs = _arcs(predictions)
        return {
            **super().scores(predictions, totals),
            "per_label": scores_by_name(labels, count_by_label(self.gold, arcs, labels)),
            "by_length": scores_by_name(LENGTHS, count_by_length(self.gold, arcs)),
        }

    @property
    def gold(self) -> list[list[Arc]]:
        """Return the gold arcs of all sentences."""
        return [sentence.arcs for sentence in self.test.items]

    def warnings(self) -> list[str]:
        """Return warnings about models that predict a single label although gold has several; otherwise []."""
        gold = label_set(self.test.items)
        return collapse_warnings(
            self.predictions, lambda tree: [label for _, label in tree.arcs], gold, "gives every arc the same label"
        )


def _arcs(trees: Sequence[Tree]) -> list[list[Arc]]:
    return [tree.arcs for tree in trees]


def _error_kind(gold: Arc, predicted: Arc) -> str:
    if gold[0] == predicted[0]:
        return "label"
    return "head" if gold[1] == predicted[1] else "head and label"


def _head_word(sentence: Sentence, arc: Arc) -> str | None:
    return sentence.words[arc[0] - 1] if arc[0] else None


def _replace_arcs(sentence: Sentence, arcs: Sequence[Arc]) -> list[str]:
    remaining = iter(arcs)
    rows = []
    for row in sentence.rows:
        if is_word(row):
            columns = row.split("\t")
            head, columns[LABEL] = next(remaining)
            # enhanced dependencies (DEPS) would not match the new arcs
            columns[HEAD], columns[DEPS] = str(head), _UNDEFINED
            row = "\t".join(columns)
        rows.append(row)
    return rows
