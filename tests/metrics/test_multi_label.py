"""Scores of texts with several labels, against scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import f1_score, precision_score, recall_score

from domainbert.metrics.classification import (
    THRESHOLDS,
    count_labels,
    count_thresholds,
    f1_by_threshold,
)
from domainbert.metrics.counts import macro_f1, micro_f1, weighted_f1
from domainbert.metrics.modules import MultiLabelScores

LABELS = ("a", "b", "c", "d", "never")


def names(rows: np.ndarray) -> list[list[str]]:
    return [[label for label, there in zip(LABELS, row, strict=True) if there] for row in rows]


def test_f1_is_that_of_scikit_learn() -> None:
    generator = np.random.default_rng(0)
    gold, found = (generator.random((60, 5)) < [0.5, 0.3, 0.1, 0.05, 0] for _ in range(2))
    gold[:3], found[1:5] = False, False
    totals = count_labels(names(gold), names(found), LABELS).sum(axis=0)
    occurring = {"labels": [0, 1, 2, 3]}
    assert float(micro_f1(totals)) == pytest.approx(f1_score(gold, found, average="micro", zero_division=0))
    assert float(macro_f1(totals)) == pytest.approx(f1_score(gold, found, average="macro", **occurring))
    assert float(weighted_f1(totals)) == pytest.approx(f1_score(gold, found, average="weighted", zero_division=0))
    with pytest.raises(ValueError, match=r"expected also \['e'\]"):
        count_labels([["e"]], [[]], LABELS)
    with pytest.raises(ValueError, match="predicted: found length 2; expected 1"):
        count_labels([[]], [[], []], LABELS)


@pytest.mark.parametrize("seed", range(5))
def test_the_threshold_is_the_best_of_all(seed: int) -> None:
    """Tried one by one; the scores are those at it, however the data is divided into batches."""
    generator = np.random.default_rng(seed)
    gold = (generator.random((50, 5)) < 0.3).astype(np.int64)
    probabilities = np.clip(0.4 * gold + 0.6 * generator.random((50, 5)), 0, 1).astype(np.float32)
    probabilities[0] = [0.5, 0.25, 0.01, 0.99, 1.0]
    tried = [f1_score(gold, probabilities.astype(float) >= one, average="micro", zero_division=0) for one in THRESHOLDS]
    best = [one for one, score in zip(THRESHOLDS, tried, strict=True) if score == pytest.approx(max(tried), abs=1e-12)]
    metric = MultiLabelScores("abcde")
    for part in np.split(np.arange(50), [7, 20, 21]):
        metric.update(probabilities[part], gold[part])
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert scores["threshold"] == min(best, key=lambda one: abs(round(one - 0.5, 9)))
    found = probabilities.astype(float) >= scores["threshold"]
    assert scores["f1"] == pytest.approx(max(tried))
    assert scores["precision"] == pytest.approx(precision_score(gold, found, average="micro"))
    assert scores["recall"] == pytest.approx(recall_score(gold, found, average="micro"))
    occurring = np.flatnonzero(gold.any(axis=0) | found.any(axis=0)).tolist()
    assert scores["macro_f1"] == pytest.approx(f1_score(gold, found, average="macro", labels=occurring))


def test_without_labels_the_threshold_is_the_usual_one() -> None:
    metric = MultiLabelScores("ab")
    metric.update(np.full((4, 2), 0.3), np.zeros((4, 2), np.int64))
    assert {name: float(value) for name, value in metric.compute().items() if name in ("f1", "threshold")} == {
        "f1": 0.0,
        "threshold": 0.5,
    }
    metric.reset()
    metric.update(np.array([[0.995, 0.7]]), np.ones((1, 2), np.int64))
    assert float(metric.compute()["threshold"]) == 0.5, "nearest of all that are right"


def test_a_probability_that_is_not_a_number_is_no_label() -> None:
    metric = MultiLabelScores("ab")
    metric.update(np.array([[np.nan, 0.2], [0.9, np.nan]]), np.array([[1, 0], [1, 1]]))
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert (scores["precision"], scores["recall"]) == (1.0, pytest.approx(1 / 3))


def test_f1_at_each_threshold_is_that_of_scikit_learn() -> None:
    generator = np.random.default_rng(4)
    gold, probabilities = generator.integers(0, 2, (40, 3)), generator.random((40, 3)).astype(np.float32)
    found = f1_by_threshold(count_thresholds(gold, probabilities))
    assert list(found)[:2] == ["0.01", "0.02"] and len(found) == len(THRESHOLDS)
    for threshold, f1 in zip(THRESHOLDS, found.values(), strict=True):
        assert f1 == pytest.approx(f1_score(gold, probabilities >= threshold, average="micro", zero_division=0))
    assert found["0.50"] == pytest.approx(f1_score(gold, probabilities >= 0.5, average="micro"))
