"""Warnings of stages: print them, and warn of a distillation without progress and of weak teachers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from domainbert.metrics.headline import Headline
from domainbert.pretraining.config import CORPUS_ADVICE


def print_warnings(warnings: Sequence[str]) -> None:
    """Print warnings at once; a recipe repeats them at its end."""
    for warning in warnings:
        print(f"warning: {warning}", flush=True)


def distillation_warnings(history: Sequence[Mapping[str, float]]) -> list[str]:
    """Return a warning if the last validation loss is not below the first, otherwise [].

    `history` has a row per validation.
    """
    first, last = history[0]["loss"], history[-1]["loss"]
    if len(history) < 2 or last < first:
        return []
    return [f"the validation loss has not fallen: {first:.4f} at first, {last:.4f} at last; {CORPUS_ADVICE}"]


def weak_teachers(models: Mapping[str, Path], costs: Mapping[str, Mapping[str, Any]], headline: Headline) -> list[str]:
    """Return a warning for each larger model that is not better on validation than a model of a student's size.

    A model taught by a weak teacher scores below the same model without a teacher (docs/results.md).
    Validation scores are compared because a choice must not depend on the test set. Without a distilled system there
    are no warnings.

    `models` are the folders of the evaluated systems. `costs` has for each system `parameters`, and `teachers`, the
    names of the models that it was distilled from. `headline` is the metric by which the seeds were chosen.
    """
    scores = dict(_validation_scores(models, headline))
    student_sizes = {cost["parameters"] for cost in costs.values() if cost["teachers"]}
    sizes = {name: costs[name]["parameters"] for name in scores if not costs[name]["teachers"]}
    as_large_as_students = [name for name, size in sizes.items() if size in student_sizes]
    warnings = []
    for larger, smaller in product(sizes, as_large_as_students):
        is_better = headline.best([scores[smaller], scores[larger]]) == 1  # 0 for equal scores
        if sizes[larger] > sizes[smaller] and not is_better:
            score = f"validation {headline.name} {scores[larger]:.4f} is not better than {scores[smaller]:.4f}"
            other = f"models.{smaller}, which has the student's size and no teacher"
            warnings.append(f"models.{larger}: {score} of {other}; train '{larger}' for more steps")
    return warnings


def _validation_scores(models: Mapping[str, Path], headline: Headline) -> Iterator[tuple[str, float]]:
    from domainbert.models.folder import read_seeds  # imports tokenizers, which takes time

    for name, folder in models.items():
        if (folder / "seeds.json").is_file():
            by_seed = read_seeds(folder).get(f"validation_{headline.key}", {})
            if by_seed:
                yield name, sum(by_seed.values()) / len(by_seed)
