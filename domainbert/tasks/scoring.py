"""Labelled test sets that collect the predictions of several models and score them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.metrics.bootstrap import Statistic, score_once
from domainbert.metrics.slices import Slices
from domainbert.metrics.summary import Resampling, Summary, summarize
from domainbert.metrics.table import score_lines, sliced_lines
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.labelled import Labelled, told_where
from domainbert.tasks.labelled_set import check_set_known
from domainbert.tasks.predictor import Predictor


class Scoring(ABC):
    """A test set, which is described in print, and to which the predictions of one model after the other are added.

    Attributes:
        headline: the metric that counts.
        predictions: of each item, by system and seed.
        labels: those that the models know, taken together.
        suffix: of the files of predictions.
    """

    suffix = ".jsonl"

    def __init__(self, config: TaskConfig, test: Labelled[Any]) -> None:
        print(test.describe())
        self.config, self.headline, self.test = config, config.headline, test
        self.predictions: dict[str, dict[str, list[Any]]] = {}
        self.labels: set[str] = set()

    @property
    def num_gold(self) -> int:
        """Number of labels that are scored: one an item, unless a task says otherwise."""
        return len(self.test.items)

    @property
    def num_units(self) -> int:
        """Number of units that the bootstrap draws from."""
        return len(self.test.items)

    @property
    def title(self) -> str:
        """Description of what is scored."""
        return f"{self.headline.name} over {self.num_gold:,} {self.test.unit}"

    def score(self, system: str, seed: str, predictor: Predictor[Any], path: Path) -> None:
        """Predict all items, write predictions and gold to `path`, and remember them."""
        known = self.config.known_labels(predictor.labels)
        check_set_known(self.test, known)
        self.labels.update(known)
        with told_where(self.test.place):
            found = self.predict(predictor)
        if len(found) != len(self.test.items):
            expected = f"{len(self.test.items):,} {self.test.unit}"
            raise DomainbertError(f"{self.test.path}: {expected}, but {len(found):,} predictions")
        self.predictions.setdefault(system, {})[seed] = found
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, found)

    def predict(self, predictor: Predictor[Any]) -> list[Any]:
        """The prediction of a model for each item."""
        return predictor.predict(self.test.contents)

    def write(self, path: Path, predictions: Sequence[Any]) -> None:
        """A line of JSON for each item."""
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for item, prediction in zip(self.test.items, predictions, strict=True):
                row = {**(item.by if self.config.by else {}), **self.row(item, prediction)}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")

    def slices(self, score: str) -> Slices:
        """The parts of the test set that get this score, too: of the keys that the format names, a unit an item."""
        values = {key: [item.by[key] for item in self.test.items] for key in self.config.by}
        return Slices.of(values, score, self.headline.over, self.headline.key)

    def row(self, item: Any, prediction: Any) -> dict[str, Any]:
        """Gold and prediction of an item for a file of JSONL."""
        raise NotImplementedError(f"{type(self).__name__} has neither a `row` nor a `write` of its own")

    @abstractmethod
    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems."""

    @abstractmethod
    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""

    def brief(self, system: Mapping[str, Any]) -> dict[str, Any]:
        """The scores of a system that stand in the manifest: those that are numbers, and their intervals."""
        return {key: value for key, value in system.items() if not isinstance(value, dict) or key == "cost"}


class CountedScoring(Scoring):
    """Scores that are made of counts, summed over items: their means over seeds, intervals and paired differences."""

    statistics: ClassVar[Mapping[str, Statistic]]
    """By name the scores that get intervals, the headline among them."""

    @abstractmethod
    def count(self, predictions: Sequence[Any]) -> NDArray[Any]:
        """Counts of which scores are made: (items, labels, counts), to be summed over items."""

    def scores(self, predictions: Sequence[Any], totals: NDArray[Any]) -> dict[str, Any]:
        """The scores of one model, nested as for JSON; `totals` (labels, counts) are its counts summed over items."""
        counts = self.count(predictions)
        return {name: score_once(statistic, counts) for name, statistic in self.statistics.items()}

    def warnings(self) -> list[str]:
        """A line for each system whose models have learnt nothing."""
        return []

    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems."""
        headline = self.headline.key
        slices = self.slices(self.headline.of_slice)
        found = summarize(self.predictions, self.count, self.scores, self.statistics, headline, resampling, slices)
        return found | {"warnings": self.warnings()}

    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""
        headline = self.headline
        others = {name: name for name in self.statistics if name != headline.key}
        lines = score_lines(summary, {headline.key: headline.name, **others}, headline.percent)
        return lines + sliced_lines(summary, headline.of_slice, headline.percent)
