"""Scoring of text classification."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from typing_extensions import override

from domainbert.labelled.items import Labelled
from domainbert.metrics.bootstrap import Statistic
from domainbert.metrics.classification import all_class_scores, count_classes
from domainbert.metrics.confusion import Pair
from domainbert.metrics.counts import IntArray, accuracy, macro_f1
from domainbert.metrics.summary import Resampling, Summary, collapse_warnings
from domainbert.metrics.table import calibration_lines, classification_lines
from domainbert.tasks.classification.calibration import summarize_calibration
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.mistakes import Mistake, label_marks
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.scoring import CountedScoring


@dataclass(frozen=True)
class TextPrediction:
    """Predicted class of a text, and the probability of every class."""

    label: str
    scores: dict[str, float]


class ClassScoring(CountedScoring):
    """Scoring of texts with one class each: macro F1 and accuracy."""

    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": macro_f1, "accuracy": accuracy}

    def __init__(
        self, config: Classification, test: Labelled[LabelledText], train: Labelled[Any] | None = None
    ) -> None:
        super().__init__(config, test, train)
        self._gold = [text.label for text in test.items]
        self.calibrate = config.calibrate
        self.temperatures: dict[str, dict[str, float]] = {}  # by system and seed

    @override
    def score(self, system: str, seed: str, predictor: Predictor[Any], path: Path) -> None:
        super().score(system, seed, predictor, path)
        self.temperatures.setdefault(system, {})[seed] = getattr(predictor.task, "temperature", 1.0)

    @override
    def row(self, item: LabelledText, prediction: TextPrediction) -> dict[str, Any]:
        gold = {**item.as_row, "gold": item.label}
        return {**gold, "predicted": prediction.label, "scores": prediction.scores}

    @override
    def mistake(self, item: LabelledText, prediction: TextPrediction) -> Mistake | None:
        if item.label == prediction.label:
            return None
        gold, predicted = label_marks(item.label, prediction.label, prediction.scores)
        return Mistake(item.text, gold, predicted, prediction.scores[prediction.label], item.text_pair)

    @override
    def confusion_pairs(self, item: LabelledText, prediction: TextPrediction) -> list[Pair]:
        return [(item.label, prediction.label)]

    @override
    def confidences(self, item: LabelledText, prediction: TextPrediction) -> list[tuple[float, bool]]:
        return [(prediction.scores[prediction.label], item.label == prediction.label)]

    @override
    def count(self, predictions: Sequence[TextPrediction]) -> IntArray:
        """Return true positives, false positives and false negatives: (texts, classes, 3)."""
        return count_classes(self._gold, [prediction.label for prediction in predictions], sorted(self.labels))

    @override
    def scores(self, predictions: Sequence[TextPrediction], totals: IntArray) -> dict[str, Any]:
        return all_class_scores(totals, sorted(self.labels))

    def warnings(self) -> list[str]:
        """Return warnings about models that predict a single class although gold has several; otherwise []."""
        same = collapse_warnings(
            self.predictions, lambda run: len({text.label for text in run}) == 1, "predicts one class only"
        )
        return same if len(set(self._gold)) > 1 else []

    @override
    def summary(self, resampling: Resampling) -> Summary:
        """Return the scores of all systems, with calibration if `calibrate` is set."""
        summary = super().summary(resampling)
        if self.calibrate:
            labels = sorted(self.labels)
            summarize_calibration(summary, self._gold, self.predictions, self.temperatures, labels, resampling)
        return summary

    @override
    def lines(self, summary: Summary) -> list[str]:
        lines = classification_lines(summary, self.headline.key, self.headline.name)
        return lines + (calibration_lines(summary) if self.calibrate else [])
