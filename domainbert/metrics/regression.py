"""Scores of predicted numbers: correlations, errors, and the share of the variance that is told.

Pearson's correlation, the errors and R2 are made of sums over texts. Spearman's is not: it is Pearson's of the ranks
(Spearman 1904), equal values sharing the mean of theirs, and a bootstrap has to rank each draw anew.

Where it has no meaning, a score has a value all the same: a correlation is 0 if the predictions or the true numbers are
all equal; R2 is 0 if the true ones are, and 1 if they are predicted exactly, as in scikit-learn.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import ArrayLike, NDArray
from typing_extensions import override

from domainbert.metrics.bootstrap import Statistic, WeightedStatistic, score_once
from domainbert.metrics.counts import FloatArray

_ROUNDING = 1e-12  # a variance below this share of the mean square is one of rounding


def regression_scores(gold: ArrayLike, predicted: ArrayLike) -> dict[str, float]:
    """All scores of the numbers predicted for some texts, (texts,) each."""
    counts = count_numbers(gold, predicted)
    return {name: score_once(statistic, counts) for name, statistic in STATISTICS.items()}


def count_numbers(gold: ArrayLike, predicted: ArrayLike) -> FloatArray:
    """Sums' terms of each text, (texts, 1, 10): 1; gold g and prediction p, less the mean of each; g², p², gp; the
    absolute and the squared error; and the places of g and p in ascending order, from 0, equal values sharing one.
    """
    both = np.asarray(gold, dtype=np.float64), np.asarray(predicted, dtype=np.float64)
    g, p = (values - values.mean() for values in both)
    error = both[1] - both[0]
    places = (np.unique(values, return_inverse=True)[1] for values in both)
    return np.stack([np.ones_like(g), g, p, g * g, p * p, g * p, abs(error), error**2, *places], axis=-1)[:, None]


def pearson(sums: NDArray) -> FloatArray:
    """Pearson's correlation of sums (..., 1, 10): (...)."""
    n, g, p, gg, pp, gp = np.moveaxis(sums[..., 0, :6], -1, 0)
    n = np.maximum(n, 1)  # a draw may have no text of a slice
    return _correlation(gp / n - g / n * (p / n), _variance(n, g, gg), _variance(n, p, pp))


def mae(sums: NDArray) -> FloatArray:
    """Mean absolute error of sums (..., 1, 10): (...)."""
    found: FloatArray = sums[..., 0, 6] / sums[..., 0, 0]
    return found


def rmse(sums: NDArray) -> FloatArray:
    """Root of the mean squared error of sums (..., 1, 10): (...)."""
    found: FloatArray = np.sqrt(sums[..., 0, 7] / sums[..., 0, 0])
    return found


def r2(sums: NDArray) -> FloatArray:
    """1 - mean squared error / variance of the true numbers, of sums (..., 1, 10): (...)."""
    n, g, gg, errors = sums[..., 0, 0], sums[..., 0, 1], sums[..., 0, 3], sums[..., 0, 7]
    variance, unexplained = _variance(n, g, gg), errors / n
    known = variance > 0
    return np.where(known, 1 - unexplained / np.where(known, variance, 1), (unexplained == 0).astype(np.float64))


class Spearman(WeightedStatistic):
    """Spearman's correlation: that of the ranks among the texts as often as each is drawn."""

    @override
    def __call__(self, weights: FloatArray, counts: NDArray) -> FloatArray:
        n = np.maximum(weights.sum(axis=1), 1)  # a draw may have no text of a slice
        g, p = (_ranks(weights, counts[:, 0, column].astype(np.int64)) for column in (-2, -1))
        g, p = (ranks - (n[:, None] + 1) / 2 for ranks in (g, p))  # less their mean
        products = ((weights * one * other).sum(axis=1) for one, other in ((g, p), (g, g), (p, p)))
        return _correlation(*products)


def _ranks(weights: FloatArray, places: NDArray[np.int64]) -> FloatArray:
    """Ranks (draws, texts) from 1, equal values sharing the mean of theirs, of `places` (texts,) drawn so often."""
    places = np.unique(places, return_inverse=True)[1]  # a slice has not all of them
    order = np.argsort(places)
    starts = np.searchsorted(places[order], np.arange(places.max() + 1))
    drawn = np.add.reduceat(weights[:, order], starts, axis=1)  # (draws, different values)
    ranks: FloatArray = drawn.cumsum(axis=1) - (drawn - 1) / 2
    return ranks[:, places]


def _variance(n: FloatArray, total: FloatArray, squares: FloatArray) -> FloatArray:
    """Of values with such sums; 0 where it is no more than rounding."""
    variance = squares / n - (total / n) ** 2
    return np.where(variance > _ROUNDING * squares / n, variance, 0.0)


def _correlation(covariance: FloatArray, one: FloatArray, other: FloatArray) -> FloatArray:
    """Covariance by the root of the two variances, from -1 to 1; 0 where one of these is 0."""
    root = np.sqrt(one) * np.sqrt(other)
    found: FloatArray = np.divide(covariance, root, out=np.zeros_like(root), where=root > 0)
    return found.clip(-1, 1)


STATISTICS: Mapping[str, Statistic] = {"pearson": pearson, "spearman": Spearman(), "rmse": rmse, "mae": mae, "r2": r2}
"""The scores by name; each has an interval."""
