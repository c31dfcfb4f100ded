"""A treebank as a test set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import eq
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.labelled.items import label_set
from domainbert.labelled.stretches import joined_words
from domainbert.metrics.attachment import ATTACHMENT, LENGTHS, Arc, count_arcs, count_by_label, count_by_length
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.confusion import Pair
from domainbert.metrics.counts import by_name
from domainbert.metrics.summary import Summary, collapsed
from domainbert.metrics.table import tree_lines
from domainbert.tasks.mistakes import Mark, Mistake
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import DEPS, HEAD, LABEL, Sentence, Treebank, is_word
from domainbert.tasks.parsing.parser import Tree
from domainbert.tasks.scoring import CountedScoring

_NONE = "_"


class TreeScoring(CountedScoring):
    """Sentences with trees, which are predicted."""

    suffix = ".conllu"
    statistics: ClassVar[Mapping[str, Statistic]] = ATTACHMENT
    config: Parsing
    test: Treebank

    @property
    def num_gold(self) -> int:
        """The words."""
        return self.test.num_words

    @property
    @override
    def title(self) -> str:
        return f"LAS over {self.num_gold:,} words"

    @override
    def predict(self, predictor: Any) -> list[Tree]:
        """Trees are decoded, and their labels read, as the settings say."""
        predictor.task.decoding = self.config.decode
        read = self.config.format.read_label
        found: list[Tree] = predictor.predict_trees(self.test.contents)
        return [tree._replace(arcs=[(head, read(label)) for head, label in tree.arcs]) for tree in found]

    def row(self, item: Sentence, prediction: Tree) -> str:
        """The sentence in CoNLL-U with the predicted heads and labels, and without its enhanced dependencies."""
        return "\n".join([*_rewritten(item, prediction.arcs), "", ""])

    @override
    def mistake(self, item: Sentence, prediction: Tree) -> Mistake | None:
        """Arcs are marked at the words that they lead to, the wrong ones alone."""
        text, places = joined_words(item.words)
        gold, found, doubts = [], [], []
        for wanted, said, place, score in zip(item.arcs, prediction.arcs, places, prediction.scores, strict=True):
            if wanted != said:
                kind = _kind(wanted, said)
                gold.append(Mark(wanted[1], *place, kind=kind, head=_head(item, wanted)))
                found.append(Mark(said[1], *place, score, kind, _head(item, said)))
                doubts.append(score)
        return Mistake(text, gold, found, max(doubts)) if doubts else None

    def confused(self, item: Sentence, prediction: Tree) -> Iterator[Pair]:
        """The labels of all words, whatever their heads."""
        return ((wanted[1], said[1]) for wanted, said in zip(item.arcs, prediction.arcs, strict=True))

    def confidences(self, item: Sentence, prediction: Tree) -> Iterable[tuple[float, bool]]:
        """The arcs with their labels."""
        return zip(prediction.scores, map(eq, item.arcs, prediction.arcs), strict=True)

    def count(self, predictions: Sequence[Tree]) -> NDArray[np.int64]:
        """Counts of each sentence, see `count_arcs`."""
        return count_arcs(self.gold, _arcs(predictions), [sentence.punctuation for sentence in self.test.items])

    @override
    def scores(self, predictions: Sequence[Tree], totals: NDArray[Any]) -> dict[str, Any]:
        """Scores from counts, also of each label, and of arcs by their length."""
        labels, found = sorted(self.labels.union(label_set(self.test.items))), _arcs(predictions)
        return {
            **super().scores(predictions, totals),
            "per_label": by_name(labels, count_by_label(self.gold, found, labels)),
            "by_length": by_name(LENGTHS, count_by_length(self.gold, found)),
        }

    @property
    def gold(self) -> list[list[Arc]]:
        """The arcs of the test set."""
        return [sentence.arcs for sentence in self.test.items]

    def warnings(self) -> list[str]:
        """Models that give all arcs one label."""
        same = "gives every arc the same label"
        found = collapsed(
            self.predictions, lambda trees: len({arc[1] for tree in trees for arc in tree.arcs}) == 1, same
        )
        return found if len(label_set(self.test.items)) > 1 else []

    @override
    def lines(self, summary: Summary) -> list[str]:
        return tree_lines(summary)


def _arcs(trees: Sequence[Tree]) -> list[list[Arc]]:
    return [tree.arcs for tree in trees]


def _kind(wanted: Arc, said: Arc) -> str:
    """The fault of an arc."""
    if wanted[0] == said[0]:
        return "label"
    return "head" if wanted[1] == said[1] else "head and label"


def _head(sentence: Sentence, arc: Arc) -> str | None:
    """The word that an arc comes from; None of the root."""
    return sentence.words[arc[0] - 1] if arc[0] else None


def _rewritten(sentence: Sentence, arcs: Sequence[Arc]) -> list[str]:
    """The lines of a sentence with other arcs."""
    remaining = iter(arcs)
    rows = []
    for row in sentence.rows:
        if is_word(row):
            columns = row.split("\t")
            head, columns[LABEL] = next(remaining)
            columns[HEAD], columns[DEPS] = str(head), _NONE
            row = "\t".join(columns)
        rows.append(row)
    return rows
