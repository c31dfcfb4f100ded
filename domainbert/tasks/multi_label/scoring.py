"""Scoring of multi-label text classification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.labelled.items import label_set
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.classification import count_labels
from domainbert.metrics.counts import macro_f1, micro_f1, scores, scores_by_name, weighted_f1
from domainbert.metrics.diagnostics import Pair
from domainbert.metrics.summary import collapse_warnings
from domainbert.metrics.table import Breakdown
from domainbert.tasks.counted_scoring import CountedScoring
from domainbert.tasks.mistakes import CORRECT, MISSED, SPURIOUS, Mark, Mistake
from domainbert.tasks.multi_label.files import LabelledText


@dataclass(frozen=True)
class LabelsOfText:
    """Predicted labels of a text, and the probability of every label."""

    labels: list[str]
    scores: dict[str, float]


class MultiLabelScoring(CountedScoring):
    """Scoring with micro F1, and macro F1 over the labels in gold or predictions."""

    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": micro_f1, "macro_f1": macro_f1}
    titles: ClassVar[Mapping[str, str]] = {"f1": "micro F1", "macro_f1": "macro F1"}
    further: ClassVar[Mapping[str, str]] = {
        "precision": "precision",
        "recall": "recall",
        "weighted_f1": "weighted F1",
        "exact": "exact",
    }
    breakdowns = (Breakdown("by label", "per_label"),)

    @property
    @override
    def num_gold(self) -> int:
        return sum(len(item.labels) for item in self.test.items)

    @property
    @override
    def title(self) -> str:
        return f"micro F1 over {self.num_gold:,} labels of {len(self.test.items):,} {self.test.unit}"

    @override
    def row(self, item: LabelledText, prediction: LabelsOfText) -> dict[str, Any]:
        predicted = {"predicted": prediction.labels, "scores": prediction.scores}
        return {**item.as_row, "gold": list(item.labels), **predicted}

    @override
    def mistake(self, item: LabelledText, prediction: LabelsOfText) -> Mistake | None:
        """Return the errors of a text; None if all labels are correct.

        The severity of a spurious label is its probability, of a missed label 1 minus its probability.
        """
        missed, spurious = _wrong_labels(item, prediction)
        if not missed and not spurious:
            return None
        scores = prediction.scores
        severities = [*(1 - scores.get(label, 0.0) for label in missed), *(scores[label] for label in spurious)]
        kinds = dict.fromkeys(missed, MISSED) | dict.fromkeys(spurious, SPURIOUS)
        gold = [Mark(label, score=scores.get(label, 0.0), kind=kinds.get(label, CORRECT)) for label in item.labels]
        predicted = [Mark(label, score=scores[label], kind=kinds.get(label, CORRECT)) for label in prediction.labels]
        return Mistake(item.text, gold, predicted, max(severities), item.text_pair)

    @override
    def confusion_pairs(self, item: LabelledText, prediction: LabelsOfText) -> list[Pair]:
        """Return (gold, predicted) pairs of labels.

        A correct label is paired with itself. If there are exactly one missed and one spurious label, they are a pair;
        otherwise each missed and each spurious label is paired with None.
        """
        missed, spurious = _wrong_labels(item, prediction)
        correct: list[Pair] = [(label, label) for label in item.labels if label not in missed]
        if len(missed) == len(spurious) == 1:
            return [*correct, (missed[0], spurious[0])]
        return [*correct, *((label, None) for label in missed), *((None, label) for label in spurious)]

    @override
    def confidences(self, item: LabelledText, prediction: LabelsOfText) -> Iterator[tuple[float, bool]]:
        return ((score, label in item.labels) for label, score in prediction.scores.items())

    def count(self, predictions: Sequence[LabelsOfText]) -> NDArray[np.int64]:
        """Return true positives, false positives and false negatives: (texts, labels, 3)."""
        gold = [item.labels for item in self.test.items]
        return count_labels(gold, [prediction.labels for prediction in predictions], sorted(self.labels))

    def scores(self, predictions: Sequence[LabelsOfText], totals: NDArray[Any]) -> dict[str, Any]:
        """Return all test scores: `f1`, `precision` and `recall` are micro averages; `exact` is the share of texts with
        all labels correct."""
        pairs = zip(self.test.items, predictions, strict=True)
        is_exact = [set(item.labels) == set(prediction.labels) for item, prediction in pairs]
        return {
            **scores(totals.sum(axis=0)),
            "macro_f1": float(macro_f1(totals)),
            "weighted_f1": float(weighted_f1(totals)),
            "exact": float(np.mean(is_exact)),
            "per_label": scores_by_name(sorted(self.labels), totals),
        }

    def warnings(self) -> list[str]:
        """Return warnings about models that predict no label although gold has labels; otherwise []."""
        gold = label_set(self.test.items)
        return collapse_warnings(self.predictions, attrgetter("labels"), gold, "predicts no label at all", max_values=0)


def _wrong_labels(item: LabelledText, prediction: LabelsOfText) -> tuple[list[str], list[str]]:
    missed = [label for label in item.labels if label not in prediction.labels]
    return missed, [label for label in prediction.labels if label not in item.labels]
