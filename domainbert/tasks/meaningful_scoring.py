"""Test sets with one label for each item or word, of which one may mean nothing."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

from numpy.typing import NDArray
from typing_extensions import override

from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.counts import by_name, scores
from domainbert.metrics.meaningful import STATISTICS, meaningful_scores
from domainbert.metrics.summary import Summary, collapsed
from domainbert.metrics.table import per_label_lines, sliced_lines
from domainbert.tasks.scoring import CountedScoring


class MeaningfulScoring(CountedScoring):
    """Macro and micro F1 of the labels that mean something, and the accuracy over all; `count` gives the counts of
    `metrics.meaningful`."""

    statistics: ClassVar[Mapping[str, Statistic]] = STATISTICS

    setting: ClassVar[str]
    """The setting that names `nothing`."""

    @property
    def nothing(self) -> str | None:
        """The label that means nothing, if there is one."""
        found: str | None = getattr(self.config, self.setting)
        return found

    @abstractmethod
    def labels_of(self, predictions: Sequence[Any]) -> Iterable[str]:
        """All labels that a model has predicted."""

    @property
    def classes(self) -> list[str]:
        """All labels that the models know, sorted."""
        return sorted(self.labels)

    @override
    def scores(self, predictions: Sequence[Any], totals: NDArray[Any]) -> dict[str, Any]:
        """Scores from counts; `precision` and `recall` are micro averages."""
        kept = [label for label in self.classes if label != self.nothing]
        found = {name: float(value) for name, value in meaningful_scores(totals).items()}
        micro = scores(totals[:-1].sum(axis=0))
        further = {"precision": micro.precision, "recall": micro.recall}
        return {**found, **further, "per_label": by_name(kept, totals[:-1])}

    def warnings(self) -> list[str]:
        """Models that say the same of everything, where gold does not."""
        gold = {label for item in self.test.items for label in item.labels}
        same = collapsed(
            self.predictions, lambda found: len(set(self.labels_of(found))) == 1, "predicts one label only"
        )
        return same if len(gold) > 1 else []

    @override
    def undefined(self, counts: NDArray[Any]) -> dict[str, str]:
        """Scores that counts leave undefined; never the accuracy, which counts all items."""
        reasons = super().undefined(counts[..., :-1, :])
        return {name: reason for name, reason in reasons.items() if name != "accuracy"}

    @override
    def lines(self, summary: Summary) -> list[str]:
        others = {"macro_f1": "macro F1", "micro_f1": "micro F1", "accuracy": "accuracy"}
        del others[self.headline.key]
        lines = per_label_lines(summary, {self.headline.key: self.headline.name, **others})
        return lines + sliced_lines(summary, self.headline.of_slice)
