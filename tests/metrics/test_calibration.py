"""Calibration: each score equal to one computed by hand or by scikit-learn; the temperature is the best one."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from domainbert.metrics.calibration import (
    brier,
    calibration_sums,
    ece,
    fit_temperature,
    nll,
    softmax_with_temperature,
    temperature_scores,
)


def some(texts: int = 500, classes: int = 4, sharpness: float = 3.0) -> tuple[np.ndarray, np.ndarray]:
    """Logits and right classes, drawn from the softmax of the logits divided by `sharpness`."""
    generator = np.random.default_rng(0)
    logits = generator.normal(size=(texts, classes)) * sharpness
    flat = softmax_with_temperature(logits, sharpness)
    gold = np.array([generator.choice(classes, p=row) for row in flat])
    return logits, gold


def ece_by_hand(probabilities: np.ndarray, gold: np.ndarray) -> float:
    """Guo et al. (2017), equation 3, bin by bin and text by text: bin m holds the confidences in ((m - 1)/15, m/15]."""
    total = 0.0
    for number in range(15):
        inside = [
            (float(max(row)), int(np.argmax(row)) == right)
            for row, right in zip(probabilities, gold, strict=True)
            if number / 15 < max(row) <= (number + 1) / 15
        ]
        if inside:
            confidence = sum(one for one, _ in inside) / len(inside)
            accuracy = sum(right for _, right in inside) / len(inside)
            total += len(inside) / len(gold) * abs(accuracy - confidence)
    return total


@pytest.mark.parametrize("classes", [2, 3, 10])
def test_scores_are_those_computed_by_hand_and_by_scikit_learn(classes: int) -> None:
    logits, gold = some(classes=classes)
    probabilities = softmax_with_temperature(logits, 1.0)
    sums = calibration_sums(probabilities, gold).sum(axis=0)
    assert float(ece(sums)) == pytest.approx(ece_by_hand(probabilities, gold), abs=1e-12)
    assert float(nll(sums)) == pytest.approx(log_loss(gold, probabilities, labels=range(classes)), abs=1e-9)
    pairs = list(zip(probabilities, gold, strict=True))
    squares = [sum((p - (k == right)) ** 2 for k, p in enumerate(row)) for row, right in pairs]
    assert float(brier(sums)) == pytest.approx(sum(squares) / len(gold), abs=1e-12)
    if classes == 2:  # the Brier score of one class of two is half
        assert float(brier(sums)) / 2 == pytest.approx(brier_score_loss(gold, probabilities[:, 1]), abs=1e-12)


def test_a_confidence_at_an_edge_is_in_the_lower_bin() -> None:
    rows = np.array([[3 / 5, 2 / 5], [1.0, 0.0], [0.5, 0.5]])
    assert calibration_sums(rows, np.array([0, 0, 1]))[:, :15, 0].argmax(axis=1).tolist() == [8, 14, 7]
    assert calibration_sums(rows, np.array([0, 0, 1]))[:, :15, 2].sum(axis=1).tolist() == [1, 1, 0]


def test_the_temperature_is_the_best_one() -> None:
    logits, gold = some(4000)
    temperature = fit_temperature(logits, gold)
    assert temperature == pytest.approx(3.0, rel=0.1), "the flatness that the classes were drawn with"

    def loss(one: float) -> float:
        return float(log_loss(gold, softmax_with_temperature(logits, one), labels=range(4)))

    near = [loss(temperature * factor) for factor in np.geomspace(0.5, 2, 201)]
    assert loss(temperature) <= min(near) + 1e-12
    assert fit_temperature(logits, gold) == temperature and fit_temperature(2 * logits, gold) == pytest.approx(
        2 * temperature, rel=1e-6
    )
    found = temperature_scores(logits, gold)
    assert found["nll"] < found["uncalibrated_nll"] and found["ece"] < found["uncalibrated_ece"] / 2
    assert found["brier"] < found["uncalibrated_brier"]


def test_a_model_that_is_always_right_stops_at_the_lowest_temperature() -> None:
    assert fit_temperature(np.eye(3), np.arange(3)) == pytest.approx(1 / 20, rel=1e-6)
    assert math.isfinite(temperature_scores(1e6 * np.eye(3), np.array([1, 2, 0]))["nll"]), "always wrong, and sure"
