"""Results of `evaluate`: systems by test set, and their differences, also between systems of different runs.

Two evaluations have the same test set if their records list the same files by name and content. The resamples of the
bootstrap depend only on its seed, so two runs have resampled the same documents of a test set, and their differences
can be paired.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from domainbert.base.files import hash_json
from domainbert.metrics.headline import Headline
from domainbert.report.runs import Run, StageFolder

METRICS, _DRAWS = "metrics.json", "draws.json"
_PERCENTILES = 2.5, 97.5


@dataclass(frozen=True)
class System:
    """Scores of a system on a test set."""

    name: str
    """With the name of its run, if the report has several runs."""
    scores: dict[str, Any]
    """`systems.NAME` of `metrics.json`."""
    run: Run
    folder: Path
    """Folder of its mistakes: `mistakes/NAME` below the folder of `evaluate`."""
    drawn: dict[str, Any]
    """Settings of the bootstrap: `seed`, `resamples`, `units`, `metric`; empty for older versions."""
    draws: list[float | None]
    """Score in each resample; None where it is undefined."""


@dataclass(frozen=True)
class Pair:
    """Difference of two systems: score of `a` minus score of `b`."""

    a: str
    b: str
    difference: float
    interval: list[float] | None
    """None (unknown) if the systems were evaluated separately, on different resamples."""

    @property
    def is_significant(self) -> bool:
        """Whether the 95 % interval is known and excludes 0."""
        return self.interval is not None and not self.interval[0] <= 0 <= self.interval[1]


@dataclass(frozen=True)
class Evaluation:
    """Systems and their differences on one test set."""

    title: str
    """Name of the stage; empty for a single evaluation."""
    metric: Headline
    facts: dict[str, Any]
    """`test`, `gold` and `bootstrap` of `metrics.json`, for the caption of a table."""
    systems: list[System]
    pairs: list[Pair]
    warnings: list[str]


def evaluations(runs: Sequence[Run]) -> list[Evaluation]:
    """Return the evaluations of these runs; evaluations of different runs on the same test set are merged into one.

    Evaluations of the same run are not merged, because they may have systems of the same name: the first evaluations of
    all runs on a test set are merged, then the second evaluations, ... If a single evaluation results, it has no title.
    """
    groups: dict[tuple[str, int], list[Evaluation]] = {}  # by test set and number of the evaluation in its run
    for run in runs:
        counts: Counter[str] = Counter()  # evaluations of this run so far, by test set
        for stage in run.stages_with_file(METRICS):
            metrics = run.json(stage.path / METRICS, "the result of evaluate")
            evaluation = _evaluation(run, stage, metrics)
            test_set = _test_set_hash(stage, metrics)
            if evaluation.systems:
                groups.setdefault((test_set, counts[test_set]), []).append(evaluation)
                counts[test_set] += 1
    merged = [_merge_evaluations(group) for group in groups.values()]
    return merged if len(merged) > 1 else [replace(evaluation, title="") for evaluation in merged]


def _evaluation(run: Run, stage: StageFolder, metrics: Mapping[str, Any]) -> Evaluation:
    metric = Headline(**{"key": "f1", "name": "F1", **metrics.get("metric", {})})
    bootstrap = run.json(stage.path / _DRAWS, "the draws of an evaluation", optional=True)
    drawn, draws = bootstrap.get("drawn", {}), bootstrap.get("systems", {})
    systems = [
        System(name + run.suffix, scores, run, stage.path / "mistakes" / name, drawn, draws.get(name, []))
        for name, scores in metrics.get("systems", {}).items()
        if metric.key in scores
    ]
    pairs = [
        Pair(pair["a"] + run.suffix, pair["b"] + run.suffix, pair["difference"], pair.get("interval"))
        for pair in metrics.get("paired", [])
        if pair["difference"] is not None
    ]
    facts = {key: metrics.get(key) for key in ("test", "gold", "bootstrap")}
    warnings = [warning + run.suffix for warning in metrics.get("warnings", [])]
    return Evaluation(stage.name, metric, facts, systems, pairs, warnings)


def _test_set_hash(stage: StageFolder, metrics: Mapping[str, Any]) -> str:
    """Return a hash of the test set, the task and the metric, which is equal for comparable evaluations."""
    facts = stage.record.made_from
    # the setting `test` and its parts: `test`, `test.path`, `test[0]`
    test_facts = {name: fact for name, fact in facts.items() if re.split(r"[.\[]", name)[0] == "test"}
    # earlier stages that wrote a part of the test set, such as "@split" of "@split/test.conll"
    used = re.findall(r'"(@[\w-]+)', json.dumps(test_facts, ensure_ascii=False))
    stages = {name: fact for name, fact in facts.items() if name in used}
    task = [metrics.get("task"), metrics.get("gold"), metrics.get("metric", {}).get("key")]
    test_set = test_facts or metrics.get("test")  # without a record only the name is known
    return hash_json([test_set, stages, *task])


def _merge_evaluations(group: Sequence[Evaluation]) -> Evaluation:
    """The first system of the group is also compared with all systems of the other evaluations."""
    first, *others = group
    if not others:
        return first
    other_systems = [system for evaluation in others for system in evaluation.systems]
    pairs = [*first.pairs, *_pairs_with_first(first.systems[0], other_systems, first.metric)]
    title = ", ".join(dict.fromkeys(evaluation.title for evaluation in group))
    warnings = [warning for evaluation in group for warning in evaluation.warnings]
    return Evaluation(title, first.metric, first.facts, [*first.systems, *other_systems], pairs, warnings)


def _pairs_with_first(first: System, others: Sequence[System], metric: Headline) -> Iterator[Pair]:
    first_score = first.scores[metric.key]
    for other in others:
        score = other.scores[metric.key]
        if first_score is not None and score is not None:
            yield Pair(first.name, other.name, first_score - score, _paired_interval(first, other))


def _paired_interval(first: System, other: System) -> list[float] | None:
    """Return the 95 % percentile interval of the differences per resample; None if the resamples are not the same."""
    if not first.draws or first.drawn != other.drawn or len(first.draws) != len(other.draws):
        return None
    import numpy as np  # here, because most reports have nothing to pair

    differences = np.subtract(np.array(first.draws, dtype=float), np.array(other.draws, dtype=float))  # None: NaN
    defined = differences[~np.isnan(differences)]
    return np.percentile(defined, _PERCENTILES).tolist() if len(defined) else None
