"""`evaluate`, which alone opens the test set: scores with intervals, paired comparison, error slices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import write_json
from domainbert.base.marks import ORDERED
from domainbert.base.paths import ModelPath
from domainbert.base.progress import Progress
from domainbert.base.ranges import Range, Seed
from domainbert.base.sealed import check_sealed
from domainbert.labelled.sets import LabelledSet, files_of, path_of, read_set, set_name
from domainbert.settings.schema import defaults_of
from domainbert.stages.inputs import Inputs
from domainbert.stages.stage import stage
from domainbert.tasks.config import TaskConfig

if TYPE_CHECKING:
    from domainbert.labelled.items import Labelled
    from domainbert.models.folder import ModelFolder
    from domainbert.stages.early_checks import Given
    from domainbert.tasks.predictor import Predictor
    from domainbert.tasks.scoring import Scoring

Folders = dict[str, dict[str, Path]]  # system -> seed -> model folder


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Settings of `evaluate`."""

    models: dict[str, ModelPath] = field(metadata=ORDERED)
    """Names and model folders, also exported ones or an `.onnx` file in one; a folder that `finetune` wrote with
    several seeds counts as one system, the mean of its `seed-*` models. The first is compared with each other one."""

    task: TaskConfig
    """Task to score (`Ner`, `Classification`, ...), and the format of its files, as for `finetune`."""

    test: LabelledSet
    """Labelled test set, as `train` of `finetune`; nothing else reads it."""

    train: Path | None = None
    """Training set, for tasks that score what occurs in it apart from what does not: entities, by words and type."""

    bootstrap_resamples: Annotated[int, Range(100, 1_000_000)] = 2000
    """Number of times that the documents are drawn for the intervals."""

    seed: Seed = 0
    """Seed of that draw."""

    def __post_init__(self) -> None:
        """Check the names of the models, and that the task reads a training set if there is one."""
        problems = Problems("evaluate")
        if not self.models:
            problems.add("models: empty; expected at least one name with a model folder")
        for name in self.models:
            if not re.fullmatch(r"\w[\w.+-]*", name):
                problems.add(
                    f"models: found the name {name!r}; expected letters, digits and . _ + -, because it names a folder"
                )
        if self.train is not None and not self.task.evaluation.uses_training_set:
            problems.add(
                f"train: found a file, but the scores of {self.task.name} do not use the training set; expected null"
            )
        problems.raise_if_any()


@stage
def evaluate(out: Path, settings: Evaluate, inputs: Inputs) -> dict[str, Any]:
    """Score fine-tuned models on a test set, with 95 % intervals and the first model compared with each other one.

    docs/reference/evaluation.md defines the scores of each task. Intervals come from resampling documents (sentences
    where the file marks no documents) and seeds. Size and speed of each system's first model are measured on the first
    512 texts of the test set, or as many as take some seconds; pieces per word on all of it,
    punctuation apart, as in a vocabulary report. `out` gets `metrics.json`, `predictions/`, `mistakes/`, in `cards/`
    model cards with these scores, to be copied, and `draws.json`, the headline in every resample, by which `report`
    compares systems that were evaluated apart.

    Raises:
        DomainbertError: a model folder without model or for another task, an unreadable test set, a label that
            training did not have, or a number of scored entities that is not that of the file.
    """
    from domainbert.metrics.summary import Resampling
    from domainbert.metrics.table import confusion_lines, cost_lines
    from domainbert.stages.evaluated_cards import write_cards
    from domainbert.stages.weak_teachers import weak_teachers

    task, resamples = settings.task, settings.bootstrap_resamples
    folders = _model_folders(settings.models)
    scoring = open_test(task, settings.test, settings.train, inputs.labelled)
    costs = _score_models(out, folders, task, scoring, inputs)
    summary = scoring.summary(Resampling(resamples, settings.seed))
    facts = {
        "task": task.name,
        "metric": task.headline.as_json(),
        "test": set_name(settings.test),
        "gold": scoring.num_gold,
        "bootstrap": {"resamples": resamples, "unit": scoring.test.unit, "units": scoring.num_units},
    }
    summary["warnings"] += weak_teachers(settings.models, costs, task.headline)
    for name, cost in costs.items():
        summary["systems"][name] |= {**scoring.facts(name), "cost": cost}
    how = {"seed": settings.seed, "resamples": resamples, "units": scoring.num_units, "metric": task.headline.key}
    write_json(out / "draws.json", {"drawn": how, "systems": summary.pop("draws", {})}, as_is=True)
    write_json(out / "metrics.json", {**facts, **summary}, as_is=True)
    names = ", ".join(path_of(file).name for file in files_of(settings.test))
    write_cards(out / "cards", settings.models, task, names, summary["systems"])
    costs_told = cost_lines(summary["systems"], task.headline.key, task.headline.higher_is_better)
    percent = ", in percent" if scoring.headline.percent else ""
    drawn = f"{resamples:,} resamples of {scoring.num_units:,} {scoring.test.unit} and of the seeds"
    title = f"{set_name(settings.test)}: {scoring.title}{percent}; intervals from {drawn}"
    confused = confusion_lines(summary["systems"])
    print("\n".join(["", title, "", *scoring.lines(summary), *confused, "", *costs_told]))
    systems = {name: scoring.brief(one) for name, one in summary["systems"].items()}
    return {**facts, "systems": systems, "paired": summary["paired"], "warnings": summary["warnings"]}


def _score_models(
    out: Path, folders: Folders, task: TaskConfig, scoring: Scoring, inputs: Inputs
) -> dict[str, dict[str, Any]]:
    """Predict the test set with every model; measure the costs of each system's first side by side."""
    from domainbert.serving.cost import measure_costs
    from domainbert.serving.predictor import load_predictor

    measured: dict[str, tuple[Predictor[Any], ModelFolder]] = {}
    for system, seeds in folders.items():
        for seed, folder in seeds.items():
            opened = inputs.model(folder)
            predictor = load_predictor(opened, "32-true")
            _check_kind(system, folder, predictor.task.name, task)
            _check_settings(system, task.evaluation.settings_from_model_config(predictor.runtime.fields), task)
            with Progress(f"evaluate {system} {seed}", len(scoring.test.items), "texts") as progress:
                predictor.on_predicted = progress.advance
                scoring.score(system, seed, predictor, out / "predictions" / system / f"{seed}{scoring.suffix}")
                predictor.on_predicted = None
            scoring.write_mistakes(system, seed, out / "mistakes" / system / f"{seed}.jsonl")
            measured.setdefault(system, (predictor, opened))
    costs = measure_costs(list(measured.values()), scoring.test.contents)
    return {
        system: {**asdict(cost), "teachers": list(predictor.runtime.teachers)}
        for (system, (predictor, _)), cost in zip(measured.items(), costs, strict=True)
    }


def open_test(
    task: TaskConfig,
    test: LabelledSet,
    train: Path | None,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> Scoring:
    """The test set of a task, with `train` as in `Evaluate`; `DomainbertError` if a file cannot be read."""
    from domainbert.tasks.task import scoring_of

    training = None if train is None else read(task, train)
    return scoring_of(task, read(task, test), training)


def check_arguments(given: Given) -> None:
    """Check the models that are there, the test set, and that the training of each model has its labels."""
    task, models = given["task"], given["models"]
    for name, path in models.items():
        known = None
        with given.under(f"models.{name}"):
            known = _labels_known(given, name, path)
        if known is not None:
            with given.under("task"):
                task.check_labels(known)
        given.check_labelled("test", task, known)
    given.check_labelled("train", task)


def _labels_known(given: Given, name: str, path: Path) -> tuple[str, ...] | None:
    """The labels that a system knows: of its folder, which is checked, or of the training to come, if that tells."""
    maker, task = given.maker(path), given["task"]
    if maker is not None:
        if (found := given.task_of_model(path)) is not None:
            _check_kind(name, path, found, task)
        learnt = maker.get("task")
        if isinstance(learnt, TaskConfig) and learnt.reads_pairs != task.reads_pairs:
            found, wanted = (("pairs" if one.reads_pairs else "single texts") for one in (task, learnt))
            raise DomainbertError(f"task: reads {found}; expected {wanted}, which models.{name} is trained on")
        if isinstance(learnt, type(task)):
            _check_settings(name, vars(learnt), task)
        labels_of_training = maker.labels_of_training()
        return None if labels_of_training is None else task.read_labels(labels_of_training)
    for folder in _folders_of(name, path).values():
        given.check_model(f"models.{name}", folder, trained=False)
        opened = given.inputs.model(folder)
        _check_kind(name, folder, given.task_of_model(folder), task)
        _check_settings(name, task.evaluation.settings_from_model_config(opened.fields), task)
        labels = opened.labels
    return tuple(task.known_labels(labels))


def _check_kind(system: str, folder: Path, found: str | None, task: TaskConfig) -> None:
    if found != task.name:
        kind = f"is for {found}" if found else "has no trained task head"
        raise DomainbertError(f"models.{system}: {folder} {kind}; expected {task.name}")


def _check_settings(system: str, training: Mapping[str, Any], task: TaskConfig) -> None:
    """Raise `DomainbertError` where the task has other settings than the `training` of a system, as far as it tells."""
    usual = defaults_of(type(task))
    for setting in (*task.evaluation.training_settings, *task.evaluation.saved_settings):
        found = getattr(task, setting)
        if setting in task.evaluation.saved_settings and found == usual[setting]:
            continue
        if setting in training and training[setting] != found:
            raise DomainbertError(
                f"task.{setting}: found {found!r}, but {system} was trained with {training[setting]!r}, which "
                "changes the scores; expected the same"
            )


def _model_folders(models: Mapping[str, Path]) -> Folders:
    problems = Problems("models")
    folders: Folders = {}
    for name, folder in models.items():
        try:
            folders[name] = _folders_of(name, folder)
        except DomainbertError as error:
            problems.add(str(error))
    problems.raise_if_any()
    return folders


def _folders_of(name: str, folder: Path) -> dict[str, Path]:
    """The model folders of a system by the name of the seed; a single model is called "model"."""
    from domainbert.models.folder import read_seeds

    check_sealed(folder, "seed-*/config.json")  # a seed without it would be left out
    if (folder / "config.json").is_file() or (folder.suffix == ".onnx" and folder.is_file()):
        return {"model": folder}
    if (folder / "seeds.json").is_file():
        listed = [seed for value in read_seeds(folder).values() if isinstance(value, dict) for seed in value]
        if lost := [seed for seed in listed if not (folder / seed / "config.json").is_file()]:
            raise DomainbertError(
                f"models.{name}: {folder}: seeds.json lists {', '.join(lost)}; expected a model folder for each seed"
            )
    seeds = sorted((path.parent for path in folder.glob("seed-*/config.json")), key=_by_number)
    if not seeds:
        found = "not a folder" if not folder.is_dir() else "no config.json in it or in seed-*/"
        raise DomainbertError(
            f"models.{name}: {folder}: {found}; expected a model folder or an output folder of finetune"
        )
    return {path.name: path for path in seeds}


def _by_number(seed: Path) -> tuple[int, str]:
    digits = seed.name.removeprefix("seed-")
    return (int(digits) if digits.isdecimal() else 0, seed.name)
