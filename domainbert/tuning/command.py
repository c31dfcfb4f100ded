"""`domainbert tune`: checks the whole of a search before its first trial, runs a worker, hands back results."""

from __future__ import annotations

import fcntl
import inspect
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from domainbert.errors import DomainbertError, Problems, TrainingStopped
from domainbert.objectives.task_config import TaskConfig
from domainbert.redact import redact
from domainbert.runner.stage_command import options_help
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.choices import allow_import_words
from domainbert.settings.command_line import Typed
from domainbert.settings.reader import Settings, as_plain, read_settings
from domainbert.settings.tree import as_mapping, nearest, read_config
from domainbert.settings.variables import read_variables, substitute
from domainbert.settings.yaml_files import Node
from domainbert.tuning.config import COST, TuneConfig
from domainbert.tuning.folds import Fold, write_folds
from domainbert.tuning.live_table import LiveTable
from domainbert.tuning.methods import enqueued_problems, grid_size, method_problems
from domainbert.tuning.results import closing_lines, write_results
from domainbert.tuning.space import Space, read_space
from domainbert.tuning.study import open_study
from domainbert.tuning.trial_process import Step, stage_step

_USAGE = "domainbert tune -c FILE [--extend] [--key value]..."
_LOCK = ".lock"


@dataclass(frozen=True)
class Search:
    """A checked search."""

    config: TuneConfig
    space: Space
    out: Path


def tune_help() -> str:
    """What `domainbert tune --help` prints."""
    flags = {"--extend": "go on with a study whose space or settings have changed since"}
    return options_help(TuneConfig, _USAGE, flags)


def read_search(files: Sequence[Path], options: Sequence[tuple[str, str]]) -> Search:
    """Read a search and check it: its own keys, the stage's settings, and every value that may be tried.

    Args:
        files: YAML files; later wins.
        options: `(dotted.key, text)` that override them; `settings.optim.lr` and `vars.data`, too. Keys of the space
            hold dots themselves, and stand in the YAML only.

    Raises:
        DomainbertError: with every problem.
    """
    problems = Problems(", ".join(map(str, files)) or "command line")
    tree = read_config(files, options, "command line")
    if "settings" in tree.value:
        tree = replace(tree, value={**tree.value, "settings": as_mapping(tree.value["settings"])})
    tree = substitute(tree, read_variables(tree, os.environ, problems), problems)
    problems.raise_if_any()
    rest = {key: node for key, node in tree.value.items() if key not in ("out", "vars")}
    settings = read_settings(TuneConfig, replace(tree, value=rest), problems)
    out = tree.value.get("out")
    if out is None or not isinstance(out.value, str):
        problems.add(f"{(out or tree).where}: out: expected the folder of the study")
    problems.raise_if_any()
    assert out is not None
    config = _config(settings, tree, Path(out.value))
    return _checked(config, Path(out.value), replace(tree, value=rest), problems)


def _config(settings: Settings, tree: Node, out: Path) -> TuneConfig:
    try:
        config = TuneConfig(**settings.arguments)
    except DomainbertError as error:
        raise DomainbertError(f"{tree.where}: {error}") from error
    return replace(config, study=config.study or out.name)


def _checked(config: TuneConfig, out: Path, tree: Node, problems: Problems) -> Search:
    if config.stage not in STAGES:
        raise DomainbertError(
            f"{tree.at(['stage']).where}: stage: no stage '{config.stage}'; {nearest(config.stage, list(STAGES))}"
        )
    stage, base = load_stage(config.stage), tree.value["settings"]
    if "test" in inspect.signature(stage.function).parameters:
        raise DomainbertError(
            f"{tree.at(['stage']).where}: stage: {stage.name} opens the test set; a search never does"
        )
    if "out" in base.value:
        problems.add(f"{base.value['out'].where}: settings.out: trials have folders of their own; expected no out here")
    space = read_space(stage, base, config.space, tree.value["space"], problems)
    problems.raise_if_any()
    enqueued_problems(space, config.enqueue, tree.at(["enqueue"]), problems)
    method_problems(config, space, tree.where, problems)
    problems.raise_if_any()
    _check_stage(config, space.settings(space.first()), tree)
    if config.sampler == "grid":
        config = replace(config, trials=min(config.trials, grid_size(space)))
    return Search(config, space, out)


def _check_stage(config: TuneConfig, settings: Settings, tree: Node) -> None:
    """What the search asks of the stage."""
    costs = [name for name in config.objective if name.startswith(COST)]
    if costs and config.stage != "finetune":
        raise DomainbertError(
            f"{tree.at(['objective']).where}: objective: {costs[0]} is of finetune only; expected validation/..."
        )
    if config.prunes and "jsonl" not in settings.plain.get("loggers", ["jsonl"]):
        raise DomainbertError(
            f"{tree.where}: pruner: {config.pruner} follows metrics.jsonl; expected jsonl among settings.loggers"
        )
    if config.k_folds and not isinstance(settings.arguments.get("task"), TaskConfig):
        raise DomainbertError(
            f"{tree.at(['k_folds']).where}: k_folds: {config.stage} has no labelled files; expected finetune"
        )


def run_search(search: Search, typed: Typed) -> str:
    """Work on the study until it is complete, and return what is to be said at the end.

    Raises:
        DomainbertError: the study cannot be gone on with, or no trial was completed.
        TrainingStopped: a signal; what ran is queued again.
    """
    from optuna.exceptions import StorageInternalError

    from domainbert.tuning.storages import open_storage
    from domainbert.tuning.worker import Surroundings, Worker

    config, out = search.config, search.out
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = open_storage(config.storage, out)
        study = open_study(config, storage, _terms(search), extend="extend" in typed.flags)
    out.mkdir(parents=True, exist_ok=True)
    folds = _write_folds(search)
    table = LiveTable(config)

    def recorded() -> None:
        with _lock(out / _LOCK):
            write_results(study, config, search.space, out)

    around = Surroundings(
        study, out, lambda *trial: _plan(search, folds, *trial), lambda: _storage_lock(search), table, recorded
    )
    try:
        Worker(config, search.space, around).run()
    except TrainingStopped as stop:
        raise TrainingStopped(f"study {config.study}: {stop}; to go on: {_same_again(typed)}") from stop
    except StorageInternalError as error:
        reason = str(error.__cause__ or error).strip().partition("\n")[0]
        raise DomainbertError(f"storage: was lost ({reason}); to go on: {_same_again(typed)}") from error
    table.close()
    return _close(search, study)


def _close(search: Search, study: Any) -> str:
    from domainbert.tuning.pictures import draw_pictures

    with _lock(search.out / _LOCK):
        summary = write_results(study, search.config, search.space, search.out)
        said = draw_pictures(study, search.config, search.out / "pictures")
    lines = [*closing_lines(summary, search.out), *said]
    if summary["best"] is None and summary["failed"]:
        raise DomainbertError("\n  ".join([*lines, f"{search.out / 'trials.csv'} has the errors"]))
    return "\n".join(lines)


def _plan(
    search: Search, folds: Sequence[Fold], number: int, values: dict[str, Any], folder: Path
) -> tuple[list[Step], list[Path], Path]:
    """The processes of a trial: the stage, once or for each fold, and the measurement of what its model costs."""
    stage, plain = search.config.stage, search.space.settings(values).plain
    changes: Mapping[str, Mapping[str, Any]] = {"run": {}}
    if folds:
        changes = {
            f"fold-{position}": {"train": str(fold.train), "validation": str(fold.validation)}
            for position, fold in enumerate(folds, 1)
        }
    steps = [stage_step(stage, {**plain, **change}, folder, name) for name, change in changes.items()]
    outs, cost_file = [step.out for step in steps], folder / "cost.json"
    if any(name.startswith(COST) for name in search.config.objective):
        words = (sys.executable, "-m", "domainbert.tuning.measure", str(outs[0].with_suffix(".yaml")), str(cost_file))
        steps.append(Step(words, cost_file))
    return steps, outs, cost_file


def _write_folds(search: Search) -> list[Fold]:
    config = search.config
    if config.k_folds is None:
        return []
    arguments = search.space.settings(search.space.first()).arguments
    with _lock(search.out / _LOCK):
        return write_folds(arguments["train"], arguments["task"], config.k_folds, config.seed, search.out / "folds")


def _terms(search: Search) -> dict[str, Any]:
    """What trials are made of: it has to be the same for all of a study."""
    config = search.config
    return {
        "stage": config.stage,
        "objective": dict(zip(config.objective, config.directions, strict=True)),
        "k_folds": config.k_folds,
        "space": {key: as_plain(parameter) for key, parameter in config.space.items()},
        "enqueue": list(config.enqueue),
        "settings": redact(search.space.base.plain()),
    }


@contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One process of this machine at a time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a", encoding="utf-8") as file:
        fcntl.lockf(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _storage_lock(search: Search) -> Iterator[None]:
    """SQLite does not lock what is read: two workers could take the same trial."""
    storage = search.config.storage
    if storage.kind != "sqlite":
        yield
        return
    with _lock(Path(f"{storage.path or search.out / 'study.db'}{_LOCK}")):
        yield


def _same_again(typed: Typed) -> str:
    """The command that goes on."""
    words = [word for file in typed.files for word in ("-c", file)]
    options = [f"--{name}={value}" for name, value in typed.options]
    return shlex.join(["domainbert", "tune", *words, *options, *allow_import_words()])
