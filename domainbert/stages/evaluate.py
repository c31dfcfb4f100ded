"""The stage that opens the test set: scores with intervals, paired comparison, error slices."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.errors import DomainbertError, Problems
from domainbert.objectives.task_config import Classification, Ner, TaskConfig
from domainbert.progress import Progress
from domainbert.sealed import check_sealed

if TYPE_CHECKING:
    from domainbert.data.scoring import Scoring

_HEADLINE = ("f1", "interval", "precision", "recall", "seeds", "macro_f1", "accuracy", "accuracy_interval", "cost")

Folders = dict[str, dict[str, Path]]  # system -> seed -> model folder


def evaluate(
    out: Path,
    models: dict[str, Path],
    task: TaskConfig,
    test: Path,
    train: Path | None = None,
    bootstrap_resamples: int = 2000,
    seed: int = 0,
) -> dict[str, Any]:
    """Score fine-tuned models on a test set, with 95 % intervals and the first model compared with each other one.

    Entities: strict F1 (type and both boundaries right), micro, on the words of the file. Classes: macro F1 over the
    classes of the training label set that occur in gold or prediction. Intervals come from resampling documents
    (sentences where the file marks no documents) and seeds. Size and speed of each system's first model are measured
    on the first 512 texts of the test set.

    Args:
        out: the output folder: `metrics.json` and `predictions/`.
        models: names and model folders, also exported ones or an `.onnx` file in one; a folder that `finetune` wrote
            with several seeds counts as one system, the mean of its `seed-*` models. The first is compared with each
            other one.
        task: `Ner` or `Classification`, and the format of its files, as for `finetune`.
        test: the labelled test set; nothing else reads it.
        train: the training set of entities; if given, entities whose words occur in it with the same type (case kept)
            are scored apart from those that do not.
        bootstrap_resamples: how many times the documents are drawn for the intervals.
        seed: of that draw.

    Raises:
        DomainbertError: a model folder without model or for another task, an unreadable test set, a label that
            training did not have, or a number of scored entities that is not that of the file.
    """
    from domainbert.metrics.summary import Resampling
    from domainbert.metrics.table import cost_lines

    _check_resamples(bootstrap_resamples)
    folders = _model_folders(models)
    scoring = open_test(task, test, train)
    with Progress("evaluate", sum(map(len, folders.values())), "models") as progress:
        costs = _score_models(out, folders, task, scoring, progress)
    summary = scoring.summary(Resampling(bootstrap_resamples, seed))
    facts = {
        "task": task.name,
        "test": str(test),
        "gold": scoring.num_gold,
        "bootstrap": {"resamples": bootstrap_resamples, "unit": scoring.unit, "units": scoring.num_units},
    }
    for name, cost in costs.items():
        summary["systems"][name]["cost"] = cost
    (out / "metrics.json").write_text(json.dumps({**facts, **summary}, indent=2) + "\n", encoding="utf-8")
    print("\n".join(["", _title(facts), "", *scoring.lines(summary), "", *cost_lines(summary["systems"])]))
    systems = {name: {key: one[key] for key in _HEADLINE if key in one} for name, one in summary["systems"].items()}
    return {**facts, "systems": systems, "paired": summary["paired"]}


def _score_models(
    out: Path, folders: Folders, task: TaskConfig, scoring: Scoring, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Let every model predict the test set, one in memory at a time; of each system's first model measure the cost."""
    from domainbert.cost import measure_cost
    from domainbert.inference import load_predictor

    costs: dict[str, dict[str, Any]] = {}
    for system, seeds in folders.items():
        for seed, folder in seeds.items():
            predictor = load_predictor(folder)
            if predictor.task != task.name:
                raise DomainbertError(f"models.{system}: {folder} is for {predictor.task}; expected {task.name}")
            scoring.score(system, seed, predictor, out / "predictions" / system / f"{seed}{scoring.suffix}")
            if system not in costs:
                costs[system] = asdict(measure_cost(predictor, folder, scoring.words))
            progress.advance()
    return costs


def open_test(task: TaskConfig, test: Path, train: Path | None) -> Scoring:
    """The test set of a task.

    Args:
        task: `Ner` or `Classification`.
        test: the labelled file.
        train: see `evaluate`.

    Raises:
        DomainbertError: see there.
    """
    from domainbert.data.scoring import ClassScoring, EntityScoring

    if isinstance(task, Ner):
        return EntityScoring(test, train, task.format)
    if train is not None:
        raise DomainbertError("train: tells seen from unseen entities; of no use for classification")
    if isinstance(task, Classification):
        return ClassScoring(test, task.format)
    raise DomainbertError(f"task: {task.name} has no scores of a test set; expected Ner or Classification")


def _model_folders(models: Mapping[str, Path]) -> Folders:
    """The model folders of each system, by the name of the seed; a single model is called "model"."""
    problems = Problems("models")
    folders: Folders = {}
    for name, folder in models.items():
        if not re.fullmatch(r"\w[\w.+-]*", name):
            problems.add(f"models: the name {name!r} is also that of a folder; expected letters, digits and . _ + -")
            continue
        check_sealed(folder, "seed-*/config.json")  # a seed without it would be left out
        if (folder / "config.json").is_file() or (folder.suffix == ".onnx" and folder.is_file()):
            folders[name] = {"model": folder}
        elif seeds := sorted(folder.glob("seed-*/config.json"), key=lambda path: _seed_number(path.parent.name)):
            folders[name] = {path.parent.name: path.parent for path in seeds}
        else:
            found = "no such folder" if not folder.is_dir() else "no config.json in it or in seed-*/"
            problems.add(f"models.{name}: {folder}: {found}; expected a model folder or an output folder of finetune")
    if not models:
        problems.add("models: empty; expected at least one name with a model folder")
    problems.raise_if_any()
    return folders


def _seed_number(name: str) -> tuple[int, str]:
    digits = name.removeprefix("seed-")
    return (int(digits) if digits.isdecimal() else 0, name)


def _check_resamples(resamples: int) -> None:
    if resamples < 100:
        raise DomainbertError(f"bootstrap_resamples: {resamples}; expected at least 100 for a 95 % interval")


def _title(facts: Mapping[str, Any]) -> str:
    bootstrap = facts["bootstrap"]
    scored = (
        f"strict entity F1 over {facts['gold']:,} gold entities"
        if facts["task"] == "ner"
        else f"macro F1 over {facts['gold']:,} texts"
    )
    drawn = f"{bootstrap['resamples']:,} resamples of {bootstrap['units']:,} {bootstrap['unit']} and of the seeds"
    return f"{facts['test']}: {scored}, in percent; intervals from {drawn}"
