"""Scoring of test sets with one label per item or word, one of which may be the null label."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray
from typing_extensions import override

from domainbert.labelled.items import label_set
from domainbert.metrics.classification import NULL_CLASS_STATISTICS
from domainbert.metrics.counts import score_counts, scores, scores_by_name
from domainbert.metrics.summary import collapse_warnings
from domainbert.metrics.table import Breakdown
from domainbert.tasks.scoring import CountedScoring


class NullLabelScoring(CountedScoring):
    """Macro and micro F1 without the negative label, and accuracy over all labels; `count` returns the counts of
    `metrics.classification.without_null_class`."""

    statistics = NULL_CLASS_STATISTICS
    titles: ClassVar[Mapping[str, str]] = {"macro_f1": "macro F1", "micro_f1": "micro F1"}
    further: ClassVar[Mapping[str, str]] = {"precision": "precision", "recall": "recall"}
    breakdowns = (Breakdown("by label", "per_label"),)

    setting: ClassVar[str]
    """Name of the setting with the null label."""

    @property
    def null_label(self) -> str | None:
        """Return the null label; None if there is none."""
        label: str | None = getattr(self.config, self.setting)
        return label

    @abstractmethod
    def labels_of(self, prediction: Any) -> Iterable[str]:
        """Return the labels in the prediction of an item."""

    @property
    def classes(self) -> list[str]:
        """Return all labels of the models, sorted."""
        return sorted(self.labels)

    @override
    def scores(self, predictions: Sequence[Any], totals: NDArray[Any]) -> dict[str, Any]:
        """Return the scores of one model from its counts; `precision` and `recall` are micro averages."""
        positive = [label for label in self.classes if label != self.null_label]
        means = score_counts(NULL_CLASS_STATISTICS, totals)
        micro = scores(totals[:-1].sum(axis=0))
        further = {"precision": micro.precision, "recall": micro.recall}
        return {**means, **further, "per_label": scores_by_name(positive, totals[:-1])}

    def warnings(self) -> list[str]:
        """Return warnings about models that predict a single label although gold has several."""
        return collapse_warnings(
            self.predictions, self.labels_of, label_set(self.test.items), "predicts one label only"
        )

    @override
    def undefined(self, counts: NDArray[Any]) -> dict[str, str]:
        """Return the reasons for undefined scores; accuracy is always defined."""
        reasons = super().undefined(counts[..., :-1, :])
        return {name: reason for name, reason in reasons.items() if name != "accuracy"}
