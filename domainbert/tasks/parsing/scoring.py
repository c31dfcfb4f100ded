"""A treebank as a test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.attachment import ATTACHMENT, LENGTHS, Arc, count_arcs, count_by_label, count_by_length
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.entities import sum_by_document
from domainbert.metrics.summary import Summary, by_name, collapsed
from domainbert.metrics.table import tree_lines
from domainbert.tasks.labelled import label_set
from domainbert.tasks.parsing.config import Parsing
from domainbert.tasks.parsing.files import DEPS, HEAD, LABEL, Sentence, Treebank, is_word
from domainbert.tasks.scoring import CountedScoring

_NONE = "_"

Arcs = list[list[Arc]]


class TreeScoring(CountedScoring):
    """Sentences with trees; predictions are the arcs of their words."""

    suffix = ".conllu"
    statistics: ClassVar[Mapping[str, Statistic]] = ATTACHMENT
    config: Parsing
    test: Treebank

    @property
    def num_gold(self) -> int:
        """The words."""
        return self.test.num_words

    @property
    def num_units(self) -> int:
        """The documents."""
        return self.test.num_documents

    @property
    def title(self) -> str:
        """See `Scoring.title`."""
        return f"LAS over {self.num_gold:,} words"

    def predict(self, predictor: Any) -> Arcs:
        """See `Scoring.predict`; trees are decoded as the settings say."""
        predictor.task.decoding = self.config.decode
        return [tree.arcs for tree in predictor.predict_trees(self.test.contents)]

    def write(self, path: Path, predictions: Sequence[Sequence[Arc]]) -> None:
        """A copy of the treebank with the predicted heads and labels, and without its enhanced dependencies."""
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for sentence, arcs in zip(self.test.items, predictions, strict=True):
                stream.write("\n".join([*_rewritten(sentence, arcs), "", ""]))

    def count(self, predictions: Sequence[Sequence[Arc]]) -> NDArray[np.int64]:
        """Counts of each document, see `count_arcs`."""
        counts = count_arcs(self.gold, predictions, [sentence.punctuation for sentence in self.test.items])
        return sum_by_document(counts, [sentence.document for sentence in self.test.items])

    def scores(self, predictions: Sequence[Sequence[Arc]], totals: NDArray[Any]) -> dict[str, Any]:
        """See `CountedScoring.scores`; with the scores of each label, and of arcs by their length."""
        labels = sorted(self.labels.union(label_set(self.test.items)))
        return {
            **super().scores(predictions, totals),
            "per_label": by_name(labels, count_by_label(self.gold, predictions, labels)),
            "by_length": by_name(LENGTHS, count_by_length(self.gold, predictions)),
        }

    @property
    def gold(self) -> Arcs:
        """The arcs of the test set."""
        return [sentence.arcs for sentence in self.test.items]

    def warnings(self) -> list[str]:
        """Models that give all arcs one label."""
        same = "gives every arc the same label"
        found = collapsed(self.predictions, lambda trees: len({arc[1] for tree in trees for arc in tree}) == 1, same)
        return found if len(label_set(self.test.items)) > 1 else []

    def lines(self, summary: Summary) -> list[str]:
        """See `Scoring.lines`."""
        return tree_lines(summary)


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
