"""Scores of parts of a test set, such as the texts of each language, and their mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic, compare_scores, interval, resample_parts, score_once
from domainbert.metrics.counts import FloatArray, IntArray

MIN_UNITS = 30
"""Slices with fewer sampling units (see `resample_scores`) are marked `few`: their scores are unreliable, and their
intervals may be too narrow."""


@dataclass(frozen=True)
class Slices:
    """Parts of a test set, and the score to compute for each part."""

    rows: Mapping[str, Mapping[str, IntArray]] = field(default_factory=dict)
    """Indices of the items of each part, by key and value: `rows["language"]["de"]`."""
    score: str = ""
    """Name of the score."""
    mean_over: str | None = None
    """Key over whose values the mean of the score is the headline."""
    mean_key: str = ""
    """Name of this mean in the scores: `f1_over_language`."""

    @classmethod
    def from_values(
        cls, values: Mapping[str, Sequence[str]], score: str, mean_over: str | None = None, mean_key: str = ""
    ) -> Slices:
        """Return a part for each value of each key; `values` has, by key, the value of each item."""
        rows = {
            key: {value: np.flatnonzero(np.array(column) == value) for value in sorted(set(column))}
            for key, column in values.items()
        }
        return cls(rows, score, mean_over, mean_key)

    def mean(self, counts: NDArray[Any], statistic: Statistic) -> dict[str, float]:
        """Return the mean of the scores over the parts of `mean_over`, by `mean_key`, from counts (items, ...); {}
        without `mean_over`."""
        if self.mean_over is None:
            return {}
        parts = self.rows[self.mean_over].values()
        return {self.mean_key: float(np.mean([score_once(statistic, counts[rows]) for rows in parts]))}


NO_SLICES = Slices()
"""No part: only the whole test set is scored."""


@dataclass(frozen=True)
class SliceDraws:
    """Resampled scores of the parts of a key."""

    parts: Mapping[str, IntArray]
    """Indices of the items of each part, by value."""
    scores: Mapping[str, FloatArray]
    """(resamples, parts) scores by system."""
    units: IntArray | None
    """(items,) sampling unit of each item; None: each item is a unit."""

    def has_few_units(self, rows: IntArray) -> bool:
        """Return whether the items `rows` belong to fewer than `MIN_UNITS` units."""
        return len(rows if self.units is None else np.unique(self.units[rows])) < MIN_UNITS

    @property
    def means(self) -> dict[str, FloatArray]:
        """Mean over the parts that occur in a resample, by system: (resamples,)."""
        return {name: np.nanmean(scores, axis=-1) for name, scores in self.scores.items()}


def draw_slices(
    counts: Mapping[str, Sequence[NDArray[Any]]],
    slices: Slices,
    statistic: Statistic,
    resamples: int,
    seed: int,
    units: Sequence[int] | None = None,
) -> dict[str, SliceDraws]:
    """Return the scores of all parts, by key, in the same resamples as the whole test set with this seed."""
    unit_array = None if units is None else np.asarray(units)
    return {
        key: SliceDraws(
            parts, resample_parts(counts, list(parts.values()), statistic, resamples, seed, units), unit_array
        )
        for key, parts in slices.rows.items()
    }


def add_slices(
    summaries: dict[str, dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    counts: Mapping[str, Sequence[NDArray[Any]]],
    drawn: Mapping[str, SliceDraws],
    score: str,
    statistic: Statistic,
    undefined: Callable[[NDArray[Any]], Mapping[str, str]],
) -> None:
    """Add `slices` to the summary of each system and to each pair of systems.

    A system gets, by key and value, the `count` of items, the score (mean over seeds), its interval, and `few` if there
    are few units; a pair gets the differences. If a model has no score (`undefined`), score, interval and difference
    are None.
    """

    def mean(name: str, rows: NDArray[np.int64]) -> float | None:  # over the seeds of a system
        if any(score in undefined(model_counts[rows]) for model_counts in counts[name]):
            return None
        return float(np.mean([score_once(statistic, model_counts[rows]) for model_counts in counts[name]]))

    for name, summary in summaries.items():
        summary["slices"] = {
            key: {
                part: {
                    "count": len(rows),
                    score: (value := mean(name, rows)),
                    "interval": None if value is None else list(interval(result.scores[name][:, index])),
                    **({"few": True} if result.has_few_units(rows) else {}),
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
