"""Labelled test sets that collect the predictions of several models and score them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.labelled.contents import told_where, words_of_content
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import check_set_known
from domainbert.metrics.bootstrap import Statistic, score_once
from domainbert.metrics.confusion import Pair, confusion
from domainbert.metrics.lengths import right_by_words
from domainbert.metrics.reliability import reliability
from domainbert.metrics.slices import Slices
from domainbert.metrics.summary import Resampling, Summary, summarize
from domainbert.metrics.table import score_lines, sliced_lines
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.mistakes import Mistake
from domainbert.tasks.predictor import Predictor

Told = TypeVar("Told")


class Scoring(ABC):
    """A test set, which is described in print, and to which the predictions of one model after the other are added.

    Attributes:
        headline: the metric that counts.
        predictions: of each item, by system and seed.
        labels: those that the models know, taken together.
        suffix: of the files of predictions.
    """

    suffix = ".jsonl"

    def __init__(self, config: TaskConfig, test: Labelled[Any], train: Labelled[Any] | None = None) -> None:
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
        numbers = self.test.unit_numbers
        return len(self.test.items) if numbers is None else max(numbers) + 1

    @property
    def title(self) -> str:
        """Description of what is scored."""
        return f"{self.headline.name} over {self.num_gold:,} {self.test.unit}"

    def score(self, system: str, seed: str, predictor: Predictor[Any], path: Path) -> None:
        """Predict all items, write predictions and gold to `path`, and remember them."""
        known = self.config.known_labels(predictor.labels)
        self.config.check_labels(known)
        check_set_known(self.test, known)
        self.labels.update(known)
        with told_where(self.test.place):
            found = self.predict(predictor)
        if len(found) != len(self.test.items):
            expected = f"{len(self.test.items):,} items"
            raise DomainbertError(f"{self.test.path}: {expected}, but {len(found):,} predictions")
        self.predictions.setdefault(system, {})[seed] = found
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, found)

    def predict(self, predictor: Predictor[Any]) -> list[Any]:
        """The prediction of a model for each item."""
        return predictor.predict(self.test.contents)

    @abstractmethod
    def row(self, item: Any, prediction: Any) -> Mapping[str, Any] | str:
        """Gold and prediction of an item in the file of predictions: an object of JSONL, or text of another format."""

    def write(self, path: Path, predictions: Sequence[Any]) -> None:
        """The file of predictions: a row for each item, in JSON with its slices."""
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for item, prediction in zip(self.test.items, predictions, strict=True):
                row = self.row(item, prediction)
                stream.write(row if isinstance(row, str) else _line({**(item.by if self.config.by else {}), **row}))

    def mistake(self, item: Any, prediction: Any) -> Mistake | None:
        """The mistake of a model in an item; None where nothing. A task need not say it."""
        return None

    def confused(self, item: Any, prediction: Any) -> Iterable[Pair]:
        """The labels of an item in gold and in the prediction, where one stands in the place of the other."""
        return ()

    def confidences(self, item: Any, prediction: Any) -> Iterable[tuple[float, bool]]:
        """The probability of all that is predicted of an item, and whether it is right."""
        return ()

    def scores_of(self, predictions: Sequence[Any], known: Iterable[str]) -> dict[str, Any]:
        """The scores of one model that knows some labels, from its prediction for each item: nested as in
        `metrics.json`, without intervals and scores of parts of the set."""
        self.labels = set(known)
        self.predictions = {"model": {"model": list(predictions)}}
        found = self.summary(Resampling(1, 0))["systems"]["model"]
        apart = {"seeds", "errors", f"{self.headline.key}_by_seed"}
        return {name: one for name, one in found.items() if name not in apart and not name.startswith("by_")}

    def write_mistakes(self, system: str, seed: str, path: Path) -> None:
        """The items that a model got wrong as JSONL, the worst first, equals in the order of the file.

        Nothing is written for a task that does not say what they are.
        """
        if not self.tells_mistakes:
            return
        judged = enumerate(map(self.mistake, self.test.items, self.predictions[system][seed]))
        found = sorted(((one, number) for number, one in judged if one), key=lambda pair: -pair[0].severity)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for one, number in found:
                stream.write(_line({"line": self.test.where(number), "item": number, **one.as_json()}))

    @property
    def tells_mistakes(self) -> bool:
        """Whether the task says what a model got wrong."""
        return type(self).mistake is not Scoring.mistake

    def facts(self, system: str) -> dict[str, Any]:
        """Facts that a task reports of a system beside its scores: `confusion`; and where predictions have
        probabilities, `reliability` and `by_words`, the share of items without a mistake by their length."""
        runs, found = list(self.predictions[system].values()), {}
        pairs = [list(self._each(self.confused, run)) for run in runs]
        sure = [one for run in runs for one in self._each(self.confidences, run)]
        if any(pairs):
            found["confusion"] = confusion(pairs)
        if sure:
            found["reliability"] = reliability(sure)
        if sure and self.tells_mistakes:
            words = [len(words_of_content(item.content)) for item in self.test.items]
            right = [[one is None for one in map(self.mistake, self.test.items, run)] for run in runs]
            found["by_words"] = right_by_words(words, right)
        return found

    def _each(self, tell: Callable[[Any, Any], Iterable[Told]], predictions: Sequence[Any]) -> Iterator[Told]:
        """All that is told of the items, one after the other."""
        return chain.from_iterable(map(tell, self.test.items, predictions))

    def slices(self, score: str) -> Slices:
        """The parts of the test set that get this score, too: of the keys that the format names, a unit an item."""
        values = {key: [item.by[key] for item in self.test.items] for key in self.config.by}
        return Slices.of(values, score, self.headline.over, self.headline.key)

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

    def undefined(self, counts: NDArray[Any]) -> dict[str, str]:
        """The statistics that counts (items, labels, counts) do not define, and the reason for each."""
        return {} if counts.any() else dict.fromkeys(self.statistics, "neither the test set nor the model has a label")

    def summary(self, resampling: Resampling) -> Summary:
        """The scores of all systems."""
        headline = self.headline.key
        slices, drawn = self.slices(self.headline.of_slice), replace(resampling, units=self.test.unit_numbers)
        how = self.statistics, headline, drawn, slices, self.undefined
        found = summarize(self.predictions, self.count, self.scores, *how)
        reasons = ((name, system.get("undefined", {}).items()) for name, system in found["systems"].items())
        said = [f"{name}: {score} is undefined: {why}" for name, whole in reasons for score, why in whole]
        return found | {"warnings": [*self.warnings(), *said]}

    def lines(self, summary: Summary) -> list[str]:
        """The summary for a person."""
        headline = self.headline
        others = {name: name for name in self.statistics if name != headline.key}
        lines = score_lines(summary, {headline.key: headline.name, **others}, headline.percent)
        return lines + sliced_lines(summary, headline.of_slice, headline.percent)


def mean_value(counts: NDArray[Any]) -> NDArray[Any]:
    """Mean of the values of items, from the counts (..., 1, 2) of a `MeanScoring`."""
    values: NDArray[Any] = counts[..., 0, 0] / counts[..., 0, 1]
    return values


class MeanScoring(CountedScoring):
    """Scores a test set by the mean of one value per item, which is the headline."""

    def __init__(self, config: TaskConfig, test: Labelled[Any], train: Labelled[Any] | None = None) -> None:
        super().__init__(config, test, train)
        self.statistics = {self.headline.of_slice: mean_value}  # type: ignore[misc]  # a constant in other subclasses

    @abstractmethod
    def value(self, item: Any, prediction: Any) -> float:
        """Value of an item, such as its absolute error."""

    @override
    def count(self, predictions: Sequence[Any]) -> NDArray[Any]:
        """Counts (items, 1, 2): the value of each item, and 1."""
        values = [self.value(*pair) for pair in zip(self.test.items, predictions, strict=True)]
        return np.stack([values, np.ones(len(values))], axis=-1)[:, None]


def _line(row: Mapping[str, Any]) -> str:
    return json.dumps(row, ensure_ascii=False) + "\n"
