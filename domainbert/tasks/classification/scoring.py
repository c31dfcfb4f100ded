"""Scoring of text classification, and calibration of the class probabilities."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from domainbert.labelled.items import Labelled
from domainbert.metrics.calibration import CALIBRATION, calibration_sums, softmax_with_temperature, temperature_scores
from domainbert.metrics.classification import CLASS_STATISTICS, all_class_scores, count_class_ids, count_classes
from domainbert.metrics.counts import FloatArray, IntArray, score_counts
from domainbert.metrics.diagnostics import Pair
from domainbert.metrics.summary import Resampling, Summary, collapse_warnings, summarize
from domainbert.metrics.table import Breakdown, calibration_lines
from domainbert.tasks.classification.config import Classification
from domainbert.tasks.classification.files import LabelledText
from domainbert.tasks.counted_scoring import CountedScoring
from domainbert.tasks.mistakes import Mistake, label_marks
from domainbert.tasks.predictor import Predictor


@dataclass(frozen=True)
class TextPrediction:
    """Predicted class of a text, and the probability of every class."""

    label: str
    scores: dict[str, float]


class ClassScoring(CountedScoring):
    """Scoring of texts with one class each: macro F1 and accuracy."""

    statistics = CLASS_STATISTICS
    titles: ClassVar[Mapping[str, str]] = {"f1": "macro F1"}
    further: ClassVar[Mapping[str, str]] = {
        "precision": "macro precision",
        "recall": "macro recall",
        "weighted_f1": "weighted F1",
    }
    breakdowns = (Breakdown("by class", "per_class"),)

    def __init__(
        self, config: Classification, test: Labelled[LabelledText], train: Labelled[Any] | None = None
    ) -> None:
        super().__init__(config, test, train)
        self._gold = [text.label for text in test.items]
        self.calibrate = config.calibrate
        self.temperatures: dict[str, dict[str, float]] = {}  # by system and seed

    @override
    def store(self, system: str, seed: str, predictor: Predictor[Any], predictions: Sequence[Any]) -> None:
        """Store the predictions of a model, and its temperature; 1 if it has none."""
        super().store(system, seed, predictor, predictions)
        self.temperatures.setdefault(system, {})[seed] = getattr(predictor.task, "temperature", 1.0)

    @override
    def scores_of(self, predictions: Sequence[Any], predictor: Predictor[Any]) -> dict[str, Any]:
        scores = super().scores_of(predictions, predictor)
        if self.calibrate:
            del scores["calibration"]["seeds"], scores["calibration"]["ece_by_seed"]
        return scores

    @override
    def row(self, item: LabelledText, prediction: TextPrediction) -> dict[str, Any]:
        predicted = {"predicted": prediction.label, "scores": prediction.scores}
        return {**item.as_row, "gold": item.label, **predicted}

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
        return collapse_warnings(self.predictions, lambda text: [text.label], self._gold, "predicts one class only")

    @override
    def summary(self, resampling: Resampling) -> Summary:
        """Return the scores of all systems, with calibration if `calibrate` is set."""
        summary = super().summary(resampling)
        if self.calibrate:
            self._add_calibration(summary, resampling)
        return summary

    def _add_calibration(self, summary: Summary, resampling: Resampling) -> None:
        """Add the key `calibration` to each system and each pair of systems of a summary.

        It contains `ece`, `nll` and `brier` with their intervals, and `temperature`; `uncalibrated` has the same three
        scores of the probabilities without the temperature.
        """
        labels = sorted(self.labels)
        gold_ids = np.array([labels.index(label) for label in self._gold])
        runs = {  # (probabilities, temperature) of each model
            system: {
                seed: (_probabilities(run, labels), self.temperatures[system][seed]) for seed, run in by_seed.items()
            }
            for system, by_seed in self.predictions.items()
        }

        def count(run: tuple[FloatArray, float]) -> FloatArray:
            probabilities, _ = run
            return calibration_sums(probabilities, gold_ids)

        def score(run: tuple[FloatArray, float], totals: NDArray[Any]) -> dict[str, Any]:
            """Return the calibration over all texts, with and without the temperature; `totals` are the calibration
            sums with the temperature."""
            probabilities, temperature = run
            uncalibrated_probabilities = _without_temperature(probabilities, temperature)
            uncalibrated_totals = calibration_sums(uncalibrated_probabilities, gold_ids).sum(axis=0)
            uncalibrated = score_counts(CALIBRATION, uncalibrated_totals)
            return {**score_counts(CALIBRATION, totals), "temperature": temperature, "uncalibrated": uncalibrated}

        calibration_summary = summarize(runs, count, score, CALIBRATION, "ece", resampling)
        for name, system in summary["systems"].items():
            system["calibration"] = calibration_summary["systems"][name]
        for pair, calibration in zip(summary["paired"], calibration_summary["paired"], strict=True):
            # "a" and "b" are the names of the two systems
            pair["calibration"] = {key: value for key, value in calibration.items() if key not in ("a", "b")}

    @override
    def lines(self, summary: Summary) -> list[str]:
        return super().lines(summary) + (calibration_lines(summary) if self.calibrate else [])


def calibrated_scores(rows: FloatArray) -> dict[str, Any]:
    """Return validation scores, also of `temperature_scores`, from rows (texts, 1 + classes): the index of the gold
    class, and the logits. In the fit of the temperature, NaN counts as 0; such a model is rejected later."""
    gold, logits = rows[:, 0].astype(np.int64), rows[:, 1:]
    counts = count_class_ids(gold, logits.argmax(axis=1), num_classes=logits.shape[1])
    temperature = temperature_scores(np.nan_to_num(logits.astype(np.float32)), gold)
    return {**score_counts(CLASS_STATISTICS, counts.sum(axis=0)), **temperature}


def _probabilities(predictions: Sequence[TextPrediction], labels: Sequence[str]) -> FloatArray:
    return np.array([[text.scores.get(label, 0.0) for label in labels] for text in predictions])


def _without_temperature(probabilities: FloatArray, temperature: float) -> FloatArray:
    if temperature == 1:
        return probabilities
    with np.errstate(divide="ignore"):  # the logarithm of probability 0 is -inf
        # log-probabilities are the divided logits plus a constant, which the softmax removes
        return softmax_with_temperature(np.log(probabilities), 1 / temperature)
