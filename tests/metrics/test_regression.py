"""Scores of numbers beside scipy's and scikit-learn's, and intervals beside draws one by one."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn import metrics

from domainbert.metrics.bootstrap import interval, resample_scores
from domainbert.metrics.modules import RegressionScores
from domainbert.metrics.regression import STATISTICS, regression_scores, regression_terms
from tests.metrics.drawn_seeds import drawn_seeds

stats = pytest.importorskip("scipy.stats")

DRAW = np.random.default_rng(0)
GRADES = DRAW.integers(0, 11, 200) / 2  # with many ties, as STS-B has them
YEARS = 2000 + DRAW.integers(-3, 4, 50)
BOTH = ("pearson", "spearman")


def theirs(gold: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    predicted = np.asarray(predicted, dtype=np.float64)  # scikit-learn computes in the type it is given
    return {
        "pearson": stats.pearsonr(gold, predicted)[0],
        "spearman": stats.spearmanr(gold, predicted)[0],
        "rmse": metrics.root_mean_squared_error(gold, predicted),
        "mae": metrics.mean_absolute_error(gold, predicted),
        "r2": metrics.r2_score(gold, predicted),
    }


@pytest.mark.parametrize(
    ("gold", "predicted"),
    [
        (GRADES, GRADES + DRAW.normal(size=200)),
        (GRADES, np.round(GRADES + DRAW.normal(size=200))),
        (GRADES, -GRADES + DRAW.normal(size=200)),
        (YEARS, (YEARS + DRAW.normal(scale=5, size=50)).astype(np.float32)),
        (1e12 * GRADES, 1e-6 * GRADES + 1e-7 * DRAW.normal(size=200)),
        ([1.0, 2.0], [4.0, 3.0]),
    ],
)
def test_scores_are_those_of_scipy_and_scikit_learn(gold: np.ndarray, predicted: np.ndarray) -> None:
    assert regression_scores(gold, predicted) == pytest.approx(theirs(np.asarray(gold), predicted), rel=1e-9, abs=1e-12)


def test_a_score_without_a_meaning_has_a_value() -> None:
    same = np.full(200, 0.1)
    none = {"pearson": 0.0, "spearman": 0.0}
    found = regression_scores(GRADES, same)
    assert found == {**found, **none, "r2": pytest.approx(metrics.r2_score(GRADES, same))} and found["r2"] < 0
    found = regression_scores(same, GRADES)
    assert found == {**found, **none, "r2": metrics.r2_score(same, GRADES)} and found["mae"] > 1
    assert regression_scores(same, same) == {**none, "rmse": 0.0, "mae": 0.0, "r2": 1.0}
    assert regression_scores([3.0], [1.0]) == {**none, "rmse": 2.0, "mae": 2.0, "r2": 0.0}


def test_no_correlation_is_beyond_one() -> None:
    drawn = DRAW.normal(size=(50, 9))
    found = [regression_scores(values, sign * values)[name] for values in drawn for sign in (1, -1) for name in BOTH]
    assert (min(found), max(found)) == (-1, 1)


def test_each_draw_is_scored_as_if_its_texts_stood_there() -> None:
    """Ranks too are those within the draw; two systems are compared on the same texts."""
    gold = GRADES[:30]
    systems = {
        "a": [np.round(gold + DRAW.normal(size=30)), gold + DRAW.normal(size=30)],
        "b": [np.round(gold + 2 * DRAW.normal(size=30))],
    }
    counts = {name: [regression_terms(gold, one) for one in seeds] for name, seeds in systems.items()}
    for name, statistic in STATISTICS.items():
        drawn = resample_scores(counts, statistic, resamples=40, seed=3)
        texts = np.random.default_rng(3).integers(30, size=(40, 30))
        for system, seeds in systems.items():
            wanted = np.asarray([[theirs(gold[i], one[i])[name] for one in seeds] for i in texts])
            wanted = np.take_along_axis(wanted, drawn_seeds(3, counts[system], 40), axis=1).mean(axis=1)
            np.testing.assert_allclose(drawn[system], wanted, rtol=1e-9, err_msg=name)


def test_a_draw_of_one_text_many_times_has_no_correlation() -> None:
    counts = regression_terms([0.1, 0.2], [2000.25, 1999.3])
    for name in ("pearson", "spearman"):
        drawn = resample_scores({"a": [counts]}, STATISTICS[name], resamples=64)["a"]
        assert 16 < np.isnan(drawn).sum() < 48, "half of the draws"
        assert set(np.abs(drawn[~np.isnan(drawn)]).round(12)) == {1.0}
        assert np.abs(interval(drawn)) == pytest.approx(1, abs=1e-12)


def test_a_validation_is_scored_over_batches_and_ranks() -> None:
    predicted = GRADES + DRAW.normal(size=200)
    numbers = np.column_stack([GRADES, predicted])
    metric = RegressionScores()
    for part in (slice(120), slice(120, 200)):
        metric.update(predicted[part], GRADES[part])
    scores = {name: float(value) for name, value in metric.compute().items()}
    assert scores == pytest.approx(regression_scores(GRADES, predicted), rel=1e-12)
    metric.to("cpu").reset()  # a rank without texts, and what another one sends, of the same type
    sent: list[torch.dtype] = []

    def gather(own: torch.Tensor, group: object) -> list[torch.Tensor]:
        sent.append(own.dtype)
        return [own, torch.from_numpy(numbers).flatten()]

    metric._sync_dist(dist_sync_fn=gather)
    assert sent == [torch.float64]
    assert {name: float(value) for name, value in metric.compute().items()} == scores
