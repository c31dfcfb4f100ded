"""Calibration of classifiers on validation and on a test set, beside their other scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.calibration import CALIBRATION, calibration_sums, judge_temperature, with_temperature
from domainbert.metrics.classification import class_scores, count_class_ids
from domainbert.metrics.counts import FloatArray
from domainbert.metrics.summary import Resampling, Summary, summarize

if TYPE_CHECKING:
    from domainbert.tasks.classification.scoring import TextPrediction


def plain_scores(rows: FloatArray) -> dict[str, Any]:
    """Scores of texts in validation, of the number of the right class and the logits of each: (texts, 1 + classes)."""
    gold, logits = rows[:, 0].astype(np.int64), rows[:, 1:]
    return class_scores(count_class_ids(gold, logits.argmax(axis=1), logits.shape[1]).sum(axis=0))


def calibrated_scores(rows: FloatArray) -> dict[str, Any]:
    """As `plain_scores`, with those of `judge_temperature`. What is no number counts as 0: such a model is refused."""
    logits = np.nan_to_num(rows[:, 1:].astype(np.float32))
    return {**plain_scores(rows), **judge_temperature(logits, rows[:, 0].astype(np.int64))}


def summarize_calibration(
    found: Summary,
    gold: Sequence[str],
    predictions: Mapping[str, Mapping[str, Sequence[TextPrediction]]],
    temperatures: Mapping[str, Mapping[str, float]],
    labels: Sequence[str],
    resampling: Resampling,
) -> None:
    """Add `calibration` to each system and each pair of a summary.

    It holds `ece`, `nll` and `brier` with their intervals, `temperature`, and under `uncalibrated` the three without
    it: a softmax of the logarithms of probabilities, times the temperature they were divided by.
    """
    wanted = np.array([labels.index(label) for label in gold])
    runs = {
        name: {seed: (_probabilities(one, labels), temperatures[name][seed]) for seed, one in seeds.items()}
        for name, seeds in predictions.items()
    }

    def count(run: tuple[FloatArray, float]) -> FloatArray:
        return calibration_sums(run[0], wanted)

    def score(run: tuple[FloatArray, float], totals: NDArray[Any]) -> dict[str, Any]:
        plain = calibration_sums(_without_temperature(*run), wanted).sum(axis=0)
        scores = {name: float(statistic(totals)) for name, statistic in CALIBRATION.items()}
        without = {name: float(statistic(plain)) for name, statistic in CALIBRATION.items()}
        return {**scores, "temperature": run[1], "uncalibrated": without}

    judged = summarize(runs, count, score, CALIBRATION, "ece", resampling)
    for name, system in found["systems"].items():
        system["calibration"] = judged["systems"][name]
    for pair, calibration in zip(found["paired"], judged["paired"], strict=True):
        pair["calibration"] = {key: value for key, value in calibration.items() if key not in ("a", "b")}


def _probabilities(predictions: Sequence[TextPrediction], labels: Sequence[str]) -> FloatArray:
    """The probability of each class (texts, classes); 0 of one that a model does not know."""
    return np.array([[one.scores.get(label, 0.0) for label in labels] for one in predictions])


def _without_temperature(probabilities: FloatArray, temperature: float) -> FloatArray:
    if temperature == 1:
        return probabilities
    with np.errstate(divide="ignore"):
        return with_temperature(np.log(probabilities), 1 / temperature)
