"""The inputs of stages: model folders, tokenizers and labelled files, each opened and validated once. Free of torch."""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.freshness import Freshness
from domainbert.base.hashes import quick_look
from domainbert.base.paths import resolve_path
from domainbert.labelled.items import FoundLabel, Labelled, find_labels
from domainbert.labelled.sets import LabelledSet, Single, paths_of, read_file, read_set

if TYPE_CHECKING:
    from domainbert.models.folder import ModelFolder
    from domainbert.tasks.config import TaskConfig
    from domainbert.tokenization.load import DomainTokenizer

_KEPT_BYTES = 16_000_000  # of labelled files; items of CoNLL take 45 times as much memory


class Inputs:
    """Opens the inputs of one or more stages, each once as long as its files stay as they are.

    The checks before the first stage and the stages themselves share one object, so that a stage continues with what
    its check has validated. An input that cannot be opened raises the same `DomainbertError` at each request.
    """

    def __init__(self) -> None:
        self.facts: Callable[[], Freshness] = partial(Freshness, {})
        """Everything that decides the output of the stage: its settings and the contents of its inputs."""
        self._opened: dict[tuple[Any, ...], tuple[list[Any], Any]] = {}

    def of_stage(self, facts: Callable[[], Freshness]) -> Inputs:
        """The same inputs for a stage that makes its output from these facts, computed if they are needed."""
        found = copy.copy(self)
        found.facts = facts
        return found

    def model(self, path: Path) -> ModelFolder:
        """The facts of a model folder, see `open_model`; its tokenizer is read once, too."""
        from domainbert.models.folder import open_model

        resolved = resolve_path(path)
        folder = resolved.parent if resolved.suffix == ".onnx" else resolved
        return self._once(("model", str(path)), [folder], lambda: open_model(path))

    def tokenizer(self, path: Path) -> DomainTokenizer:
        """The tokenizer of a folder, see `load_tokenizer`."""
        from domainbert.tokenization.load import load_tokenizer

        return self._once(("tokenizer", str(path)), [path], lambda: load_tokenizer(path))

    def labelled(self, task: TaskConfig, given: LabelledSet) -> Labelled[Any]:
        """The items of a labelled set, see `read_set`.

        Files of up to 16 MB together are kept in memory; the ones requested longest ago are read again if needed.
        """
        return read_set(task, given, self._file)

    def labels(self, task: TaskConfig, file: Single) -> Mapping[str, FoundLabel]:
        """The labels in a labelled file, see `find_labels`."""
        key = ("labels", *_reading(task, file))
        return self._once(key, _read_from(task, file), lambda: find_labels(self._file(task, file).items))

    def forget_items(self) -> None:
        """Free the memory of labelled files; their labels stay known."""
        for key in [key for key in self._opened if key[0] == "labelled"]:
            del self._opened[key]

    def _file(self, task: TaskConfig, file: Single) -> Labelled[Any]:
        def read() -> Labelled[Any]:
            with _without_gc():
                return read_file(task, file)

        key = ("labelled", *_reading(task, file))
        found: Labelled[Any] = self._once(key, _read_from(task, file), read)
        self._opened[key] = self._opened.pop(key)  # the last one requested comes last
        self._forget_labelled()
        return found

    def _once(self, key: tuple[Any, ...], paths: list[Path], open_it: Callable[[], Any]) -> Any:
        stamps = [stamp for path in paths for stamp in _stamps(path)]
        known = self._opened.get(key)
        if known is None or known[0] != stamps:
            try:
                result = open_it()
            except DomainbertError as error:
                result = error
            known = self._opened[key] = (stamps, result)
        if isinstance(known[1], DomainbertError):
            raise known[1].with_traceback(None)
        return known[1]

    def _forget_labelled(self) -> None:
        total = 0
        for key in [key for key in reversed(self._opened) if key[0] == "labelled"]:
            total += sum(stamp[1] for stamp in self._opened[key][0])
            if total > _KEPT_BYTES:
                del self._opened[key]


def _reading(task: TaskConfig, file: Single) -> tuple[Any, ...]:
    return type(task), repr(task.reading), repr(file)


def _read_from(task: TaskConfig, file: Single) -> list[Path]:
    names = getattr(task.reading, "label_names_file", None)
    return [*paths_of(file), *([Path(names)] if names else [])]


def _stamps(path: Path) -> list[Any]:
    """Names and quick looks of a file, or of the files in a folder, in its seeds and in the splits of a data set."""
    below = (*path.iterdir(), *path.glob("seed-*/*"), *path.glob("*/*.arrow")) if path.is_dir() else (path,)
    files = sorted(set(below))
    return [(str(file), *quick_look(file.stat())) for file in files if file.exists() and not file.is_dir()]


@contextmanager
def _without_gc() -> Iterator[None]:
    """Suspend garbage collection: searching millions of new lists takes longer than reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
