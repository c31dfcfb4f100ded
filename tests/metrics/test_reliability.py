"""Reliability: the bins of scikit-learn, and ECE and Brier score computed by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import calibration_curve
from sklearn.metrics import brier_score_loss

from domainbert.metrics.diagnostics import reliability

probability = st.sampled_from([0.0, 0.25, 1.0]) | st.floats(0, 1)


@given(st.lists(st.tuples(probability, st.booleans()), min_size=1, max_size=60))
def test_bins_are_those_of_scikit_learn(pairs):
    confidence, right = map(np.array, zip(*pairs, strict=True))
    found = reliability(pairs)
    accurate, sure = calibration_curve(right, confidence, n_bins=15, strategy="quantile", pos_label=True)
    bins = found["bins"]
    assert [one["accuracy"] for one in bins] == pytest.approx(accurate.tolist(), abs=1e-12)
    assert [one["confidence"] for one in bins] == pytest.approx(sure.tolist(), abs=1e-12)
    assert sum(one["count"] for one in bins) == len(pairs)
    gaps = sum(one["count"] * abs(one["accuracy"] - one["confidence"]) for one in bins)
    assert found["ece"] == pytest.approx(gaps / len(pairs), abs=1e-12)
    assert found["brier"] == pytest.approx(brier_score_loss(right, confidence, pos_label=True), abs=1e-12)
    again = reliability(pairs[::-1])
    assert [one["count"] for one in again["bins"]] == [one["count"] for one in bins], "whatever the order"
    assert again["ece"] == pytest.approx(found["ece"], abs=1e-12)


def test_bins_hold_as_many_each():
    pairs = [(number / 150, number % 2 == 0) for number in range(150)]
    found = reliability(pairs)
    assert [one["count"] for one in found["bins"]] == [10] * 15
    assert found["bins"][0] == {"confidence": pytest.approx(0.03), "accuracy": 0.5, "count": 10}


def test_equal_predictions_are_in_one_bin():
    pairs = [(1.0, True)] * 70 + [(1.0, False)] * 30
    assert reliability(pairs)["bins"] == [{"confidence": 1.0, "accuracy": 0.7, "count": 100}]
    assert reliability(pairs)["ece"] == pytest.approx(0.3) == reliability(pairs)["brier"]
    assert reliability([(0.2, True)]) == {
        "bins": [{"confidence": 0.2, "accuracy": 1.0, "count": 1}],
        "ece": pytest.approx(0.8),
        "brier": pytest.approx(0.64),
    }
