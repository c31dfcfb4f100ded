"""Scores of parts of a test set, such as the texts of each language, and their mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic, compare_scores, interval, score_once
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


def has_few_units(rows: IntArray, units: Sequence[int] | None) -> bool:
    """Whether the items `rows` belong to fewer than `MIN_UNITS` units; `units` is None if each item is a unit."""
    return len(rows if units is None else np.unique(np.asarray(units)[rows])) < MIN_UNITS


def add_slices(
    summaries: dict[str, dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    counts: Mapping[str, Sequence[NDArray[Any]]],
    slices: Slices,
    draws: Mapping[str, Mapping[str, FloatArray]],
    statistic: Statistic,
    units: Sequence[int] | None,
    undefined: Callable[[NDArray[Any]], Mapping[str, str]],
) -> None:
    """Add `slices` to the summary of each system and to each pair of systems.

    A system gets, by key and value, the `count` of items, the score (mean over seeds), its interval, and `few` if there
    are few units; a pair gets the differences. If a model has no score (`undefined`), score, interval and difference
    are None. `draws` are the resampled scores of the parts, (resamples, parts), by key and system.
    """

    def mean_over_seeds(system: str, rows: IntArray) -> float | None:
        """Return the score of the items `rows`, mean of the seeds; None if it is undefined for a seed."""
        seed_counts = [model_counts[rows] for model_counts in counts[system]]
        if any(slices.score in undefined(part_counts) for part_counts in seed_counts):
            return None
        return float(np.mean([score_once(statistic, part_counts) for part_counts in seed_counts]))

    for system, summary in summaries.items():
        summary["slices"] = {
            key: {
                part: {
                    "count": len(rows),
                    slices.score: (score := mean_over_seeds(system, rows)),
                    "interval": None if score is None else list(interval(draws[key][system][:, index])),
                    **({"few": True} if has_few_units(rows, units) else {}),
                }
                for index, (part, rows) in enumerate(parts.items())
            }
            for key, parts in slices.rows.items()
        }
    for pair in paired:
        a, b = pair["a"], pair["b"]
        slices_a, slices_b = summaries[a]["slices"], summaries[b]["slices"]
        pair["slices"] = {
            key: {
                part: compare_scores(
                    slices_a[key][part][slices.score],
                    slices_b[key][part][slices.score],
                    draws[key][a][:, index] - draws[key][b][:, index],
                )
                for index, part in enumerate(parts)
            }
            for key, parts in slices.rows.items()
        }
