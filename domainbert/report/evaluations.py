"""Results of `evaluate`: systems by test set, and their differences, also of systems that different runs evaluated.

Two evaluations have the same test set if their manifests say so: the same files by name and content. The bootstrap
draws its documents from its seed alone, so the draws that two runs have saved for one test set are of the same
documents, and their differences are paired ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from domainbert.base.hashes import hash_json
from domainbert.base.sealed import made_from
from domainbert.metrics.headline import Headline
from domainbert.report.runs import Run, StageFolder

_METRICS, _DRAWS = "metrics.json", "draws.json"
_PERCENTILES = 2.5, 97.5


@dataclass(frozen=True)
class System:
    """A system's scores on a test set."""

    name: str
    """Of its run, too, where the report is of several."""
    scores: dict[str, Any]
    """As `systems.NAME` of `metrics.json`."""
    run: Run
    folder: Path
    """Place of its mistakes and predictions: `mistakes/NAME` below the folder of `evaluate`."""
    drawn: dict[str, Any]
    """Settings of the bootstrap: `seed`, `resamples`, `units`, `metric`; empty in those of an older version."""
    draws: list[float]
    """The score in each resample."""


@dataclass(frozen=True)
class Pair:
    """The score of one system less that of another."""

    a: str
    b: str
    difference: float
    interval: list[float] | None
    """None where the two were evaluated apart, and it is not known."""


@dataclass(frozen=True)
class Evaluation:
    """All that is known of one test set."""

    title: str
    """The stage, where there are several evaluations."""
    metric: Headline
    facts: dict[str, Any]
    """`test`, `gold` and `bootstrap` of `metrics.json`."""
    systems: list[System]
    pairs: list[Pair]
    warnings: list[str]


def evaluations(runs: Sequence[Run]) -> list[Evaluation]:
    """The evaluations of these runs, those of the same test set in one."""
    found: dict[tuple[str, int], list[Evaluation]] = {}
    for run in runs:
        here: Counter[str] = Counter()  # a second evaluation of a run stands by itself: names of systems may recur
        for stage in run.of_kind(_METRICS):
            written = run.json(stage.path / _METRICS, "what evaluate has found")
            one, identity = _evaluation(run, stage, written, alone=len(runs) == 1), _identity(stage, written)
            if one.systems:
                found.setdefault((identity, here[identity]), []).append(one)
                here[identity] += 1
    if len(found) == 1:
        return [replace(_together(alike), title="") for alike in found.values()]
    return [_together(alike) for alike in found.values()]


def _evaluation(run: Run, stage: StageFolder, written: Mapping[str, Any], alone: bool) -> Evaluation:
    metric = Headline(**{"key": "f1", "name": "F1", **written.get("metric", {})})
    drawn = run.json(stage.path / _DRAWS, "the draws of an evaluation", optional=True)
    how, draws = drawn.get("drawn", {}), drawn.get("systems", {})
    suffix = "" if alone else f" ({run.name})"
    systems = [
        System(name + suffix, scores, run, stage.path / "mistakes" / name, how, draws.get(name, []))
        for name, scores in written.get("systems", {}).items()
        if metric.key in scores
    ]
    pairs = [
        Pair(pair["a"] + suffix, pair["b"] + suffix, pair["difference"], pair.get("interval"))
        for pair in written.get("paired", [])
        if pair["difference"] is not None
    ]
    facts = {key: written.get(key) for key in ("test", "gold", "bootstrap", "task")}
    return Evaluation(stage.name, metric, facts, systems, pairs, [one + suffix for one in written.get("warnings", [])])


def _identity(stage: StageFolder, written: Mapping[str, Any]) -> str:
    """Two evaluations with the same one are of the same test set and metric."""
    facts = made_from(stage.manifest) or {}
    test = {name: fact for name, fact in facts.items() if name.partition(".")[0].partition("[")[0] == "test"}
    named = json.dumps(test)
    made = {name: fact for name, fact in facts.items() if f'"{name}' in named and name.startswith("@")}
    shown = [written.get("task"), written.get("gold"), written.get("metric", {}).get("key")]
    return hash_json([test or written.get("test"), made, *shown])  # without a manifest the name of the set has to do


def _together(alike: Sequence[Evaluation]) -> Evaluation:
    """One evaluation of systems that several stages have evaluated; the first system is compared with all others."""
    first, *others = alike
    if not others:
        return first
    systems = [system for one in alike for system in one.systems]
    pairs = [*first.pairs, *(pair for one in others for pair in _across(first.systems[0], one.systems, first.metric))]
    title = ", ".join(dict.fromkeys(one.title for one in alike))
    warnings = [warning for one in alike for warning in one.warnings]
    return Evaluation(title, first.metric, first.facts, systems, pairs, warnings)


def _across(first: System, others: Sequence[System], metric: Headline) -> Iterator[Pair]:
    for other in others:
        a, b = first.scores[metric.key], other.scores[metric.key]
        if a is not None and b is not None:
            yield Pair(first.name, other.name, a - b, _paired_interval(first, other))


def _paired_interval(first: System, other: System) -> list[float] | None:
    """The percentile interval of the differences in resamples of the same documents."""
    if not first.draws or first.drawn != other.drawn or len(first.draws) != len(other.draws):
        return None
    import numpy as np

    low, high = np.percentile(np.subtract(first.draws, other.draws), _PERCENTILES)
    return [float(low), float(high)]
