"""Texts with any number of labels as a test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.counts import macro_f1, micro_f1, scores, weighted_f1
from domainbert.metrics.multi_label import count_labels
from domainbert.metrics.summary import Summary, by_name, collapsed
from domainbert.metrics.table import multi_label_lines
from domainbert.tasks.multi_label.files import LabelledText
from domainbert.tasks.multi_label.labeller import LabelsOfText
from domainbert.tasks.scoring import CountedScoring


class MultiLabelScoring(CountedScoring):
    """Texts with labels: micro F1, and macro F1 over the labels that occur in gold or prediction."""

    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": micro_f1, "macro_f1": macro_f1}

    @property
    def num_gold(self) -> int:
        """The labels of all texts."""
        return sum(len(item.labels) for item in self.test.items)

    @property
    def title(self) -> str:
        """Description of what is scored."""
        return f"micro F1 over {self.num_gold:,} labels of {len(self.test.items):,} texts"

    def row(self, item: LabelledText, prediction: LabelsOfText) -> dict[str, Any]:
        """See `Scoring.row`."""
        gold = {"text": item.text, "gold": list(item.labels)}
        return {**gold, "predicted": prediction.labels, "scores": prediction.scores}

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
        silent = {
            name: [seed for seed, found in runs.items() if not any(one.labels for one in found)]
            for name, runs in self.predictions.items()
        }
        return collapsed(silent, "predicts no label at all") if self.num_gold else []

    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""
        return multi_label_lines(summary)
