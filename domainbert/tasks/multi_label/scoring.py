"""Texts with any number of labels as a test set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.classification import count_labels
from domainbert.metrics.confusion import Pair
from domainbert.metrics.counts import by_name, macro_f1, micro_f1, scores, weighted_f1
from domainbert.metrics.summary import Summary, collapsed
from domainbert.metrics.table import multi_label_lines
from domainbert.tasks.mistakes import CORRECT, MISSED, SPURIOUS, Mark, Mistake
from domainbert.tasks.multi_label.files import LabelledText
from domainbert.tasks.scoring import CountedScoring


@dataclass(frozen=True)
class LabelsOfText:
    """The labels of a text, and the probability of every label."""

    labels: list[str]
    scores: dict[str, float]


class MultiLabelScoring(CountedScoring):
    """Texts with labels as a test set: micro F1, and macro F1 over the labels that occur in gold or prediction."""

    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": micro_f1, "macro_f1": macro_f1}

    @property
    def num_gold(self) -> int:
        """The labels of all texts."""
        return sum(len(item.labels) for item in self.test.items)

    @property
    @override
    def title(self) -> str:
        return f"micro F1 over {self.num_gold:,} labels of {len(self.test.items):,} {self.test.unit}"

    @override
    def row(self, item: LabelledText, prediction: LabelsOfText) -> dict[str, Any]:
        gold = {**item.as_row, "gold": list(item.labels)}
        return {**gold, "predicted": prediction.labels, "scores": prediction.scores}

    @override
    def mistake(self, item: LabelledText, prediction: LabelsOfText) -> Mistake | None:
        """The worst mistake of a text; a missed label counts by what its probability lacks to 1."""
        missed, spurious = _differing(item, prediction)
        if not missed and not spurious:
            return None
        scores = prediction.scores
        doubts = [*(1 - scores.get(one, 0.0) for one in missed), *(scores[one] for one in spurious)]
        gold = [Mark(one, score=scores.get(one, 0.0), kind=MISSED if one in missed else CORRECT) for one in item.labels]
        kinds = {one: SPURIOUS if one in spurious else CORRECT for one in prediction.labels}
        found = [Mark(one, score=scores[one], kind=kind) for one, kind in kinds.items()]
        return Mistake(item.text, gold, found, max(doubts), item.text_pair)

    def confused(self, item: LabelledText, prediction: LabelsOfText) -> list[Pair]:
        """Labels that are right. Where one is missed and one is spurious, this is taken for that; else each of them is
        there alone, for nothing says which is which."""
        missed, spurious = _differing(item, prediction)
        right: list[Pair] = [(one, one) for one in item.labels if one not in missed]
        if len(missed) == len(spurious) == 1:
            return [*right, (missed[0], spurious[0])]
        return [*right, *((one, None) for one in missed), *((None, one) for one in spurious)]

    def confidences(self, item: LabelledText, prediction: LabelsOfText) -> Iterator[tuple[float, bool]]:
        """Every label, whether it holds or not."""
        return ((score, label in item.labels) for label, score in prediction.scores.items())

    def count(self, predictions: Sequence[LabelsOfText]) -> NDArray[np.int64]:
        """True positives, false positives and false negatives: (texts, labels, 3)."""
        gold = [item.labels for item in self.test.items]
        return count_labels(gold, [one.labels for one in predictions], sorted(self.labels))

    def scores(self, predictions: Sequence[LabelsOfText], totals: NDArray[Any]) -> dict[str, Any]:
        """`precision` and `recall` are micro; `exact` is the share of texts whose labels are all right."""
        pairs = zip(self.test.items, predictions, strict=True)
        return {
            **scores(totals.sum(axis=0)).as_dict(),
            "macro_f1": float(macro_f1(totals)),
            "weighted_f1": float(weighted_f1(totals)),
            "exact": float(np.mean([set(item.labels) == set(one.labels) for item, one in pairs])),
            "per_label": by_name(sorted(self.labels), totals),
        }

    def warnings(self) -> list[str]:
        """Models that give no label at all."""
        silent = collapsed(
            self.predictions, lambda found: not any(one.labels for one in found), "predicts no label at all"
        )
        return silent if self.num_gold else []

    @override
    def lines(self, summary: Summary) -> list[str]:
        return multi_label_lines(summary, self.headline.key, self.headline.name)


def _differing(item: LabelledText, prediction: LabelsOfText) -> tuple[list[str], list[str]]:
    """The labels that are missed, and those that are spurious."""
    missed = [label for label in item.labels if label not in prediction.labels]
    return missed, [label for label in prediction.labels if label not in item.labels]
