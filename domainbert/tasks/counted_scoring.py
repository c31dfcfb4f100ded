"""Base classes of scores that are computed from counts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.labelled.items import Labelled, label_set
from domainbert.metrics.bootstrap import Statistic, score_once
from domainbert.metrics.classification import NULL_CLASS_STATISTICS
from domainbert.metrics.counts import score_counts, scores_by_name
from domainbert.metrics.counts import scores as label_scores
from domainbert.metrics.summary import Resampling, Summary, collapse_warnings, summarize
from domainbert.metrics.table import Breakdown, score_lines, slice_tables
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.scoring import Scoring


class CountedScoring(Scoring):
    """Scores computed from counts summed over items: means over seeds, intervals and paired differences."""

    statistics: ClassVar[Mapping[str, Statistic]]
    """Scores with intervals, by name; includes the headline."""

    titles: ClassVar[Mapping[str, str]] = {}
    """Titles of `statistics` in tables by name, "" for no column; default: `headline.name` or, for others, the name."""

    further: ClassVar[Mapping[str, str]] = {}
    """Titles of scores without intervals in tables, by name; "a.b" is the nested score `b` of `a`."""

    breakdowns: ClassVar[Sequence[Breakdown]] = ()
    """Tables of scores by group, such as by label."""

    @abstractmethod
    def count(self, predictions: Sequence[Any]) -> NDArray[Any]:
        """Return counts (items, labels, counts), to be summed over items; scores are functions of these sums."""

    def scores(self, predictions: Sequence[Any], totals: NDArray[Any]) -> dict[str, Any]:
        """Return the scores of one model; `totals` (labels, counts) are the counts of the model summed over items.

        The default applies `statistics` to the counts of the items, and does not read `totals`.
        """
        counts = self.count(predictions)
        return {name: score_once(statistic, counts) for name, statistic in self.statistics.items()}

    def warnings(self) -> list[str]:
        """Return a warning for each system with trivial predictions, such as a single label; by default []."""
        return []

    def undefined(self, counts: NDArray[Any]) -> dict[str, str]:
        """Return the reason, by name, for each statistic that is undefined for counts (items, labels, counts).

        By default, all statistics are undefined if all counts are 0.
        """
        return {} if counts.any() else dict.fromkeys(self.statistics, "neither the test set nor the model has a label")

    @override
    def summary(self, resampling: Resampling) -> Summary:
        summary = summarize(
            self.predictions,
            self.count,
            self.scores,
            self.statistics,
            headline=self.headline.key,
            resampling=replace(resampling, units=self.test.unit_ids),
            slices=self.slices(self.headline.averaged_key),
            undefined=self.undefined,
        )
        undefined = [
            f"{name}: {score} is undefined, because {reason}"
            for name, system in summary["systems"].items()
            for score, reason in system.get("undefined", {}).items()
        ]
        return summary | {"warnings": [*self.warnings(), *undefined]}

    @override
    def lines(self, summary: Summary) -> list[str]:
        headline = self.headline
        others = {name: name for name in self.statistics if name != headline.key and name not in self.further}
        titles = {headline.key: headline.name, **others, **self.titles}  # `titles` overrides others
        shown = {name: title for name, title in titles.items() if title}
        lines = score_lines(summary, shown, headline.percent, self.further)
        systems, paired = summary["systems"], summary["paired"]
        breakdowns = [breakdown.table(systems) for breakdown in self.breakdowns]
        tables = [*slice_tables(systems, headline.percent, paired), *breakdowns]
        for table in tables:
            if table.rows:
                lines += ["", *table.lines()]
        return lines


def mean_value(counts: NDArray[Any]) -> NDArray[Any]:
    """Return the mean score of items (...), from the counts (..., 1, 2) of a `MeanScoring`."""
    score_sums, numbers = counts[..., 0, 0], counts[..., 0, 1]
    means: NDArray[Any] = score_sums / numbers
    return means


class MeanScoring(CountedScoring):
    """Scores a test set by the mean of one number per item, which is the headline."""

    def __init__(self, config: TaskConfig, test: Labelled[Any], train: Labelled[Any] | None = None) -> None:
        super().__init__(config, test, train)
        self.statistics = {self.headline.averaged_key: mean_value}  # type: ignore[misc]  # a constant in other subclasses

    @abstractmethod
    def item_score(self, item: Any, prediction: Any) -> float:
        """Return the score of one item, given its prediction, such as the absolute error."""

    @override
    def count(self, predictions: Sequence[Any]) -> NDArray[Any]:
        """Return counts (items, 1, 2): the score of each item, and 1, so that the quotient of the sums is the mean."""
        scores = [self.item_score(*pair) for pair in zip(self.test.items, predictions, strict=True)]
        counts = np.stack([scores, np.ones(len(scores))], axis=-1)
        return counts[:, np.newaxis]  # one row in place of a row per label


class NullLabelScoring(CountedScoring):
    """Macro and micro F1 without the negative label, and accuracy over all labels; `count` returns the counts of
    `metrics.classification.without_null_class`."""

    statistics = NULL_CLASS_STATISTICS
    titles: ClassVar[Mapping[str, str]] = {"macro_f1": "macro F1", "micro_f1": "micro F1"}
    further: ClassVar[Mapping[str, str]] = {"precision": "precision", "recall": "recall"}
    breakdowns = (Breakdown("by label", "per_label"),)

    def __init__(self, config: TaskConfig, test: Labelled[Any], train: Labelled[Any] | None = None) -> None:
        super().__init__(config, test, train)
        if self.null_label is None:  # micro precision, recall and F1 are the accuracy
            columns = {**self.titles, "micro_f1": "micro F1 = accuracy", "accuracy": ""}
            self.titles, self.further = columns, {}  # type: ignore[misc]  # constants in other subclasses

    @property
    def null_label(self) -> str | None:
        """Return the null label, the value of the setting that `NullLabelEvaluation` names; None if there is none."""
        (setting,) = self.config.evaluation.training_settings  # name of the setting
        label: str | None = getattr(self.config, setting)
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
        scored_labels = [label for label in self.classes if label != self.null_label]
        counts_of_labels = totals[:-1]  # the last row counts all labels, for accuracy
        micro = label_scores(counts_of_labels.sum(axis=0))
        return {
            **score_counts(NULL_CLASS_STATISTICS, totals),
            "precision": micro["precision"],
            "recall": micro["recall"],
            "per_label": scores_by_name(scored_labels, counts_of_labels),
        }

    def warnings(self) -> list[str]:
        """Return warnings about models that predict a single label although gold has several."""
        gold = label_set(self.test.items)
        return collapse_warnings(self.predictions, self.labels_of, gold, "predicts one label only")

    @override
    def undefined(self, counts: NDArray[Any]) -> dict[str, str]:
        """Return the reasons for undefined scores; accuracy is always defined."""
        reasons = super().undefined(counts[..., :-1, :])  # without the row for accuracy
        return {name: reason for name, reason in reasons.items() if name != "accuracy"}
