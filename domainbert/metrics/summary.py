"""All scores of several systems on a test set, as plain numbers for `metrics.json`.

A system maps the name of each seed (or of its only model) to predictions. Scores of a system are means over its seeds;
intervals include the variation of the seeds (see `bootstrap`).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic, compare_scores, interval, resample_parts, resample_scores
from domainbert.metrics.counts import FloatArray
from domainbert.metrics.slices import NO_SLICES, Slices, add_slices

Summary = dict[str, Any]
"""`systems`: scores by name; `paired`: first system - each later system; `draws`: headline of each system in every
resample; `warnings`: models that have not learned. See `summarize`."""

Prediction = TypeVar("Prediction")
Predictions = TypeVar("Predictions")
Systems = Mapping[str, Mapping[str, Predictions]]
"""Predictions on a test set, by system and seed."""


@dataclass(frozen=True)
class Resampling:
    """Settings of the bootstrap."""

    resamples: int
    seed: int
    units: Sequence[int] | None = None
    """See `bootstrap.resample_scores`."""


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
        systems: the predictions.
        count: returns the counts (rows, labels, counts) of a model; all models have the same rows in the same order.
        score: returns the (nested) scores of a model from its predictions and the counts summed over rows.
        statistics: scores with intervals by name, see `bootstrap.resample_scores`.
        headline: name of the primary statistic, or of its mean over slices.
        resampling: settings of the bootstrap.
        slices: parts of the test set to score separately, in the same resamples.
        undefined: returns the statistics that are undefined for counts (rows, labels, counts), with the reason. If a
            statistic is undefined for one model of a system, the system's score, interval and differences are None,
            and the reason is stored under `undefined`.
    """
    # scores of each system, the mean of the scores of its models
    slice_statistic = statistics[slices.score] if slices.rows else None
    counts: dict[str, list[NDArray[Any]]] = {}
    summaries: dict[str, dict[str, Any]] = {}
    for name, runs in systems.items():
        counts[name] = [count(predictions) for predictions in runs.values()]
        scores: list[dict[str, Any]] = []
        reasons = [undefined(model_counts) for model_counts in counts[name]]
        for predictions, model_counts, reason in zip(runs.values(), counts[name], reasons, strict=True):
            means = {} if slice_statistic is None else slices.mean(model_counts, slice_statistic)
            scores.append(score(predictions, model_counts.sum(axis=0)) | means | dict.fromkeys(reason))
        by_seed = {seed: values[headline] for seed, values in zip(runs, scores, strict=True)}
        summaries[name] = {**_mean(scores), "seeds": len(runs), f"{headline}_by_seed": by_seed}
        if any(reasons):
            summaries[name]["undefined"] = dict(ChainMap(*map(dict, reasons)))  # the reason of the first seed

    # scores in the resamples, for intervals and differences
    first, *others = summaries
    paired: list[dict[str, Any]] = [{"a": first, "b": other} for other in others]
    settings = resampling.resamples, resampling.seed, resampling.units
    resampled = {name: resample_scores(counts, statistic, *settings) for name, statistic in statistics.items()}
    if slice_statistic is not None:
        slice_draws = {
            key: resample_parts(counts, list(parts.values()), slice_statistic, *settings)
            for key, parts in slices.rows.items()
        }
        add_slices(summaries, paired, counts, slices, slice_draws, slice_statistic, resampling.units, undefined)
        if slices.mean_over is not None:
            # the mean over the parts that occur in a resample
            by_system = slice_draws[slices.mean_over]
            resampled[slices.mean_key] = {name: np.nanmean(draws, axis=-1) for name, draws in by_system.items()}
    for name, draws in resampled.items():
        _add_intervals(summaries, paired, name, "" if name == headline else f"{name}_", draws)
    headline_draws = {system: draws.tolist() for system, draws in resampled[headline].items()}
    return {"systems": summaries, "paired": paired, "draws": headline_draws}


def _add_intervals(
    summaries: dict[str, dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    name: str,
    prefix: str,
    draws: Mapping[str, FloatArray],
) -> None:
    """Add the intervals and differences of the score `name`, under keys with a prefix."""
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
        systems: the predictions of all items.
        values: returns the values in the prediction of an item, such as its labels.
        gold: the gold values of all items; there are no warnings if at most `max_values` of them are different.
        description: what the models do, such as "predicts one label only".
        max_values: number of different values up to which a model has not learned: 1, or 0 if an item may have none.
    """
    if len(set(gold)) <= max_values:
        return []
    seeds = {
        name: [seed for seed, run in runs.items() if len(set(chain.from_iterable(map(values, run)))) <= max_values]
        for name, runs in systems.items()
    }
    advice = "it has not learned; train it with another optim.lr or longer"
    return [f"{name} ({', '.join(models)}) {description}: {advice}" for name, models in seeds.items() if models]


def _mean(values: Sequence[Any]) -> Any:
    """Return the mean of numbers, or of nested dicts by key; equal values of any type are kept; None if one is None."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    if all(value == first for value in values):
        return first
    return None if None in values else float(np.mean(values))
