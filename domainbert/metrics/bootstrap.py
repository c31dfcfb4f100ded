"""Confidence intervals by resampling documents, and seeds if a system was trained several times.

Percentile bootstrap (Efron and Tibshirani 1993, section 13.3): draw as many documents as there are, with replacement,
and recompute the score from the summed counts. With several seeds the bootstrap is hierarchical: seeds are drawn with
replacement, scored on the same documents, and averaged. So the interval covers the choice of test documents and the
randomness of training. It ignores draws in which the score is undefined (NaN), such as F1 without entities.

All systems are scored on the same draws of documents, so differences are paired. Seeds are drawn independently, because
seed 1 of two systems has nothing in common. The seeds drawn for a system depend only on the sums of its counts, so that
systems of two evaluations can be paired, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import FloatArray, micro_f1, undefined_as_nan

_CHUNK_CELLS = 1 << 22  # drawn documents in memory at a time: 32 MB


class WeightedStatistic(ABC):
    """A score that cannot be computed from summed counts, such as a correlation of ranks, which change in each draw."""

    @abstractmethod
    def __call__(self, weights: FloatArray, counts: NDArray[Any]) -> FloatArray:
        """Return the score of each draw (draws,) from the number of times each document is drawn (draws, documents),
        and the counts of documents (documents, labels, ...)."""


SummedStatistic = Callable[[NDArray], FloatArray]
"""Maps counts (..., labels, 3) summed over documents to scores (...)."""

Statistic = SummedStatistic | WeightedStatistic


def bootstrap_interval(
    counts: NDArray[Any] | Sequence[NDArray[Any]],
    statistic: Statistic = micro_f1,
    *,
    baseline: NDArray[Any] | Sequence[NDArray[Any]] | None = None,
    resamples: int = 2000,
    confidence: float = 0.95,
    seed: int = 0,
    units: Sequence[int] | None = None,
) -> tuple[float, float]:
    """Return the confidence interval of a score on a test set, or of its difference from the score of a baseline.

    >>> from domainbert import bootstrap_interval, count_entities
    >>> gold = [[(0, 1, "court")], [(2, 4, "law")], [(0, 2, "law")], [(1, 2, "court")]] * 25
    >>> predicted = [[(0, 1, "court")], [(2, 4, "law")], [(0, 1, "law")], []] * 25
    >>> low, high = bootstrap_interval(count_entities(gold, predicted, ["court", "law"]))
    >>> print(f"{low:.2f} to {high:.2f}")
    0.47 to 0.67

    Args:
        counts: counts of each document (documents, labels, 3) from `count_entities` or `count_classes`; or a list of
            such arrays, one per seed.
        statistic: maps counts to a score, such as `micro_f1` or `macro_f1`.
        baseline: counts of another system on the same documents, to return the interval of the paired difference.
        resamples: number of draws.
        confidence: confidence level.
        seed: seed of the draws.
        units: for each row, the number of its document, if rows are parts of documents.
    """
    systems = {"system": counts} if baseline is None else {"system": counts, "baseline": baseline}
    seeds = {name: [arrays] if isinstance(arrays, np.ndarray) else arrays for name, arrays in systems.items()}
    scores = resample_scores(seeds, statistic, resamples, seed, units)
    differences = scores["system"] if baseline is None else scores["system"] - scores["baseline"]
    return interval(differences, confidence)


def resample_scores(
    systems: Mapping[str, Sequence[NDArray[Any]]],
    statistic: Statistic,
    resamples: int = 2000,
    seed: int = 0,
    units: Sequence[int] | None = None,
) -> dict[str, FloatArray]:
    """Return the scores of each system in every resample: (resamples,); NaN in resamples where they are undefined.

    Args:
        systems: counts of the seeds of each system, each (documents, labels, 3), with the same documents in the same
            order; the number of labels may differ between systems.
        seed: seed of the draws; the same seed draws the same documents.
        units: for each row, the number of the unit that is drawn as a whole, usually its document, because rows of a
            document are not independent; None: each row is a unit.
    """
    all_rows = slice(None)
    with undefined_as_nan():
        part_scores = resample_parts(systems, [all_rows], statistic, resamples, seed, units)
    return {name: scores[:, 0] for name, scores in part_scores.items()}


def resample_parts(
    systems: Mapping[str, Sequence[NDArray[Any]]],
    parts: Sequence[NDArray[np.int64] | slice],
    statistic: Statistic,
    resamples: int,
    seed: int,
    units: Sequence[int] | None = None,
) -> dict[str, FloatArray]:
    """Return the scores (resamples, parts) of each system on parts of the rows, in the draws of `resample_scores`.

    A part is an array of row indices, or a slice. `units` has the unit of each row; rows of a unit are drawn together.
    The size of a part in a draw is random, as in a new test set; the score of an empty part is NaN.
    """
    sizes = {len(counts) for seeds in systems.values() for counts in seeds}
    if len(sizes) != 1 or 0 in sizes or not all(systems.values()):
        raise ValueError(f"counts: found arrays of lengths {sorted(sizes)}; expected the same documents, at least 1")
    num_rows = sizes.pop()
    # numbered from 0 without gaps: a number that no row has would be an empty unit, and be drawn
    row_units = np.arange(num_rows) if units is None else np.unique(units, return_inverse=True)[1]
    generator = np.random.default_rng(seed)
    # counts of each system: (rows, seeds, ...)
    stacked = {name: np.stack(seeds, axis=1).astype(np.float64) for name, seeds in systems.items()}
    # scores of each system, in chunks of draws: (draws, seeds, parts)
    scores: dict[str, list[FloatArray]] = {name: [] for name in systems}
    chunk_size = max(1, _CHUNK_CELLS // num_rows)
    for unit_weights in _draw_units(generator, int(row_units.max()) + 1, resamples, chunk_size):
        weights = unit_weights if units is None else unit_weights[:, row_units]
        for name, counts in stacked.items():
            part_scores = [_score_draws(statistic, weights[:, part], counts[part]) for part in parts]
            scores[name].append(np.stack(part_scores, axis=-1))
    totals = {name: counts.sum(axis=0) for name, counts in stacked.items()}
    return {name: _average_drawn_seeds(seed, totals[name], np.concatenate(chunks)) for name, chunks in scores.items()}


def interval(scores: FloatArray, confidence: float = 0.95) -> tuple[float, float]:
    """Return the percentile interval of resampled scores (resamples,), ignoring NaN; NaN if all scores are."""
    tail = 50 * (1 - confidence)  # percent of the scores below the interval, and above it
    defined = scores[~np.isnan(scores)]
    low, high = np.percentile(defined, [tail, 100 - tail]) if len(defined) else (np.nan, np.nan)
    return float(low), float(high)


def compare_scores(a: float | None, b: float | None, differences: FloatArray) -> dict[str, Any]:
    """Return the `difference` a - b of two scores, and its `interval` from resampled `differences` (resamples,); both
    are None if a score is None."""
    if a is None or b is None:
        return {"difference": None, "interval": None}
    return {"difference": a - b, "interval": list(interval(differences))}


def score_once(statistic: Statistic, counts: NDArray[Any]) -> float:
    """Return the score of counts (documents, labels, ...), with each document once."""
    one_draw = np.ones((1, len(counts)))
    one_seed = counts[:, np.newaxis]
    return float(_score_draws(statistic, one_draw, one_seed)[0, 0])


def _draw_units(
    generator: np.random.Generator, num_units: int, resamples: int, chunk_size: int
) -> Iterator[FloatArray]:
    """Yield the number of times each unit is drawn, in chunks of resamples: (resamples, units)."""
    for begin in range(0, resamples, chunk_size):
        num_draws = min(chunk_size, resamples - begin)
        drawn = generator.integers(num_units, size=(num_draws, num_units))
        # draw i has the numbers from i * num_units, so that one bincount counts all draws
        drawn += num_units * np.arange(num_draws)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=num_draws * num_units)
        yield counts.reshape(num_draws, num_units).astype(np.float64)


def _score_draws(statistic: Statistic, weights: FloatArray, counts: NDArray[Any]) -> FloatArray:
    """Scores (draws, seeds) from counts (rows, seeds, ...), if each row is drawn `weights` (draws, rows) times; NaN if
    no row is drawn."""
    if isinstance(statistic, WeightedStatistic):
        scores = np.stack([statistic(weights, counts[:, seed]) for seed in range(counts.shape[1])], axis=1)
    else:
        sums = weights @ counts.reshape(len(counts), -1)  # (draws, seeds * ...)
        with np.errstate(invalid="ignore"):  # a mean over no row is 0 / 0
            scores = statistic(sums.reshape(len(weights), *counts.shape[1:]))
    return np.where(weights.sum(axis=1, keepdims=True) > 0, scores, np.nan)


def _average_drawn_seeds(seed: int, totals: FloatArray, scores: FloatArray) -> FloatArray:
    """Draw seeds with replacement in each resample, and return the mean of their scores: (resamples, parts).

    `scores` are (resamples, seeds, parts). `totals` are the summed counts of the system. Random numbers depend on their
    checksum: so two systems draw seeds independently, and a system has the same draws in every evaluation.
    """
    generator = np.random.default_rng([seed, crc32(totals.tobytes())])
    num_resamples, num_seeds, _ = scores.shape
    drawn_seeds = generator.integers(num_seeds, size=(num_resamples, num_seeds))
    return np.take_along_axis(scores, drawn_seeds[..., np.newaxis], axis=1).mean(axis=1)
