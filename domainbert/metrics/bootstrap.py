"""Confidence intervals by resampling documents, and seeds where a system was trained several times.

The percentile bootstrap (Efron and Tibshirani 1993, section 13.3): draw as many documents as there are, with
replacement, and recompute the score from the summed counts. With several seeds the draw is hierarchical: the seeds of
a system are drawn with replacement, each is scored on the same drawn documents, and their scores averaged. So the
interval covers the choice of test documents and the luck of training.

All systems are scored on the same drawn documents, which makes the difference of two a paired one; their seeds are
drawn independently of each other, for seed 1 of one has nothing to do with seed 1 of another. What is drawn for a
system depends on the sums of its own counts alone, so that systems of two evaluations can be paired, too.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any
from zlib import crc32

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.counts import FloatArray, micro_f1

_CHUNK_CELLS = 1 << 22  # drawn documents held at a time: 32 MB


class WeightedStatistic(ABC):
    """A score that is not made of sums, such as a correlation of ranks, which are others in each draw."""

    @abstractmethod
    def __call__(self, weights: FloatArray, counts: NDArray[Any]) -> FloatArray:
        """The score of each draw (draws,): how often each document is drawn (draws, documents), and the counts of each
        (documents, labels, ...)."""


SummedStatistic = Callable[[NDArray], FloatArray]
"""Takes counts (..., labels, 3) summed over documents, gives scores (...)."""

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
    """The confidence interval of a score of a test set, or of its difference to a baseline's score.

    >>> from domainbert import bootstrap_interval, count_entities
    >>> gold = [[(0, 1, "court")], [(2, 4, "law")], [(0, 2, "law")], [(1, 2, "court")]] * 25
    >>> predicted = [[(0, 1, "court")], [(2, 4, "law")], [(0, 1, "law")], []] * 25
    >>> low, high = bootstrap_interval(count_entities(gold, predicted, ["court", "law"]))
    >>> print(f"{low:.2f} to {high:.2f}")
    0.47 to 0.67

    Args:
        counts: of each document (documents, labels, 3), as `count_entities` or `count_classes` gives them; or a list
            of such arrays, one for each seed of a system.
        statistic: from counts to the score, such as `micro_f1` or `macro_f1`.
        baseline: counts of another system on the same documents, for the interval of the paired difference.
        resamples: how many times to draw.
        confidence: probability that the interval covers.
        seed: of the draw.
        units: for each row of the counts the number of its document, where rows are parts of documents.
    """
    systems = {"system": counts, **({} if baseline is None else {"baseline": baseline})}
    seeds = {name: [one] if isinstance(one, np.ndarray) else one for name, one in systems.items()}
    drawn = resample_scores(seeds, statistic, resamples, seed, units)
    return interval(drawn["system"] - drawn.get("baseline", np.float64(0)), confidence)


def resample_scores(
    systems: Mapping[str, Sequence[NDArray[Any]]],
    statistic: Statistic,
    resamples: int = 2000,
    seed: int = 0,
    units: Sequence[int] | None = None,
) -> dict[str, FloatArray]:
    """The scores of each system in every resample: (resamples,).

    Args:
        systems: for each name the counts of its seeds, each (documents, labels, 3), of the same documents in the same
            order everywhere; the number of labels may differ between systems.
        statistic: from summed counts to the score, or from those of all documents and how often each is drawn.
        resamples: how many times to draw.
        seed: of the draw; the same seed gives the same documents.
        units: for each row of the counts the number of the document that it is a part of, from 0; None where each row
            is a document. Rows of one document are drawn together, for they are not independent.
    """
    found = resample_parts(systems, [slice(None)], statistic, resamples, seed, units)
    return {name: scores[:, 0] for name, scores in found.items()}


def resample_parts(
    systems: Mapping[str, Sequence[NDArray[Any]]],
    parts: Sequence[NDArray[np.int64] | slice],
    statistic: Statistic,
    resamples: int,
    seed: int,
    units: Sequence[int] | None = None,
) -> dict[str, FloatArray]:
    """As `resample_scores`, but each part of the rows is scored by itself, in the same draws: (resamples, parts).

    A part is the numbers of its rows. How many of them a draw has is left to chance, as in a new test set; where it has
    none the score is NaN.
    """
    sizes = {len(counts) for seeds in systems.values() for counts in seeds}
    if len(sizes) != 1 or 0 in sizes or not all(systems.values()):
        raise ValueError(f"every system needs seeds with the counts of the same documents; found sizes {sorted(sizes)}")
    num_rows = sizes.pop()
    of_row = np.arange(num_rows) if units is None else np.asarray(units)
    generator = np.random.default_rng(seed)
    scores: dict[str, list[FloatArray]] = {name: [] for name in systems}
    stacked = {name: np.stack(seeds, axis=1).astype(np.float64) for name, seeds in systems.items()}
    chunk = max(1, _CHUNK_CELLS // num_rows)
    for documents in _draw_documents(generator, int(of_row.max()) + 1, resamples, chunk):
        weights = documents if units is None else documents[:, of_row]
        for name, counts in stacked.items():
            drawn = [_score_draws(statistic, weights[:, part], counts[part]) for part in parts]
            scores[name].append(np.stack(drawn, axis=-1))
    totals = {name: counts.sum(axis=0) for name, counts in stacked.items()}
    return {name: _average_drawn_seeds(seed, totals[name], np.concatenate(found)) for name, found in scores.items()}


def interval(scores: FloatArray, confidence: float = 0.95) -> tuple[float, float]:
    """The percentile interval of resampled scores (resamples,), without those that are NaN."""
    tail = 50 * (1 - confidence)
    low, high = np.nanpercentile(scores, [tail, 100 - tail])
    return float(low), float(high)


def compared(one: float | None, other: float | None, drawn: FloatArray) -> dict[str, Any]:
    """The `difference` of two scores, and its `interval` from the differences in resamples (resamples,); None for both
    if a score is undefined."""
    if one is None or other is None:
        return {"difference": None, "interval": None}
    return {"difference": one - other, "interval": list(interval(drawn))}


def score_once(statistic: Statistic, counts: NDArray[Any]) -> float:
    """The score of documents with such counts, (documents, labels, ...), each once."""
    return float(_score_draws(statistic, np.ones((1, len(counts))), counts[:, None])[0, 0])


def _draw_documents(
    generator: np.random.Generator, num_documents: int, resamples: int, chunk: int
) -> Iterator[FloatArray]:
    """Number of times each document is drawn, a chunk of resamples at a time: (resamples of the chunk, documents)."""
    for begin in range(0, resamples, chunk):
        rows = min(chunk, resamples - begin)
        drawn = generator.integers(num_documents, size=(rows, num_documents))
        drawn += num_documents * np.arange(rows)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=rows * num_documents)
        yield counts.reshape(rows, num_documents).astype(np.float64)


def _score_draws(statistic: Statistic, weights: FloatArray, counts: NDArray[Any]) -> FloatArray:
    """The score of each draw and seed, (draws, seeds), of counts (rows, seeds, ...); NaN where no row is drawn."""
    if isinstance(statistic, WeightedStatistic):
        scores = np.stack([statistic(weights, counts[:, seed]) for seed in range(counts.shape[1])], axis=1)
    else:
        drawn = weights @ counts.reshape(len(counts), -1)
        scores = statistic(drawn.reshape(len(weights), *counts.shape[1:]))
    return np.where(weights.sum(axis=1, keepdims=True) > 0, scores, np.nan)


def _average_drawn_seeds(seed: int, totals: FloatArray, scores: FloatArray) -> FloatArray:
    """Scores (resamples, seeds, parts): draw as many seeds as there are in every resample and average, (resamples,
    parts). `totals` are the counts of the system's seeds, by which its draw is another one than those of others."""
    picks = np.random.default_rng([seed, crc32(totals.tobytes())]).integers(scores.shape[1], size=scores.shape[:2])
    return np.take_along_axis(scores, picks[..., np.newaxis], axis=1).mean(axis=1)
