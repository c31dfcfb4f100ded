"""The stage `evaluate`: score models on a test set, with intervals, paired comparisons and error slices."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from domainbert.base.errors import DomainbertError, Problems, counted
from domainbert.base.fields import ORDERED, Range, Seed
from domainbert.base.files import write_json
from domainbert.base.paths import ModelPath
from domainbert.base.progress import Progress
from domainbert.base.redact import redact
from domainbert.base.run_record import check_outputs_unchanged, seed_folders
from domainbert.labelled.sets import LabelledSet, files_of, path_of, read_set, set_name
from domainbert.settings.schema import defaults_of
from domainbert.stages.stage import Inputs, stage
from domainbert.tasks.config import TaskConfig

if TYPE_CHECKING:
    from domainbert.labelled.items import Labelled
    from domainbert.models.folder import ModelFolder
    from domainbert.stages.early_checks import StageArguments
    from domainbert.tasks.predictor import Predictor
    from domainbert.tasks.scoring import Scoring

SystemFolders = dict[str, dict[str, Path]]  # system name -> seed name -> model folder


@dataclass(frozen=True, kw_only=True)
class Evaluate:
    """Settings of `evaluate`."""

    models: dict[str, ModelPath] = field(metadata=ORDERED)
    """Model folders by system name; exported folders or their `.onnx` files also work. A folder that `finetune` wrote
    with several seeds is one system, the mean of its `seed-*` models. The first system is compared with each other
    system."""

    task: TaskConfig
    """Task (`Ner`, `Classification`, ...), and the format of its files, as for `finetune`."""

    test: LabelledSet
    """Labelled test set, like `train` of `finetune`. Only `evaluate` and `check` read it."""

    train: Path | None = None
    """Training set, for tasks with separate scores of seen and unseen items: entities, by words and type."""

    bootstrap_resamples: Annotated[int, Range(100, 1_000_000)] = 2000
    """Number of bootstrap resamples of the documents for the intervals."""

    seed: Seed = 0
    """Seed of the resampling."""

    def __post_init__(self) -> None:
        problems = Problems("evaluate")
        if not self.models:
            problems.add(
                "empty", where="models", expected="at least one model folder with a name, as in {small: runs/finetune}"
            )
        for name in self.models:
            if not re.fullmatch(r"\w[\w.+-]*", name) or redact(name) != name:
                expected = "a folder name of letters, digits and ._+-, and no secret"
                problems.add(where="models", found=f"the name {name!r}", expected=expected)
        if self.train is not None and not self.task.evaluation.uses_training_set:
            problems.add(f"the scores of {self.task.name} do not use the training set", where="train", expected="null")
        problems.raise_if_any()


@stage
def evaluate(out: Path, settings: Evaluate, inputs: Inputs) -> dict[str, Any]:
    """Score fine-tuned models on a test set, with 95 % intervals, and compare the first model with each other model.

    docs/reference/evaluation.md defines the scores of each task. Intervals resample documents (sentences if the file
    marks no documents) and seeds. The size and speed of the first model of each system are measured on the first 512
    texts of the test set, or fewer if they take more than some seconds; pieces per word are counted on the whole test
    set, without punctuation, as in a vocabulary report. `out` gets `metrics.json`, `predictions/`, `mistakes/`,
    `cards/` (model cards with these scores, to be copied), and `draws.json`, the headline score in every resample, with
    which `report` compares systems of different evaluations.

    Raises:
        DomainbertError: a folder has no model or a model for another task; the test set cannot be read or has a label
            that training did not have; or the number of scored entities differs from the file.
    """
    from domainbert.metrics.summary import Resampling
    from domainbert.stages.evaluated_cards import write_cards
    from domainbert.stages.warnings import weak_teachers

    task, resamples = settings.task, settings.bootstrap_resamples
    folders = _model_folders(settings.models)
    scoring = read_test_set(task, settings.test, settings.train, inputs.labelled)
    costs = _score_models(out, folders, task, scoring, inputs)
    summary = scoring.summary(Resampling(resamples, settings.seed))
    draws, systems = summary.pop("draws", {}), summary["systems"]
    summary["warnings"] += weak_teachers(settings.models, costs, task.headline)
    for name, cost in costs.items():
        systems[name] |= {**scoring.facts(name), "cost": cost}
    facts = {
        "task": task.name,
        "metric": task.headline.as_json(),
        "test": set_name(settings.test),
        "gold": scoring.num_gold,
        "bootstrap": {"resamples": resamples, "unit": scoring.test.unit, "units": scoring.num_units},
    }

    drawn = {"seed": settings.seed, "resamples": resamples, "units": scoring.num_units, "metric": task.headline.key}
    write_json(out / "draws.json", {"drawn": drawn, "systems": draws})
    write_json(out / "metrics.json", {**facts, **summary})
    test_files = ", ".join(path_of(file).name for file in files_of(settings.test))
    write_cards(out / "cards", settings.models, task, test_files, systems)
    print("\n".join(_score_lines(settings, scoring, summary)))
    manifest_scores = {name: scoring.manifest_scores(scores) for name, scores in systems.items()}
    return {**facts, "systems": manifest_scores, "paired": summary["paired"], "warnings": summary["warnings"]}


def _score_lines(settings: Evaluate, scoring: Scoring, summary: dict[str, Any]) -> list[str]:
    from domainbert.metrics.table import confusion_lines, cost_lines

    headline, systems = settings.task.headline, summary["systems"]
    percent = ", in percent" if scoring.headline.percent else ""
    resampled = f"{settings.bootstrap_resamples:,} resamples of {counted(scoring.num_units, scoring.test.unit)}"
    resampled += " and of the seeds" if any(scores["seeds"] > 1 for scores in systems.values()) else ""
    title = f"{set_name(settings.test)}: {scoring.title}{percent}; intervals from {resampled}"
    costs = cost_lines(systems, headline.key, headline.higher_is_better)
    return ["", title, "", *scoring.lines(summary), *confusion_lines(systems), "", *costs]


def _score_models(
    out: Path, folders: SystemFolders, task: TaskConfig, scoring: Scoring, inputs: Inputs
) -> dict[str, dict[str, Any]]:
    """Write predictions and mistakes; return the costs of each system, measured side by side on its first model."""
    from domainbert.serving.cost import measure_costs
    from domainbert.serving.predictor import load_predictor

    measured: dict[str, tuple[Predictor[Any], ModelFolder]] = {}
    for system, seeds in folders.items():
        for seed, folder in seeds.items():
            opened = inputs.model(folder)
            predictor = load_predictor(opened, "32-true")
            _check_task_name(system, folder, predictor.task.name, task)
            _check_settings(system, task.evaluation.settings_from_model_config(predictor.runtime.fields), task)
            with Progress(f"evaluate {system} {seed}", scoring.prepare(predictor), "texts") as progress:
                predictor.on_predicted = progress.advance
                scoring.add_model(system, seed, predictor, out / "predictions" / system / f"{seed}{scoring.suffix}")
                predictor.on_predicted = None
            scoring.write_mistakes(system, seed, out / "mistakes" / system / f"{seed}.jsonl")
            measured.setdefault(system, (predictor, opened))  # the first model of the system
    costs = measure_costs(list(measured.values()), scoring.test.contents)
    return {
        system: {**asdict(cost), "teachers": list(predictor.runtime.teachers)}
        for (system, (predictor, _)), cost in zip(measured.items(), costs, strict=True)
    }


def read_test_set(
    task: TaskConfig,
    test: LabelledSet,
    train: Path | None,
    read: Callable[[TaskConfig, LabelledSet], Labelled[Any]] = read_set,
) -> Scoring:
    """Return the scoring of a test set.

    `train` is the training set, for tasks that score seen and unseen items separately; `read` reads a labelled set.
    """
    from domainbert.tasks.task import build_scoring

    training = None if train is None else read(task, train)
    return build_scoring(task, read(task, test), training)


def check_arguments(arguments: StageArguments) -> None:
    """Check the existing models, the test set, and that the labels of the test set are labels of each model."""
    task, models = arguments["task"], arguments["models"]
    for name, path in models.items():
        labels = None
        with arguments.record_problems(f"models.{name}"):
            labels = _labels_of_model(arguments, name, path)
        if labels is not None:
            with arguments.record_problems("task"):
                task.check_labels(labels)
        arguments.check_labelled("test", task, labels)
    arguments.check_labelled("train", task)


def _labels_of_model(arguments: StageArguments, name: str, path: Path) -> tuple[str, ...] | None:
    """Return the labels of a system; None if a pending training has yet to determine them.

    Raise `DomainbertError` if the system is for another task, or was trained with other settings of the task.
    """
    pending, task = arguments.pending_stage(path), arguments["task"]
    if pending is not None:  # check the settings of the training
        if (task_name := arguments.task_of_model(path)) is not None:
            _check_task_name(name, path, task_name, task)
        training = pending.get("task")
        if isinstance(training, TaskConfig) and training.reads_pairs != task.reads_pairs:
            found, step = ("pairs", "remove") if task.reads_pairs else ("single texts", "set")
            raise DomainbertError(
                f"reads {found}, unlike models.{name}", where="task", hint=f"{step} format.text_pair_key"
            )
        if isinstance(training, type(task)):
            _check_settings(name, vars(training), task)
        training_labels = pending.training_labels()
        return None if training_labels is None else task.read_labels(training_labels)
    for folder in _seed_folders(name, path).values():
        arguments.check_model(f"models.{name}", folder, trained=False)
        opened = arguments.inputs.model(folder)
        _check_task_name(name, folder, arguments.task_of_model(folder), task)
        _check_settings(name, task.evaluation.settings_from_model_config(opened.fields), task)
        labels = opened.labels  # all seeds have the same
    return tuple(task.known_labels(labels))


def _check_task_name(system: str, folder: Path, task_name: str | None, task: TaskConfig) -> None:
    if task_name != task.name:
        found = f"is for {task_name}" if task_name else "has no trained task head"
        raise DomainbertError(f"'{folder}' {found}", where=f"models.{system}", expected=f"a model for {task.name}")


def _check_settings(system: str, training: Mapping[str, Any], task: TaskConfig) -> None:
    """Raise `DomainbertError` if a setting that affects the scores differs from the training of the system."""
    defaults = defaults_of(type(task))
    for setting in (*task.evaluation.training_settings, *task.evaluation.saved_settings):
        value = getattr(task, setting)
        if setting in task.evaluation.saved_settings and value == defaults[setting]:
            continue  # not set by the user: the saved value of the model counts
        if setting in training and training[setting] != value:
            raise DomainbertError(
                where=f"task.{setting}",
                found=f"{value!r}, but models.{system} was trained with {training[setting]!r}",
                expected="the same value, because the scores depend on it",
            )


def _model_folders(models: Mapping[str, Path]) -> SystemFolders:
    problems = Problems("models")
    folders: SystemFolders = {}
    for name, folder in models.items():
        with problems.collecting():
            folders[name] = _seed_folders(name, folder)
    problems.raise_if_any()
    return folders


def _seed_folders(name: str, folder: Path) -> dict[str, Path]:
    from domainbert.models.folder import read_seeds

    check_outputs_unchanged(folder, "seed-*/config.json")  # otherwise an unfinished seed would be left out
    if (folder / "config.json").is_file() or (folder.suffix == ".onnx" and folder.is_file()):
        return {"model": folder}
    if (folder / "seeds.json").is_file():
        # besides plain values, `seeds.json` has the score of each seed: {"validation_f1": {"seed-1": 0.81, ...}}
        scores_by_metric = [value for value in read_seeds(folder).values() if isinstance(value, dict)]
        seeds = [seed for scores in scores_by_metric for seed in scores]
        missing = [seed for seed in seeds if not (folder / seed / "config.json").is_file()]
        if missing:
            raise DomainbertError(
                f"{folder / 'seeds.json'} lists {', '.join(missing)}, but these folders have no config.json",
                where=f"models.{name}",
                hint=f"restore them, or run the stage that wrote {folder} again",
            )
    trained = [path for path in seed_folders(folder) if (path / "config.json").is_file()]
    if not trained:
        found = "is not a folder" if not folder.is_dir() else "has no config.json, and no seed-* with one"
        raise DomainbertError(
            f"'{folder}' {found}", where=f"models.{name}", expected="a model folder or the output of finetune"
        )
    return {path.name: path for path in trained}
