"""`domainbert tune`: runs a worker on a checked search and returns the results."""

from __future__ import annotations

import shlex
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from domainbert.base.errors import DomainbertError, TrainingStopped
from domainbert.corpus.files import format_suffix
from domainbert.runner.stage_command import options_help
from domainbert.settings.choices import allow_import_words
from domainbert.settings.command_line import Typed
from domainbert.tuning.config import TuneConfig
from domainbert.tuning.folds import FoldTexts, split_folds, write_folds
from domainbert.tuning.live_table import LiveTable
from domainbert.tuning.locks import file_lock, study_lock
from domainbert.tuning.patience import reason
from domainbert.tuning.results import check_folder, closing_lines, write_results
from domainbert.tuning.search import Search, warn_of_unfairness, within_grid
from domainbert.tuning.study import open_study
from domainbert.tuning.trial_plan import make_plan

if TYPE_CHECKING:
    from optuna import Study

    from domainbert.tuning.worker import Surroundings

_USAGE = "domainbert tune -c FILE [--extend] [--key value]..."
_LOCK = ".lock"


def tune_help() -> str:
    """Text of `domainbert tune --help`."""
    flags = {
        "--extend": "resume a study whose space or settings have changed since",
        "--vars.NAME TEXT": "set a variable of the YAML; so does the environment variable DOMAINBERT_NAME",
    }
    return options_help(TuneConfig, _USAGE, flags)


def run_search(search: Search, typed: Typed) -> str:
    """Work on the study until it is complete, and return the lines to print at the end.

    Raises:
        DomainbertError: the study cannot be resumed, or no trial was completed.
        TrainingStopped: a signal came; the running trials are queued again.
    """
    from domainbert.tuning.worker import Worker

    search = within_grid(search)
    warn_of_unfairness(search)
    with _told_how_to_go_on(search, typed):
        around = _surroundings(search, extend="extend" in typed.flags)
        Worker(search.config, search.space, around).run()
    around.table.close()
    return _close(search, around.study)


def _surroundings(search: Search, extend: bool) -> Surroundings:
    """Open the storage, join the study, write the folds."""
    from domainbert.tuning.storages import open_storage
    from domainbert.tuning.worker import Surroundings

    config, out, table = search.config, search.out, LiveTable(search.config)
    texts, suffix = _fold_texts(search)
    check_folder(config, out)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        storage = open_storage(config.storage, out)
        study = open_study(config, storage, search.terms, extend)
    with file_lock(out / _LOCK):
        folds = write_folds(texts, suffix, out / "folds")

    def recorded() -> None:
        with file_lock(out / _LOCK):
            write_results(study, config, search.space, out)

    plan = partial(make_plan, search.space.stage, config.objective, folds, headline=search.headline)
    lock = partial(study_lock, config.storage, storage, config.study or "", out)
    return Surroundings(study, out, plan, lock, table, recorded)


def _fold_texts(search: Search) -> tuple[list[FoldTexts], str]:
    config = search.config
    if config.k_folds is None:
        return [], ""
    arguments = search.space.settings(search.space.first()).arguments
    train: Path = arguments["train"]
    return split_folds(train, arguments["task"], config.k_folds, config.seed), format_suffix(train)


@contextmanager
def _told_how_to_go_on(search: Search, typed: Typed) -> Iterator[None]:
    from optuna.exceptions import StorageInternalError

    try:
        yield
    except TrainingStopped as stop:
        raise TrainingStopped(f"study {search.config.study}: {stop}; to resume: {_same_again(typed)}") from stop
    except StorageInternalError as error:
        raise DomainbertError(f"storage: was lost ({reason(error)}); to resume: {_same_again(typed)}") from error


def _close(search: Search, study: Study) -> str:
    from domainbert.tuning.pictures import draw_pictures

    with file_lock(search.out / _LOCK):
        summary = write_results(study, search.config, search.space, search.out)
        said = draw_pictures(study, search.config, search.out / "pictures")
    lines = [*closing_lines(summary, search.out), *said]
    if summary["best"] is None and summary["failed"]:
        raise DomainbertError("\n  ".join([*lines, f"{search.out / 'trials.csv'} has the errors"]))
    return "\n".join(lines)


def _same_again(typed: Typed) -> str:
    """The command that resumes."""
    words = [word for file in typed.files for word in ("-c", file)]
    options = [f"--{name}={value}" for name, value in typed.options]
    return shlex.join(["domainbert", "tune", *words, *options, *allow_import_words()])
