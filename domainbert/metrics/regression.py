"""Scores of predicted numbers: correlations, errors, and R2.

Pearson's correlation, the errors and R2 are functions of sums over texts. Spearman's correlation is not: it is
Pearson's correlation of the ranks, with mean ranks for ties (Spearman 1904), and each bootstrap draw has other ranks.

Degenerate cases: a correlation is 0, in bootstrap draws NaN, if all predictions or all gold numbers are equal; R2 is 0
if all gold numbers are equal, and 1 if they are also predicted exactly, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from domainbert.metrics.bootstrap import Statistic, WeightedStatistic, score_once
from domainbert.metrics.counts import FloatArray, divide_or_undefined

_ROUNDING = 1e-12  # a variance below this share of the mean square is a rounding error


def regression_scores(gold: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """Return all scores of predicted numbers, NaN without texts; both arrays are (texts,)."""
    if not np.size(gold):
        return dict.fromkeys(STATISTICS, np.nan)
    counts = regression_terms(gold, predicted)
    return {name: score_once(statistic, counts) for name, statistic in STATISTICS.items()}


def regression_terms(gold: ArrayLike, predicted: ArrayLike) -> FloatArray:
    """Return, for each text, the terms from which `STATISTICS` compute scores: (texts, 1, 10).

    The columns are: 1; gold g and prediction p, both minus their mean; g², p², gp; absolute and squared error; dense
    ranks of g and p from 0.
    """
    numbers = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    g, p = (values - values.mean() for values in numbers)
    error = numbers[1] - numbers[0]
    ranks = (np.unique(values, return_inverse=True)[1] for values in numbers)
    return np.stack([np.ones_like(g), g, p, g * g, p * p, g * p, abs(error), error**2, *ranks], axis=-1)[:, None]


def pearson(sums: NDArray) -> FloatArray:
    """Return Pearson's correlation, from sums (..., 1, 10) of `regression_terms`: (...)."""
    n, g, p, gg, pp, gp = np.moveaxis(sums[..., 0, :6], -1, 0)  # number of texts, sums of g, p, g², p², gp
    n = np.maximum(n, 1)  # a draw may have no text of a slice
    return _correlation(gp / n - g / n * (p / n), _variance(n, g, gg), _variance(n, p, pp))


def mae(sums: NDArray) -> FloatArray:
    """Return the mean absolute error, from sums (..., 1, 10) of `regression_terms`: (...)."""
    n, absolute_errors = sums[..., 0, 0], sums[..., 0, 6]
    return np.asarray(absolute_errors / n)


def rmse(sums: NDArray) -> FloatArray:
    """Return the root of the mean squared error, from sums (..., 1, 10) of `regression_terms`: (...)."""
    n, squared_errors = sums[..., 0, 0], sums[..., 0, 7]
    return np.asarray(np.sqrt(squared_errors / n))


def r2(sums: NDArray) -> FloatArray:
    """Return R2 (1 - mean squared error / variance of gold), from sums (..., 1, 10) of `regression_terms`: (...)."""
    n, g, gg, squared_errors = sums[..., 0, 0], sums[..., 0, 1], sums[..., 0, 3], sums[..., 0, 7]
    variance, unexplained = _variance(n, g, gg), squared_errors / n
    varies = variance > 0
    safe_variance = np.where(varies, variance, 1)  # no division by zero
    return np.where(varies, 1 - unexplained / safe_variance, (unexplained == 0).astype(np.float64))


class Spearman(WeightedStatistic):
    """Spearman's correlation: Pearson's correlation of the ranks, which depend on the draw."""

    @override
    def __call__(self, weights: FloatArray, counts: NDArray) -> FloatArray:
        n = np.maximum(weights.sum(axis=1), 1)  # a draw may have no text of a slice
        mean_rank = (n[:, None] + 1) / 2
        # the last two columns of `regression_terms` are the dense ranks of gold and prediction
        g, p = (_ranks(weights, counts[:, 0, column].astype(np.int64)) - mean_rank for column in (-2, -1))
        covariance, gold_variance, variance = ((weights * x * y).sum(axis=1) for x, y in ((g, p), (g, g), (p, p)))
        return _correlation(covariance, gold_variance, variance)


def _ranks(weights: FloatArray, dense_ranks: NDArray[np.int64]) -> FloatArray:
    """Return the mean ranks (draws, texts), from 1, of values with these dense ranks (texts,), each drawn `weights`
    (draws, texts) times. The dense ranks 0, 1, 1, each drawn once, have the mean ranks 1, 2.5, 2.5."""
    dense_ranks = np.unique(dense_ranks, return_inverse=True)[1]  # a slice may not have all ranks
    order = np.argsort(dense_ranks)
    starts = np.searchsorted(dense_ranks[order], np.arange(dense_ranks.max() + 1))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)  # (draws, distinct values)
    mean_ranks = np.asarray(counts.cumsum(axis=1) - (counts - 1) / 2)  # of the equal values of each distinct value
    return mean_ranks[:, dense_ranks]


def _variance(n: FloatArray, total: FloatArray, squares: FloatArray) -> FloatArray:
    variance = squares / n - (total / n) ** 2
    return np.where(variance > _ROUNDING * squares / n, variance, 0.0)


def _correlation(covariance: FloatArray, gold_variance: FloatArray, variance: FloatArray) -> FloatArray:
    root = np.sqrt(gold_variance) * np.sqrt(variance)
    return divide_or_undefined(covariance, root).clip(-1, 1)


STATISTICS: Mapping[str, Statistic] = {"pearson": pearson, "spearman": Spearman(), "rmse": rmse, "mae": mae, "r2": r2}
"""Functions from `regression_terms`, summed or weighted, to scores, by name."""
