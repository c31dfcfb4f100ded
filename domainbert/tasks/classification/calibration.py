"""Calibration scores of classifiers on validation and test sets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.calibration import CALIBRATION, calibration_sums, softmax_with_temperature, temperature_scores
from domainbert.metrics.classification import class_scores, count_class_ids
from domainbert.metrics.counts import FloatArray
from domainbert.metrics.summary import Resampling, Summary, summarize

if TYPE_CHECKING:
    from domainbert.tasks.classification.scoring import TextPrediction


def plain_scores(rows: FloatArray) -> dict[str, Any]:
    """Return validation scores by name from rows (texts, 1 + classes): the index of the gold class, and the logits."""
    gold, logits = rows[:, 0].astype(np.int64), rows[:, 1:]
    return class_scores(count_class_ids(gold, logits.argmax(axis=1), logits.shape[1]).sum(axis=0))


def calibrated_scores(rows: FloatArray) -> dict[str, Any]:
    """Return `plain_scores` and the scores of `temperature_scores`. NaN counts as 0; such a model is rejected later."""
    logits = np.nan_to_num(rows[:, 1:].astype(np.float32))
    return {**plain_scores(rows), **temperature_scores(logits, rows[:, 0].astype(np.int64))}


def summarize_calibration(
    summary: Summary,
    gold: Sequence[str],
    predictions: Mapping[str, Mapping[str, Sequence[TextPrediction]]],
    temperatures: Mapping[str, Mapping[str, float]],
    labels: Sequence[str],
    resampling: Resampling,
) -> None:
    """Add the key `calibration` to each system and each pair of systems of a summary.

    It contains `ece`, `nll` and `brier` with their intervals, `temperature`, and in `uncalibrated` the same three
    scores without temperature: a softmax of the log-probabilities times the temperature.
    """
    gold_ids = np.array([labels.index(label) for label in gold])
    runs = {
        name: {seed: (_probabilities(run, labels), temperatures[name][seed]) for seed, run in seeds.items()}
        for name, seeds in predictions.items()
    }

    def count(run: tuple[FloatArray, float]) -> FloatArray:
        return calibration_sums(run[0], gold_ids)

    def score(run: tuple[FloatArray, float], totals: NDArray[Any]) -> dict[str, Any]:
        plain = calibration_sums(_without_temperature(*run), gold_ids).sum(axis=0)
        scores = {name: float(statistic(totals)) for name, statistic in CALIBRATION.items()}
        without = {name: float(statistic(plain)) for name, statistic in CALIBRATION.items()}
        return {**scores, "temperature": run[1], "uncalibrated": without}

    calibration_summary = summarize(runs, count, score, CALIBRATION, "ece", resampling)
    for name, system in summary["systems"].items():
        system["calibration"] = calibration_summary["systems"][name]
    for pair, calibration in zip(summary["paired"], calibration_summary["paired"], strict=True):
        pair["calibration"] = {key: value for key, value in calibration.items() if key not in ("a", "b")}


def _probabilities(predictions: Sequence[TextPrediction], labels: Sequence[str]) -> FloatArray:
    """Return the probability of each class (texts, classes); 0 for a class that the model does not have."""
    return np.array([[prediction.scores.get(label, 0.0) for label in labels] for prediction in predictions])


def _without_temperature(probabilities: FloatArray, temperature: float) -> FloatArray:
    """Return the probabilities of the model before its logits were divided by `temperature`."""
    if temperature == 1:
        return probabilities
    with np.errstate(divide="ignore"):
        return softmax_with_temperature(np.log(probabilities), 1 / temperature)
