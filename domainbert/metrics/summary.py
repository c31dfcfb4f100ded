"""All scores of several systems on one test set, as plain numbers for `metrics.json`.

A system is a mapping from the name of a seed (or of its only model) to its predictions. What is given for a system is
the mean over its seeds; the intervals cover the seeds (see `bootstrap`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.metrics.bootstrap import Statistic, interval, resample_scores
from domainbert.metrics.classification import confusion_matrix, count_classes
from domainbert.metrics.counts import (
    IntArray,
    accuracy,
    macro_f1,
    micro_f1,
    precision,
    recall,
    scores,
    weighted_f1,
)
from domainbert.metrics.entities import count_entities, lenient_and_partial, sum_by_document
from domainbert.metrics.matching import SentenceSpans
from domainbert.metrics.slices import (
    LENGTHS,
    NOVELTY,
    Surface,
    count_by_length,
    count_by_novelty,
    error_kinds,
)

Summary = dict[str, Any]
"""`systems`: scores of each name; `paired`: the first system minus each later one; `warnings`: models that have learnt
nothing."""


@dataclass(frozen=True)
class Resampling:
    """Settings of the bootstrap."""

    resamples: int
    seed: int


@dataclass(frozen=True)
class GoldEntities:
    """The gold side of a tagged test set, one item a sentence."""

    spans: SentenceSpans
    words: Sequence[Sequence[str]]
    documents: Sequence[int]
    types: Sequence[str]
    seen: Set[Surface] | None
    """The entities of the training set; None leaves the slices by novelty out."""


def summarize_entities(
    gold: GoldEntities, systems: Mapping[str, Mapping[str, SentenceSpans]], resampling: Resampling
) -> Summary:
    """Score taggers: `f1`, `precision`, `recall` are strict and micro; the rest is named for what it is.

    Raises:
        ValueError: a system has no predictions, another number of sentences, or a type that is not among the types.
    """
    counts = {
        name: {seed: count_entities(gold.spans, spans, gold.types) for seed, spans in runs.items()}
        for name, runs in systems.items()
    }
    scored = {
        name: {seed: _score_tagger(gold, spans, counts[name][seed]) for seed, spans in runs.items()}
        for name, runs in systems.items()
    }
    by_document = {
        name: [sum_by_document(one, gold.documents) for one in runs.values()] for name, runs in counts.items()
    }
    silent = {name: [seed for seed, spans in runs.items() if not any(spans)] for name, runs in systems.items()}
    warnings = collapsed(silent, "predicts no entity at all") if any(gold.spans) else []
    return summarize(scored, by_document, {"f1": micro_f1}, "f1", resampling) | {"warnings": warnings}


def summarize_classes(
    gold: Sequence[str],
    systems: Mapping[str, Mapping[str, Sequence[str]]],
    labels: Sequence[str],
    resampling: Resampling,
) -> Summary:
    """Score classifiers: `f1`, `precision` and `recall` are macro (see `classification`), `accuracy` beside them.

    `confusion` holds `labels`, those that occur in gold or in any prediction, and `counts`, rows of gold with columns
    of predictions, the mean over the seeds.

    Raises:
        ValueError: a system has no predictions, another number of texts, or a label that is not among the labels.
    """
    counts = {
        name: [count_classes(gold, predicted, labels) for predicted in runs.values()] for name, runs in systems.items()
    }
    scored = {
        name: {seed: _score_classifier(one.sum(axis=0), labels) for seed, one in zip(runs, counts[name], strict=True)}
        for name, runs in systems.items()
    }
    same = {name: [seed for seed, found in runs.items() if len(set(found)) == 1] for name, runs in systems.items()}
    warnings = collapsed(same, "predicts one class only") if len(set(gold)) > 1 else []
    found = summarize(scored, counts, {"f1": macro_f1, "accuracy": accuracy}, "f1", resampling)
    for name, runs in systems.items():
        found["systems"][name]["confusion"] = _mean_confusion(gold, list(runs.values()), labels)
    return found | {"warnings": warnings}


def collapsed(models: Mapping[str, Sequence[str]], what: str) -> list[str]:
    """A line for each system of which some models, by their seeds, do `what`."""
    advice = "it has learnt nothing; train it with another optim.lr or longer"
    return [f"{name} ({', '.join(seeds)}) {what}: {advice}" for name, seeds in models.items() if seeds]


def _mean_confusion(gold: Sequence[str], runs: Sequence[Sequence[str]], labels: Sequence[str]) -> dict[str, Any]:
    occurring = set(gold).union(*runs)
    kept = [label for label in labels if label in occurring]
    matrices = [confusion_matrix(gold, predicted, kept) for predicted in runs]
    same = all((matrix == matrices[0]).all() for matrix in matrices)
    return {"labels": kept, "counts": (matrices[0] if same else np.mean(matrices, axis=0)).tolist()}


def _score_tagger(gold: GoldEntities, predicted: SentenceSpans, counts: IntArray) -> dict[str, Any]:
    totals = counts.sum(axis=0)  # (types, 3)
    lenient, partial = lenient_and_partial(gold.spans, predicted)
    result = {
        **scores(totals.sum(axis=0)).as_dict(),
        "macro_f1": float(macro_f1(totals)),
        "lenient": lenient.as_dict(),
        "partial": partial.as_dict(),
        "per_type": by_name(gold.types, totals),
        "errors": error_kinds(gold.spans, predicted),
        "by_length": by_name(LENGTHS, count_by_length(gold.spans, predicted)),
    }
    if gold.seen is not None:
        novelty = count_by_novelty(gold.spans, predicted, gold.words, gold.seen)
        result["by_novelty"] = by_name(NOVELTY, novelty)
    return result


def _score_classifier(totals: IntArray, labels: Sequence[str]) -> dict[str, Any]:
    occurs = totals.sum(axis=-1) > 0
    return {
        "f1": float(macro_f1(totals)),
        "precision": float(precision(totals)[occurs].mean()),
        "recall": float(recall(totals)[occurs].mean()),
        "accuracy": float(accuracy(totals)),
        "micro_f1": float(micro_f1(totals)),
        "weighted_f1": float(weighted_f1(totals)),
        "per_class": by_name(labels, totals),
    }


def by_name(names: Sequence[str], counts: IntArray) -> dict[str, dict[str, float]]:
    """Scores and gold support of each row of `counts` (names, 3)."""
    support = counts[:, 0] + counts[:, 2]
    return {
        name: {**scores(row).as_dict(), "support": int(number)}
        for name, row, number in zip(names, counts, support, strict=True)
    }


def summarize(
    scored: Mapping[str, Mapping[str, dict[str, Any]]],
    counts: Mapping[str, Sequence[NDArray[Any]]],
    statistics: Mapping[str, Statistic],
    headline: str,
    resampling: Resampling,
) -> Summary:
    """`systems` and `paired` of the scores of any task.

    Args:
        scored: the scores of each model, by system and seed: nested, numbers at the ends.
        counts: for each system those of its seeds, each (units, labels, counts), of the same units in the same order.
        statistics: by name the scores that get intervals, made of counts summed over units.
        headline: the one whose interval has no name in front.
        resampling: how the intervals are drawn.

    Raises:
        ValueError: no units, or a system without a model.
    """
    summaries = {name: _summarize_runs(runs, headline) for name, runs in scored.items()}
    return _with_intervals(summaries, counts, statistics, headline, resampling)


def _summarize_runs(runs: Mapping[str, dict[str, Any]], headline: str) -> dict[str, Any]:
    """The mean of all numbers over the seeds, and the headline of each seed."""
    return {
        **_mean(list(runs.values())),
        "seeds": len(runs),
        f"{headline}_by_seed": {seed: result[headline] for seed, result in runs.items()},
    }


def _mean(values: Sequence[Any]) -> Any:
    """Average nested dicts of numbers, number by number; what is equal in all stays as it is."""
    first = values[0]
    if isinstance(first, dict):
        return {key: _mean([value[key] for value in values]) for key in first}
    return first if all(value == first for value in values) else float(np.mean(values))


def _with_intervals(
    summaries: dict[str, dict[str, Any]],
    counts: Mapping[str, Sequence[NDArray[Any]]],
    statistics: Mapping[str, Statistic],
    headline: str,
    resampling: Resampling,
) -> Summary:
    """Add the intervals of the systems and of the differences between the first and each later one.

    The keys of the headline are `interval` and `difference`; those of another statistic carry its name in front.
    """
    first, *others = summaries
    paired: list[dict[str, Any]] = [{"a": first, "b": other} for other in others]
    for name, statistic in statistics.items():
        prefix = "" if name == headline else f"{name}_"
        drawn = resample_scores(counts, statistic, resampling.resamples, resampling.seed)
        for system, summary in summaries.items():
            summary[f"{prefix}interval"] = list(interval(drawn[system]))
        for pair in paired:
            pair[f"{prefix}difference"] = summaries[first][name] - summaries[pair["b"]][name]
            pair[f"{prefix}interval"] = list(interval(drawn[first] - drawn[pair["b"]]))
    return {"systems": summaries, "paired": paired}
