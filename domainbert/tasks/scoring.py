"""Base class for scoring the predictions of several models on a test set."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from domainbert.base.errors import DomainbertError
from domainbert.base.process import process_rank
from domainbert.labelled.contents import located_errors, words_of_content
from domainbert.labelled.items import Labelled, check_set_known
from domainbert.metrics.diagnostics import Pair, accuracy_by_length, confusion, reliability
from domainbert.metrics.summary import Resampling, Slices, Summary
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.mistakes import Mistake
from domainbert.tasks.output import json_line
from domainbert.tasks.predictor import Predictor

Value = TypeVar("Value")


class Scoring(ABC):
    """A test set that collects and scores the predictions of models; the constructor prints a summary of the set.
    Subclasses may read `train`, the training set.

    Attributes:
        headline: the main metric.
        predictions: predictions of all items, by system and seed.
        labels: union of the labels of the models.
        suffix: suffix of prediction files.
    """

    suffix = ".jsonl"

    def __init__(self, config: TaskConfig, test: Labelled[Any], train: Labelled[Any] | None = None) -> None:
        if process_rank() == 0:
            print(test.describe())
        self.config, self.headline, self.test, self.train = config, config.headline, test, train
        self.predictions: dict[str, dict[str, list[Any]]] = {}  # by system and seed
        self.labels: set[str] = set()  # of all models

    @property
    def num_gold(self) -> int:
        """Return the number of gold labels; by default one per item."""
        return len(self.test.items)

    @property
    def num_units(self) -> int:
        """Return the number of units that the bootstrap resamples, such as documents."""
        unit_ids = self.test.unit_ids
        return len(self.test.items) if unit_ids is None else max(unit_ids) + 1

    @property
    def title(self) -> str:
        """Return the metric and the size of the test set, for reports."""
        return f"{self.headline.name} over {self.num_gold:,} {self.test.unit}"

    def prepare(self, predictor: Predictor[Any]) -> int:
        """Prepare further scores of the next model, if the task has them; return the number of texts that `add_model`
        predicts."""
        return len(self.test.items)

    def add_model(self, system: str, seed: str, predictor: Predictor[Any], path: Path) -> None:
        """Predict all items with the model of a system and seed, and store the predictions to be scored later.

        The predictions are also written to `path`, with the gold labels. Raise `DomainbertError` if the settings or the
        test set contain labels that the model does not have.
        """
        labels = self.config.known_labels(predictor.labels)
        self.config.check_labels(labels)
        check_set_known(self.test, labels)
        self.labels.update(labels)
        with located_errors(self.test.location):
            predictions = self.predict(predictor)
        num_items = len(self.test.items)
        if len(predictions) != num_items:
            found = f"{len(predictions):,} predictions"
            raise DomainbertError(file=self.test.path, found=found, expected=f"one for each of {num_items:,} texts")
        self.store(system, seed, predictor, predictions)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.write(path, predictions)

    def store(self, system: str, seed: str, predictor: Predictor[Any], predictions: Sequence[Any]) -> None:
        """Store the predictions of a model for all items."""
        self.predictions.setdefault(system, {})[seed] = list(predictions)

    def predict(self, predictor: Predictor[Any]) -> list[Any]:
        """Return the predictions of a model for all items."""
        return predictor.predict(self.test.contents)

    @abstractmethod
    def row(self, item: Any, prediction: Any) -> Mapping[str, Any] | str:
        """Return gold and prediction of an item for the predictions file: a JSON object, or text in another format."""

    def write(self, path: Path, predictions: Sequence[Any]) -> None:
        """Write a predictions file with a row per item; JSON rows include the slices of the item."""
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for item, prediction in zip(self.test.items, predictions, strict=True):
                row = self.row(item, prediction)
                if not isinstance(row, str):
                    slices = item.slices if self.config.slice_keys else {}
                    row = json_line({**slices, **row})
                stream.write(row)

    def mistake(self, item: Any, prediction: Any) -> Mistake | None:
        """Return the errors of a model on an item; None if it has no errors, and by default."""
        return None

    def confusion_pairs(self, item: Any, prediction: Any) -> Iterable[Pair]:
        """Return pairs of gold and predicted label of an item, for the confusion matrix; by default ()."""
        return ()

    def confidences(self, item: Any, prediction: Any) -> Iterable[tuple[float, bool]]:
        """Return (probability, is correct) for each predicted label of an item; by default ()."""
        return ()

    def scores_of(self, predictions: Sequence[Any], predictor: Predictor[Any]) -> dict[str, Any]:
        """Return the scores of one model from its predictions for all items.

        The scores are nested as in `metrics.json`, without intervals and slices. The stored predictions are replaced.
        """
        self.labels = set(self.config.known_labels(predictor.labels))
        self.predictions = {}
        self.store("model", "seed", predictor, predictions)
        # the fewest resamples possible, as the intervals are omitted; keys of slices begin with "by_"
        scores = self.summary(Resampling(resamples=1, seed=0))["systems"]["model"]
        omitted = {"seeds", "errors", f"{self.headline.key}_by_seed"}
        return {name: score for name, score in scores.items() if name not in omitted and not name.startswith("by_")}

    def write_mistakes(self, system: str, seed: str, path: Path) -> None:
        """Write the items with errors as JSONL, by descending severity, then in the order of the file.

        Nothing is written for a task without `mistake`.
        """
        if not self.reports_mistakes:
            return
        by_item = enumerate(map(self.mistake, self.test.items, self.predictions[system][seed]))
        mistakes = [(index, mistake) for index, mistake in by_item if mistake]
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            for index, mistake in sorted(mistakes, key=lambda pair: -pair[1].severity):
                line = self.test.line_or_location(index)
                stream.write(json_line({"line": line, "item": index, **mistake.as_json()}))

    @property
    def reports_mistakes(self) -> bool:
        """Whether the task implements `mistake`."""
        return type(self).mistake is not Scoring.mistake

    def facts(self, system: str) -> dict[str, Any]:
        """Return facts about a system in addition to scores, each if the task defines what it needs.

        `confusion` needs `confusion_pairs`. `reliability` needs `confidences`. `by_words`, the share of items without
        errors by length, needs `confidences` and `mistake`.
        """
        facts = {}
        runs = list(self.predictions[system].values())
        pairs = [list(self._chain_items(self.confusion_pairs, run)) for run in runs]
        confidences = [pair for run in runs for pair in self._chain_items(self.confidences, run)]
        if any(pairs):
            facts["confusion"] = confusion(pairs)
        if confidences:
            facts["reliability"] = reliability(confidences)
        if confidences and self.reports_mistakes:
            words = [len(words_of_content(item.content)) for item in self.test.items]
            is_right = [[mistake is None for mistake in map(self.mistake, self.test.items, run)] for run in runs]
            facts["by_words"] = accuracy_by_length(words, is_right)
        return facts

    def _chain_items(
        self, values: Callable[[Any, Any], Iterable[Value]], predictions: Sequence[Any]
    ) -> Iterator[Value]:
        return chain.from_iterable(map(values, self.test.items, predictions))

    def slices(self, score: str) -> Slices:
        """Return the slices of the test set by the values of `slice_keys`; slices have the score named `score`."""
        values = {key: [item.slices[key] for item in self.test.items] for key in self.config.slice_keys}
        return Slices.from_values(values, score, self.headline.over, self.headline.key)

    @abstractmethod
    def summary(self, resampling: Resampling) -> Summary:
        """Return the scores of all systems and their comparisons."""

    @abstractmethod
    def lines(self, summary: Summary) -> list[str]:
        """Return the summary as lines of text."""

    def manifest_scores(self, system: Mapping[str, Any]) -> dict[str, Any]:
        """Return the scores of a system for `run.json`: numbers, their intervals, and the cost."""
        return {key: value for key, value in system.items() if not isinstance(value, dict) or key == "cost"}


def flatten_scores(scores: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers in nested scores by path, such as `f1` or `seen/f1`; scores by group begin with the
    score, such as `f1/GENE`. Undefined scores (None) are 0, as in validation; other values are omitted."""
    numbers: dict[str, float] = {}
    for name, value in scores.items():
        if isinstance(value, Mapping) and name.startswith("per_"):
            for group, inner in value.items():
                numbers |= {f"{prefix}{key}/{group}": score for key, score in flatten_scores(inner).items()}
        elif isinstance(value, Mapping):
            numbers |= flatten_scores(value, f"{prefix}{name}/")
        elif value is None:
            numbers[f"{prefix}{name}"] = 0.0
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            numbers[f"{prefix}{name}"] = float(value)
    return numbers
