"""Scores of parts of a test set, such as the texts of each language, and their mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic, compare_scores, interval, resample_parts, score_once
from domainbert.metrics.counts import FloatArray, IntArray

FEW = 30
"""Slices with fewer sampling units are marked `few`: their scores are unreliable, their intervals may be too narrow."""


@dataclass(frozen=True)
class Slices:
    """Parts of a test set."""

    rows: Mapping[str, Mapping[str, IntArray]] = field(default_factory=dict)
    """Items of each part, as rows of the counts, by key and value."""
    score: str = ""
    """Score of the parts."""
    mean_over: str | None = None
    """Key over whose values the mean of the score is the headline."""
    mean_key: str = ""
    """Name of this mean in the scores: `f1_over_language`."""

    @classmethod
    def of(
        cls, values: Mapping[str, Sequence[str]], score: str, mean_over: str | None = None, mean_key: str = ""
    ) -> Slices:
        """Group items by their values of each key."""
        rows = {
            key: {value: np.flatnonzero(np.array(column) == value) for value in sorted(set(column))}
            for key, column in values.items()
        }
        return cls(rows, score, mean_over, mean_key)

    def mean(self, counts: NDArray[Any], statistic: Statistic) -> dict[str, float]:
        """Average the scores of a model over the parts of `mean_over`, from counts (items, ...); {} without it."""
        if self.mean_over is None:
            return {}
        parts = self.rows[self.mean_over].values()
        return {self.mean_key: float(np.mean([score_once(statistic, counts[rows]) for rows in parts]))}


NO_SLICES = Slices()


@dataclass(frozen=True)
class Drawn:
    """Result of the bootstrap of the parts of a key."""

    parts: Mapping[str, IntArray]
    scores: Mapping[str, FloatArray]
    """(resamples, parts) scores by system."""
    units: IntArray | None
    """(items,) sampling unit of each item; None: each item is a unit."""

    def has_few(self, rows: IntArray) -> bool:
        """Whether a part with these rows has few units."""
        return len(rows if self.units is None else np.unique(self.units[rows])) < FEW

    @property
    def means(self) -> dict[str, FloatArray]:
        """(resamples,) Mean over the parts that occur in a resample, by system."""
        return {name: np.nanmean(scores, axis=-1) for name, scores in self.scores.items()}


def draw_slices(
    counts: Mapping[str, Sequence[NDArray[Any]]],
    slices: Slices,
    statistic: Statistic,
    resamples: int,
    seed: int,
    units: Sequence[int] | None = None,
) -> dict[str, Drawn]:
    """Score all parts in the same resamples as the whole test set with this seed; by key."""
    numbers = None if units is None else np.asarray(units)
    return {
        key: Drawn(parts, resample_parts(counts, list(parts.values()), statistic, resamples, seed, units), numbers)
        for key, parts in slices.rows.items()
    }


def add_slices(
    summaries: dict[str, dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    counts: Mapping[str, Sequence[NDArray[Any]]],
    drawn: Mapping[str, Drawn],
    score: str,
    statistic: Statistic,
    undefined: Callable[[NDArray[Any]], Mapping[str, str]],
) -> None:
    """Add `slices` to the summary of each system: by key and value the `count` of items, the score (mean over seeds),
    its interval, and `few` if there are few units. Pairs get the differences. If a model has no score (`undefined`),
    score, interval and difference are None."""

    def mean(name: str, rows: NDArray[np.int64]) -> float | None:
        if any(score in undefined(model[rows]) for model in counts[name]):
            return None
        return float(np.mean([score_once(statistic, model[rows]) for model in counts[name]]))

    for name, summary in summaries.items():
        summary["slices"] = {
            key: {
                part: {
                    "count": len(rows),
                    score: (value := mean(name, rows)),
                    "interval": None if value is None else list(interval(result.scores[name][:, index])),
                    **({"few": True} if result.has_few(rows) else {}),
                }
                for index, (part, rows) in enumerate(result.parts.items())
            }
            for key, result in drawn.items()
        }
    for pair in paired:
        a, b = pair["a"], pair["b"]
        slices_a, slices_b = summaries[a]["slices"], summaries[b]["slices"]
        pair["slices"] = {
            key: {
                part: compare_scores(
                    slices_a[key][part][score],
                    slices_b[key][part][score],
                    result.scores[a][:, index] - result.scores[b][:, index],
                )
                for index, part in enumerate(result.parts)
            }
            for key, result in drawn.items()
        }
