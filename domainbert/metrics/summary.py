"""All scores of several systems on a test set and its slices, as plain numbers for `metrics.json`.

A system maps the name of each seed (or of its only model) to predictions. Scores of a system are means over its seeds;
intervals include the variation of the seeds (see `bootstrap`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import (
    Statistic,
    compare_scores,
    interval,
    resample_parts,
    resample_scores,
    score_once,
)
from domainbert.metrics.counts import FloatArray, IntArray, undefined_as_nan

MIN_UNITS = 30
"""Slices with fewer sampling units (see `resample_scores`) are marked `few`: their scores are unreliable, and their
intervals may be too narrow."""

Summary = dict[str, Any]
"""`systems`: scores by name; `paired`: first system - each later system; `draws`: headline of each system in every
resample, None where it is undefined; `warnings`: models that have not learned. See `summarize`."""

Prediction = TypeVar("Prediction")
Predictions = TypeVar("Predictions")
Systems = Mapping[str, Mapping[str, Predictions]]
"""Predictions on a test set, by system and seed."""


@dataclass(frozen=True)
class Resampling:
    """Settings of the bootstrap."""

    resamples: int = 2000
    seed: int = 0
    units: Sequence[int] | None = None
    """See `bootstrap.resample_scores`."""


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
        """Return {`mean_key`: mean score of the parts of `mean_over`}, {} without `mean_over`; `statistic` computes the
        score of a part from its rows of `counts` (items, ...)."""
        if self.mean_over is None:
            return {}
        parts = self.rows[self.mean_over].values()
        return {self.mean_key: float(np.mean([score_once(statistic, counts[rows]) for rows in parts]))}


NO_SLICES = Slices()
"""No part: only the whole test set is scored."""


def summarize(
    systems: Systems[Predictions],
    count: Callable[[Predictions], NDArray[Any]],
    score: Callable[[Predictions, NDArray[Any]], dict[str, Any]],
    statistics: Mapping[str, Statistic],
    headline: str,
    resampling: Resampling,
    slices: Slices = NO_SLICES,
    undefined: Callable[[NDArray[Any]], Mapping[str, str]] = lambda counts: {},
) -> Summary:
    """Return the scores of systems with intervals and differences: `systems`, `paired` and `draws` of a `Summary`.

    Keys of the headline are `interval` and `difference`; keys of other statistics have the name as a prefix.

    Args:
        count: returns the counts (rows, labels, counts) of a model; all models have the same rows in the same order.
        score: returns the (nested) scores of a model from its predictions and the counts summed over rows.
        statistics: scores with intervals by name, see `bootstrap.resample_scores`.
        headline: name of the primary statistic, or of its mean over slices.
        slices: parts of the test set to score separately, in the same resamples.
        undefined: returns the statistics that are undefined for counts (rows, labels, counts), with the reason. If a
            statistic is undefined for one model of a system, the system's score, interval and differences are None,
            and the reason is stored under `undefined`.
    """
    # scores of each system, the mean of the scores of its models
    slice_statistic = statistics[slices.score] if slices.rows else None
    counts = {name: [count(predictions) for predictions in runs.values()] for name, runs in systems.items()}
    summaries: dict[str, dict[str, Any]] = {}
    for name, runs in systems.items():
        scores: list[dict[str, Any]] = []
        reasons: dict[str, str] = {}  # of undefined scores, which are None
        for predictions, model_counts in zip(runs.values(), counts[name], strict=True):
            means = {} if slice_statistic is None else slices.mean(model_counts, slice_statistic)
            model_reasons = undefined(model_counts)
            reasons = {**model_reasons, **reasons}  # the reason of the first seed counts
            scores.append(score(predictions, model_counts.sum(axis=0)) | means | dict.fromkeys(model_reasons, None))
        summaries[name] = _system_summary(list(runs), scores, headline, reasons)

    # scores in the resamples, for intervals and differences
    first, *others = summaries
    paired: list[dict[str, Any]] = [{"a": first, "b": other} for other in others]
    settings = resampling.resamples, resampling.seed, resampling.units
    resampled = {name: resample_scores(counts, statistic, *settings) for name, statistic in statistics.items()}
    if slice_statistic is not None:
        with undefined_as_nan():
            slice_draws = {
                key: resample_parts(counts, list(parts.values()), slice_statistic, *settings)
                for key, parts in slices.rows.items()
            }
        _add_slices(summaries, paired, counts, slices, slice_draws, slice_statistic, resampling.units, undefined)
        if slices.mean_over is not None:
            # the mean over the parts that occur in a resample; an undefined score counts 0, as in `Slices.mean`
            parts = list(slices.rows[slices.mean_over].values())
            by_system = resample_parts(counts, parts, slice_statistic, *settings)
            resampled[slices.mean_key] = {name: np.nanmean(draws, axis=-1) for name, draws in by_system.items()}
    for name, draws in resampled.items():
        _add_intervals(summaries, paired, name, "" if name == headline else f"{name}_", draws)
    headline_draws = {system: _with_none(draws) for system, draws in resampled[headline].items()}
    return {"systems": summaries, "paired": paired, "draws": headline_draws}


def _with_none(draws: FloatArray) -> list[float | None]:
    """Replace NaN, which JSON does not have."""
    return [None if math.isnan(score) else score for score in draws.tolist()]


def _system_summary(
    seeds: Sequence[str], scores: Sequence[dict[str, Any]], headline: str, reasons: Mapping[str, str]
) -> dict[str, Any]:
    by_seed = {seed: values[headline] for seed, values in zip(seeds, scores, strict=True)}
    summary = {**_mean(scores), "seeds": len(seeds), f"{headline}_by_seed": by_seed}
    return {**summary, "undefined": dict(reasons)} if reasons else summary


def has_few_units(rows: IntArray, units: Sequence[int] | None) -> bool:
    """Whether the items `rows` belong to fewer than `MIN_UNITS` units; `units` is None if each item is a unit."""
    rows_units = rows if units is None else np.unique(np.asarray(units)[rows])
    return len(rows_units) < MIN_UNITS


def _add_slices(
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
        summary["slices"] = {key: {} for key in slices.rows}
        for key, parts in slices.rows.items():
            for index, (part, rows) in enumerate(parts.items()):
                score = mean_over_seeds(system, rows)
                bounds = None if score is None else list(interval(draws[key][system][:, index]))
                entry = {"count": len(rows), slices.score: score, "interval": bounds}
                if has_few_units(rows, units):
                    entry["few"] = True
                summary["slices"][key][part] = entry
    for pair in paired:
        a, b = pair["a"], pair["b"]
        pair["slices"] = {}
        for key, parts in slices.rows.items():
            slices_a, slices_b = summaries[a]["slices"][key], summaries[b]["slices"][key]
            differences = draws[key][a] - draws[key][b]  # (resamples, parts)
            pair["slices"][key] = {
                part: compare_scores(slices_a[part][slices.score], slices_b[part][slices.score], differences[:, index])
                for index, part in enumerate(parts)
            }


def _add_intervals(
    summaries: dict[str, dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    name: str,
    prefix: str,
    draws: Mapping[str, FloatArray],
) -> None:
    for system, summary in summaries.items():
        summary[f"{prefix}interval"] = None if summary[name] is None else list(interval(draws[system]))
    for pair in paired:
        a, b = pair["a"], pair["b"]
        difference = compare_scores(summaries[a][name], summaries[b][name], draws[a] - draws[b])
        pair.update({f"{prefix}{key}": value for key, value in difference.items()})


def collapse_warnings(
    systems: Systems[Sequence[Prediction]],
    values: Callable[[Prediction], Iterable[Hashable]],
    gold: Iterable[Hashable],
    description: str,
    max_values: int = 1,
) -> list[str]:
    """Return a warning for each system with models that have not learned: they predict too few different values.

    Args:
        values: returns the values in the prediction of an item, such as its labels.
        gold: the gold values of all items; there are no warnings if at most `max_values` of them are different.
        description: what the models do, such as "predicts one label only".
        max_values: number of different values up to which a model has not learned: 1, or 0 if an item may have none.
    """
    if len(set(gold)) <= max_values:
        return []
    warnings = []
    for name, runs in systems.items():
        num_values = {seed: len(set(chain.from_iterable(map(values, run)))) for seed, run in runs.items()}
        seeds = ", ".join(seed for seed, number in num_values.items() if number <= max_values)
        if seeds:
            advice = "it has not learned; train it with another optim.lr or longer"
            warnings.append(f"{name} ({seeds}) {description}: {advice}")
    return warnings


def _mean(values: Sequence[Any]) -> Any:
    """Mean of numbers, or of nested dicts by key; None if a value is None. Equal values of any type are returned
    unchanged."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    if all(value == first for value in values):
        return first
    return None if None in values else float(np.mean(values))
