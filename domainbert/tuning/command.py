"""Run a worker on a validated search and print the results: the command `domainbert tune`."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.base.files import folder_lock, report_full_disk
from domainbert.labelled.folds import Fold, split_folds, write_folds
from domainbert.labelled.sets import LabelledSet
from domainbert.runner.run_command import resume_command
from domainbert.runner.stage_command import options_help
from domainbert.settings.command_line import ParsedArguments
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.search import Search, limit_to_grid, read_search, warn_unfair_comparison

FLAGS = {"extend": "none", "allow_import": "one"}
HELP = options_help(
    TuneConfig,
    "domainbert tune -c FILE [--extend] [--key value]...",
    {
        "--extend": "resume a study with another space or other settings",
        "--vars.NAME TEXT": "set a variable of the YAML; the environment variable DOMAINBERT_NAME does the same",
        "--allow-import PKG": "allow class_path to name classes of your packages (PKG,PKG), which are imported",
    },
    inspect.getdoc(TuneConfig) or "",
)


def perform(typed: ParsedArguments) -> int:
    """Run trials until the study is complete, print the results and return exit code 0."""
    if typed.words or not typed.files:
        raise DomainbertError("expected a YAML file after -c: domainbert tune -c FILE", where="tune")
    search = limit_to_grid(read_search([Path(file) for file in typed.files], typed.options))
    warn_unfair_comparison(search)

    # imported after the validation of the YAML, because Optuna is slow to import
    from domainbert.tuning.results import (
        best_trial_warnings,
        check_folder,
        check_study,
        closing_lines,
        draw_pictures,
        write_results,
    )
    from domainbert.tuning.study import open_study
    from domainbert.tuning.trials import open_storage
    from domainbert.tuning.worker import Worker

    config, out = search.config, search.out
    with report_full_disk(out), _add_resume_command(search, typed):
        fold_contents, train = _split_folds(search)
        check_folder(config, out)
        storage = open_storage(config.storage, out)
        study = open_study(config, storage, search.terms, extend="extend" in typed.flags)
        check_study(study, out)
        with folder_lock(out):
            folds = write_folds(fold_contents, train, out / "folds")
        Worker(search, study, storage, folds).run()
    summary = write_results(study, search)
    lines = [*closing_lines(summary, out), *draw_pictures(study, search), *best_trial_warnings(study, search)]
    if summary["best"] is None and summary["failed"]:
        raise DomainbertError("\n  ".join([*lines, f"see the errors in {out / 'trials.csv'}"]))
    print("\n".join(lines))
    return 0


def _split_folds(search: Search) -> tuple[list[Fold], LabelledSet]:
    config = search.config
    if config.k_folds is None:
        return [], []
    arguments = search.space.first_settings().arguments
    train: LabelledSet = arguments["train"]
    return split_folds(train, arguments["task"], config.k_folds, config.seed), train


@contextmanager
def _add_resume_command(search: Search, typed: ParsedArguments) -> Iterator[None]:
    from optuna.exceptions import StorageInternalError

    from domainbert.tuning.trials import failure_reason

    command = resume_command("tune", typed, search.variables)
    try:
        yield
    except TrainingStopped as stop:
        raise TrainingStopped(f"study '{search.config.study}': {stop}; to resume: {command}") from stop
    except StorageInternalError as error:
        raise DomainbertError(
            f"connection lost ({failure_reason(error)})", where="storage", hint=f"to resume: {command}"
        ) from error
