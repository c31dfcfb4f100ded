"""Texts with one class each as a test set."""

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
from domainbert.metrics.summary import Resampling, Summary, collapsed
from domainbert.metrics.table import calibration_lines, classification_lines
from domainbert.tasks.classification.calibration import summarize_calibration
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.mistakes import Mistake, label_marks
from domainbert.tasks.predictor import Predictor
from domainbert.tasks.scoring import CountedScoring


@dataclass(frozen=True)
class TextPrediction:
    """The class of a text, and the probability of every class."""

    label: str
    scores: dict[str, float]


class ClassScoring(CountedScoring):
    """Texts with one class each as a test set."""

    statistics: ClassVar[Mapping[str, Statistic]] = {"f1": macro_f1, "accuracy": accuracy}

    def __init__(
        self, config: Classification, test: Labelled[LabelledText], train: Labelled[Any] | None = None
    ) -> None:
        super().__init__(config, test, train)
        self._gold = [text.label for text in test.items]
        self.calibrate = config.calibrate
        self.temperatures: dict[str, dict[str, float]] = {}  # of the models, by system and seed

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
        gold, found = label_marks(item.label, prediction.label, prediction.scores)
        return Mistake(item.text, gold, found, prediction.scores[prediction.label], item.text_pair)

    def confused(self, item: LabelledText, prediction: TextPrediction) -> list[Pair]:
        """The classes."""
        return [(item.label, prediction.label)]

    def confidences(self, item: LabelledText, prediction: TextPrediction) -> list[tuple[float, bool]]:
        """The predicted class."""
        return [(prediction.scores[prediction.label], item.label == prediction.label)]

    @override
    def count(self, predictions: Sequence[TextPrediction]) -> IntArray:
        """Counts (texts, classes, 3)."""
        return count_classes(self._gold, [one.label for one in predictions], sorted(self.labels))

    @override
    def scores(self, predictions: Sequence[TextPrediction], totals: IntArray) -> dict[str, Any]:
        return all_class_scores(totals, sorted(self.labels))

    def warnings(self) -> list[str]:
        """Models that give every text the same class, where gold does not."""
        same = collapsed(
            self.predictions, lambda found: len({one.label for one in found}) == 1, "predicts one class only"
        )
        return same if len(set(self._gold)) > 1 else []

    @override
    def summary(self, resampling: Resampling) -> Summary:
        """Scores of all systems, with calibration if the settings ask for it."""
        found = super().summary(resampling)
        if self.calibrate:
            labels = sorted(self.labels)
            summarize_calibration(found, self._gold, self.predictions, self.temperatures, labels, resampling)
        return found

    @override
    def lines(self, summary: Summary) -> list[str]:
        lines = classification_lines(summary, self.headline.key, self.headline.name)
        return lines + (calibration_lines(summary) if self.calibrate else [])
