"""Scores of parts of a test set, such as the texts of each language, and their mean over the parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic, compared, interval, resample_parts, score_once
from domainbert.metrics.counts import FloatArray, IntArray

FEW = 30
"""A slice of fewer units (what is drawn) is marked: its score says little, and its interval may be too narrow."""


@dataclass(frozen=True)
class Slices:
    """The parts of a test set: by key and value the numbers of its items, which are rows of the counts."""

    rows: Mapping[str, Mapping[str, IntArray]] = field(default_factory=dict)
    score: str = ""
    """The score that each part gets."""
    mean_over: str | None = None
    """The key over whose values its mean is the headline."""
    mean_key: str = ""
    """The name of that mean among the scores: `f1_over_language`."""

    @classmethod
    def of(
        cls, values: Mapping[str, Sequence[str]], score: str, mean_over: str | None = None, mean_key: str = ""
    ) -> Slices:
        """Those of items whose values are given by key, one an item."""
        rows = {
            key: {value: np.flatnonzero(np.array(found) == value) for value in sorted(set(found))}
            for key, found in values.items()
        }
        return cls(rows, score, mean_over, mean_key)

    def mean(self, counts: NDArray[Any], statistic: Statistic) -> dict[str, float]:
        """The mean of one model's scores over the parts of `mean_over`, from counts (items, ...); none without it."""
        if self.mean_over is None:
            return {}
        parts = self.rows[self.mean_over].values()
        return {self.mean_key: float(np.mean([score_once(statistic, counts[rows]) for rows in parts]))}


NO_SLICES = Slices()


@dataclass(frozen=True)
class Drawn:
    """Result of the bootstrap for each part: by system the scores in every resample, (resamples, parts)."""

    parts: Mapping[str, IntArray]
    scores: Mapping[str, FloatArray]
    units: IntArray | None
    """For each item the unit that it is drawn with; None where that is itself."""

    def has_few(self, rows: IntArray) -> bool:
        """Whether a part of such rows has few units."""
        return len(rows if self.units is None else np.unique(self.units[rows])) < FEW

    @property
    def means(self) -> dict[str, FloatArray]:
        """The mean over the parts that a resample has, by system (resamples,)."""
        return {name: np.nanmean(found, axis=-1) for name, found in self.scores.items()}


def draw_slices(
    counts: Mapping[str, Sequence[NDArray[Any]]],
    slices: Slices,
    statistic: Statistic,
    resamples: int,
    seed: int,
    units: Sequence[int] | None = None,
) -> dict[str, Drawn]:
    """The scores of all parts in the resamples that the whole test set has with this seed, by key."""
    found = {}
    numbers = None if units is None else np.asarray(units)
    for key, parts in slices.rows.items():
        scores = resample_parts(counts, list(parts.values()), statistic, resamples, seed, units)
        found[key] = Drawn(parts, scores, numbers)
    return found


def add_slices(
    summaries: dict[str, dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    counts: Mapping[str, Sequence[NDArray[Any]]],
    drawn: Mapping[str, Drawn],
    score: str,
    statistic: Statistic,
    undefined: Callable[[NDArray[Any]], Mapping[str, str]],
) -> None:
    """Add to each system's summary, under `slices`, the score of each part by key and value: `count` items, the mean
    over the seeds, its interval, and `few` where there are few units to draw. Pairs get the differences. Where a model
    has no score (`undefined`), the score, the interval and the difference are None."""

    def mean(name: str, rows: NDArray[np.int64]) -> float | None:
        known = not any(score in undefined(one[rows]) for one in counts[name])
        return float(np.mean([score_once(statistic, one[rows]) for one in counts[name]])) if known else None

    for name, summary in summaries.items():
        summary["slices"] = {
            key: {
                part: {
                    "count": len(rows),
                    score: (value := mean(name, rows)),
                    "interval": None if value is None else list(interval(found.scores[name][:, place])),
                    **({"few": True} if found.has_few(rows) else {}),
                }
                for place, (part, rows) in enumerate(found.parts.items())
            }
            for key, found in drawn.items()
        }
    for pair in paired:
        a, b = pair["a"], pair["b"]
        one, other = summaries[a]["slices"], summaries[b]["slices"]
        pair["slices"] = {
            key: {
                part: compared(
                    one[key][part][score],
                    other[key][part][score],
                    found.scores[a][:, place] - found.scores[b][:, place],
                )
                for place, part in enumerate(found.parts)
            }
            for key, found in drawn.items()
        }
