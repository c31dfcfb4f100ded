"""All scores of several systems on one test set, as plain numbers for `metrics.json`.

A system is a mapping from the name of a seed (or of its only model) to its predictions. What is given for a system is
the mean over its seeds; the intervals cover the seeds (see `bootstrap`).
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic, compared, interval, resample_scores
from domainbert.metrics.counts import FloatArray
from domainbert.metrics.slices import NO_SLICES, Slices, add_slices, draw_slices

Summary = dict[str, Any]
"""`systems`: scores of each name; `paired`: the first system minus each later one; `draws`: the headline of each system
in every resample; `warnings`: models that have learnt nothing."""

Found = TypeVar("Found")
Systems = Mapping[str, Mapping[str, Found]]
"""By system and seed what a model predicts of a test set."""


@dataclass(frozen=True)
class Resampling:
    """Settings of the bootstrap, and what it draws."""

    resamples: int
    seed: int
    units: Sequence[int] | None = None
    """See `bootstrap.resample_scores`."""


def summarize(
    systems: Systems[Found],
    count: Callable[[Found], NDArray[Any]],
    score: Callable[[Found, NDArray[Any]], dict[str, Any]],
    statistics: Mapping[str, Statistic],
    headline: str,
    resampling: Resampling,
    slices: Slices = NO_SLICES,
    undefined: Callable[[NDArray[Any]], Mapping[str, str]] = lambda counts: {},
) -> Summary:
    """`systems`, `paired` and `draws` of the scores of any task.

    The intervals of the headline are called `interval`, a difference `difference`; those of another statistic carry its
    name in front.

    Args:
        systems: the predictions.
        count: the counts (rows, labels, counts) of a model, of the same rows in the same order for each.
        score: its scores, nested, numbers at the ends; takes the counts summed over rows, too.
        statistics: by name the scores that get intervals, see `bootstrap.resample_scores`.
        headline: the one whose interval has no name in front; or the mean of one over slices.
        resampling: how the intervals are drawn.
        slices: parts of the test set that are scored apart, in the same resamples.
        undefined: the statistics that counts (rows, labels, counts) of a model do not define, with the reason. If one
            model of a system has no score, the system's score, interval and differences are None, and the reason is
            under `undefined`.
    """
    sliced = statistics[slices.score] if slices.rows else None
    counts: dict[str, list[NDArray[Any]]] = {}
    summaries: dict[str, dict[str, Any]] = {}
    for name, runs in systems.items():
        counts[name] = [count(found) for found in runs.values()]
        scored = [score(found, one.sum(axis=0)) for found, one in zip(runs.values(), counts[name], strict=True)]
        if sliced is not None:
            scored = [found | slices.mean(one, sliced) for found, one in zip(scored, counts[name], strict=True)]
        reasons = [undefined(one) for one in counts[name]]
        scored = [found | dict.fromkeys(why) for found, why in zip(scored, reasons, strict=True)]
        by_seed = {seed: one[headline] for seed, one in zip(runs, scored, strict=True)}
        summaries[name] = {**_mean(scored), "seeds": len(runs), f"{headline}_by_seed": by_seed}
        if any(reasons):
            summaries[name]["undefined"] = dict(ChainMap(*map(dict, reasons)))
    first, *others = summaries
    paired: list[dict[str, Any]] = [{"a": first, "b": other} for other in others]
    how = resampling.resamples, resampling.seed, resampling.units
    drawn_of = {name: resample_scores(counts, statistic, *how) for name, statistic in statistics.items()}
    if sliced is not None:
        parts = draw_slices(counts, slices, sliced, *how)
        add_slices(summaries, paired, counts, parts, slices.score, sliced, undefined)
        if slices.mean_over is not None:
            drawn_of[slices.mean_key] = parts[slices.mean_over].means
    for name, drawn in drawn_of.items():
        _add_intervals(summaries, paired, name, "" if name == headline else f"{name}_", drawn)
    draws = {system: drawn.tolist() for system, drawn in drawn_of[headline].items()}
    return {"systems": summaries, "paired": paired, "draws": draws}


def _add_intervals(
    summaries: dict[str, dict[str, Any]],
    paired: Sequence[dict[str, Any]],
    name: str,
    prefix: str,
    drawn: Mapping[str, FloatArray],
) -> None:
    """Add the intervals of the score `name`, and its differences, under keys with a prefix."""
    for system, summary in summaries.items():
        summary[f"{prefix}interval"] = None if summary[name] is None else list(interval(drawn[system]))
    for pair in paired:
        a, b = pair["a"], pair["b"]
        found = compared(summaries[a][name], summaries[b][name], drawn[a] - drawn[b])
        pair.update({f"{prefix}{key}": value for key, value in found.items()})


def collapsed(systems: Systems[Found], has: Callable[[Found], bool], what: str) -> list[str]:
    """A line for each system of which some models do `what`, as `has` tells of their predictions."""
    advice = "it has learnt nothing; train it with another optim.lr or longer"
    seeds = {name: [seed for seed, found in runs.items() if has(found)] for name, runs in systems.items()}
    return [f"{name} ({', '.join(some)}) {what}: {advice}" for name, some in seeds.items() if some]


def _mean(values: Sequence[Any]) -> Any:
    """Average nested dicts of numbers key by key; equal values stay unchanged. The mean of numbers and None is None."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    if all(value == first for value in values):
        return first
    return None if None in values else float(np.mean(values))
