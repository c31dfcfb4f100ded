"""Checks of the settings of a stage, and of the files they name, before any stage has run. Free of torch.

A stage's module may define `check_arguments(given: Given) -> None`, which tries what can be tried without the outputs
of earlier stages; `domainbert <stage>`, `run`, `run --dry-run` and `tune` call it before the first stage runs.

Labelled files are read as a whole, so that an error in their last line is told, too: about 0.3 s for a megabyte.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import is_installed
from domainbert.encoders.config import EncoderConfig, check_length
from domainbert.tasks.config import TaskConfig, folder_name, task_kind
from domainbert.tasks.labelled import FoundLabel, check_labels_known, find_labels
from domainbert.training.loggers import need_logger

if TYPE_CHECKING:
    from domainbert.models.folder import ModelFolder


@dataclass
class Given:
    """Arguments of a stage before it runs, and the problems that were found in them."""

    arguments: Mapping[str, Any]
    """All of them but `out`, defaults included."""

    makers: Mapping[str, Given] = field(default_factory=dict)
    """Arguments of the earlier stages that have yet to run, by the paths in their folders that are named here."""

    problems: list[tuple[str, str]] = field(default_factory=list)
    """Dotted keys, and the problems at them."""

    def __getitem__(self, name: str) -> Any:
        return self.arguments[name]

    def get(self, name: str) -> Any:
        """An argument; None if the stage has none of that name."""
        return self.arguments.get(name)

    def maker(self, path: Path) -> Given | None:
        """Arguments of the earlier stage that has yet to write a path; None if the path is there already."""
        return self.makers.get(str(path))

    def there(self, path: Path | None) -> bool:
        """True if an argument names something that no earlier stage has yet to write."""
        return path is not None and self.maker(path) is None

    @contextmanager
    def under(self, key: str) -> Iterator[None]:
        """Note what a `DomainbertError` says, as problems of the argument that they begin with, or of that at `key`.

        An empty key stands for all arguments together.
        """
        try:
            yield
        except DomainbertError as error:
            for problem in error.problems:
                begin, _, rest = problem.partition(": ")
                named = (begin == key or begin in self.arguments) and begin != str(
                    self.get(begin)
                )  # no file of this name
                self.problems.append((begin, rest) if named else (key, problem))


def check_loggers(given: Given) -> None:
    """Note loggers that are not installed."""
    for name in given["loggers"]:
        with given.under("loggers"):
            need_logger(name)


def check_installed(given: Given, key: str, packages: Sequence[str], extra: str) -> None:
    """Note missing packages that a setting needs, or that a stage needs where the key is empty."""
    missing = [name for name in packages if not is_installed(name)]
    if missing:
        given.problems.append((key, f"needs {', '.join(missing)}; pip install 'domainbert[{extra}]'"))


def check_corpus(given: Given, key: str) -> None:
    """Note missing packages that a corpus needs."""
    corpus = given[key]
    if corpus is not None and corpus.near_duplicate_threshold is not None:
        check_installed(given, f"{key}.near_duplicate_threshold", ["datasketch"], "near-duplicates")


def check_model(given: Given, key: str, path: Path | None, trained: bool = True) -> None:
    """Note a model folder whose family, labels or tokenizer cannot be read, or that cannot learn.

    Args:
        given: the stage's arguments.
        key: of the one that names the folder.
        path: the folder; nothing is checked of one that an earlier stage has yet to write, or of None.
        trained: whether it has to have weights, which an exported folder has not.
    """
    if path is None or not given.there(path):
        return
    with given.under(key):
        from domainbert.models.folder import need_weights, open_model

        folder = open_model(path)
        if trained:
            need_weights(folder)
        folder.tokenizer()


def check_task(given: Given, key: str, path: Path, wanted: str | None = None) -> None:
    """Note a model that has no head for a task, or one for another task.

    Args:
        given: the stage's arguments.
        key: of the one that names the folder.
        path: the folder, there already or that of a stage that has yet to run.
        wanted: the name of the task; None takes any.
    """
    with given.under(key):
        found = task_of_model(given, path)
        if found == "":
            raise DomainbertError(f"{path} has no head for a task; expected one that finetune wrote")
        if found is not None and wanted is not None and found != wanted:
            raise DomainbertError(f"{path} is for {found}; expected {wanted}")


def task_of_model(given: Given, path: Path) -> str | None:
    """Name of the task that a model is for, empty for one without a head of such; None where that is not told."""
    maker = given.maker(path)
    if maker is None:
        folder = opened(path)
        kind = None if folder is None else task_kind(folder.head, folder.fields)
        return None if folder is None else folder_name(kind) if kind is not None else ""
    task, model = maker.get("task"), maker.get("model")
    if isinstance(task, TaskConfig):
        return task.name
    if task is None and "prepared" in maker.arguments:  # it learns from text without labels
        return ""
    return task_of_model(maker, model) if task is None and model is not None else None


def check_tokenizer(given: Given, key: str, path: Path | None) -> None:
    """Note a tokenizer folder that cannot be read."""
    if path is not None and given.there(path):
        with given.under(key):
            from domainbert.tokenization.load import load_tokenizer

            load_tokenizer(path)


def check_max_length(given: Given, encoder: EncoderConfig | None) -> None:
    """Note a window or row that is longer than the encoder's positions, where its architecture is known."""
    with given.under("max_length"):
        check_length(given["max_length"], encoder)


def encoder_of(given: Given, path: Path | None) -> EncoderConfig | None:
    """The architecture of a model folder that an argument names, as far as YAML and files tell it."""
    if path is None:
        return None
    maker = given.maker(path)
    if maker is None:
        folder = opened(path)
        return None if folder is None else folder.config
    if "student" in maker.arguments:  # it is computed with the teacher
        return None
    own: EncoderConfig | None = maker.get("encoder")
    return own or encoder_of(maker, maker.get("init_from")) or encoder_of(maker, maker.get("model"))


def opened(path: Path) -> ModelFolder | None:
    """Facts of a model folder; None where `check_model` has said that it cannot be read."""
    from domainbert.models.folder import open_model

    try:
        return open_model(path)
    except DomainbertError:
        return None


def check_training_files(given: Given) -> None:
    """Note errors in a training or validation set, and labels of validation that training does not have."""
    known = labels_of_training(given)
    check_labelled(given, "train", given["task"], given["train"])
    check_labelled(given, "validation", given["task"], given["validation"], known)


def labels_of_training(given: Given) -> tuple[str, ...] | None:
    """The labels that a stage's models know, from its training set; None where that is not told yet."""
    if given.get("train") is None or given.get("task") is None or not given.there(given["train"]):
        return None
    labels = _read(given["task"], given["train"]).labels
    return None if labels is None else tuple(labels)


def check_labelled(
    given: Given, key: str, task: TaskConfig | None, path: Path | None, known: tuple[str, ...] | None = None
) -> None:
    """Note errors in a labelled file, and labels that training does not have.

    Args:
        given: the stage's arguments.
        key: of the one that names the file.
        task: how it is read; None leaves it unread.
        path: the file; nothing is checked of one that an earlier stage has yet to write, or of None.
        known: the labels of training, where these are known.
    """
    if task is None or path is None or not given.there(path):
        return
    file = _read(task, path)
    problems = list(file.problems)
    if file.labels is not None and known is not None:
        try:
            check_labels_known(file.labels, known, path)
        except DomainbertError as error:
            problems = error.problems
    given.problems += [(key, problem) for problem in problems]


@dataclass(frozen=True)
class _File:
    """Labels and problems of a labelled file, without its items, which are far larger than the file."""

    labels: Mapping[str, FoundLabel] | None
    """None where it has errors."""
    problems: tuple[str, ...] = ()


_read_before: dict[tuple[Any, ...], _File] = {}  # the same files serve several stages, and all points of a search


def _read(task: TaskConfig, path: Path) -> _File:
    """A labelled file, read once as long as it does not change, whatever its labels are compared with."""
    status = path.stat() if path.exists() else None
    key = (type(task), repr(task.reading), path, status and (status.st_size, status.st_mtime_ns))
    if key not in _read_before:
        with _without_garbage_collection():
            _read_before[key] = _read_now(task, path)
    return _read_before[key]


def _read_now(task: TaskConfig, path: Path) -> _File:
    try:
        return _File(find_labels(task.read(path).items))
    except DomainbertError as error:
        return _File(None, tuple(error.problems))


@contextmanager
def _without_garbage_collection() -> Iterator[None]:
    """Keep the collector from searching millions of new lists, which takes longer than reading them."""
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if collects:
            gc.enable()
