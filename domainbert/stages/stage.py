"""Stage functions, and their inputs: model folders, tokenizers and labelled files, each opened and validated once.

A call from Python validates its arguments like a YAML mapping. Imports no torch.
"""

from __future__ import annotations

import copy
import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING
from functools import partial, wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.fields import field_types
from domainbert.base.files import quick_look
from domainbert.base.freshness import Freshness
from domainbert.base.paths import check_home_expanded, resolve_path
from domainbert.labelled.items import FoundLabel, Labelled, find_labels
from domainbert.labelled.sets import LabelledSet, Single, paths_of, read_file, read_set
from domainbert.settings.schema import defaults_of, settings_class

if TYPE_CHECKING:
    from domainbert.models.folder import ModelFolder
    from domainbert.tasks.config import TaskConfig
    from domainbert.tokenization.load import DomainTokenizer


Result = TypeVar("Result")


def stage(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate a stage function so that Python calls accept the values of a YAML, such as text for paths and tasks.

    @stage
    def pretrain(out: Path, settings: Pretrain) -> dict[str, Any]: ...

    pretrain(out="runs/x", prepared="runs/prepare", encoder="BertConfig", budget={"max_epochs": 1})
    pretrain("runs/x", Pretrain(prepared=[Path("runs/prepare")], encoder=BertConfig(), budget=Budget(max_epochs=1)))

    A function that opens models or labelled files does so with a third parameter, `inputs: Inputs`. A call with
    `settings` and `inputs` passes settings that are already validated and inputs that the validation has opened.
    """
    own_signature, keyword_signature = Signature.from_callable(function), _keyword_signature(settings_class(function))

    def call(*args: Any, **kwargs: Any) -> Result:
        """Call the function with validated arguments, without `inputs` if it has no such parameter."""
        return function(*args, **{name: kwargs[name] for name in kwargs if name in own_signature.parameters})

    @wraps(function)
    def validated_call(*args: Any, **kwargs: Any) -> Result:
        from domainbert.settings.facts import hashes_of_inputs, stage_facts
        from domainbert.settings.reader import read_settings
        from domainbert.settings.yaml_files import to_node

        if isinstance(kwargs.get("inputs"), Inputs):  # already validated
            return call(*args, **kwargs)
        if "settings" in kwargs or len(args) > 1:  # an object of the settings class, not keywords
            arguments = _as_keywords(function, own_signature.bind(*args, **kwargs).arguments)
        else:
            arguments = keyword_signature.bind(*args, **kwargs).arguments
        out = arguments.pop("out")
        if not isinstance(out, (str, Path)) or not str(out).strip():
            raise DomainbertError(where="out", found=repr(out), expected="a folder")
        check_home_expanded("out", out)
        problems = Problems(function.__name__)
        settings = read_settings(function, to_node(arguments, function.__name__), problems)
        problems.raise_if_any()

        def facts() -> Freshness:
            """Return the facts that decide the output; computed on demand, because it hashes the inputs."""
            name = function.__name__.replace("_", "-")
            return stage_facts(name, settings_class(function), settings, hashes_of_inputs(settings))

        Path(out).mkdir(parents=True, exist_ok=True)
        return call(out=Path(out), settings=settings.instance, inputs=Inputs().with_facts(facts))

    validated_call.__signature__ = keyword_signature  # type: ignore[attr-defined]
    return validated_call


def _keyword_signature(settings: type) -> Signature:
    """Return the signature of a stage: `out` and a keyword for each setting, for `help()` and editors."""
    hints = field_types(settings)
    defaults = {name: Parameter.empty if value is MISSING else value for name, value in defaults_of(settings).items()}
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in defaults.items()
    ]
    return Signature([Parameter("out", Parameter.POSITIONAL_OR_KEYWORD), *keywords])


def _as_keywords(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a call with `out` and a settings object to keywords, one for each field."""
    expected, settings = settings_class(function), arguments["settings"]
    if not isinstance(settings, expected):
        raise DomainbertError(
            where="settings", found=f"{settings!r:.80}", expected=f"{expected.__name__}(...), or keywords"
        )
    return {"out": arguments["out"], **{name: getattr(settings, name) for name in defaults_of(expected)}}


_MAX_KEPT_BYTES = 16_000_000  # bytes of labelled files; CoNLL items take 45 times as much memory


class Inputs:
    """Open the inputs of stages; open an input again only if its files have changed.

    The checks before the first stage and the stages themselves share one object, so that a stage reuses the inputs
    that its check has validated. An input that cannot be opened raises the same `DomainbertError` at each request.
    """

    def __init__(self) -> None:
        self.facts: Callable[[], Freshness] = partial(Freshness, {})
        """Return all facts that decide the output of the stage: its settings and the contents of its inputs."""
        self._opened: dict[tuple[Any, ...], tuple[list[Any], Any]] = {}  # key: (file stamps, input or its error)

    def with_facts(self, facts: Callable[[], Freshness]) -> Inputs:
        """Return the same inputs with the facts of a stage, which are computed on demand."""
        inputs = copy.copy(self)
        inputs.facts = facts
        return inputs

    def model(self, path: Path) -> ModelFolder:
        """Return a model folder, see `open_model`; its tokenizer is also read once."""
        from domainbert.models.card import read_head
        from domainbert.models.folder import open_model

        def open_with_card() -> ModelFolder:
            opened = open_model(path)
            read_head(opened.path)  # only for its error, before a training or evaluation whose card copies this one
            return opened

        resolved = resolve_path(path)
        folder = resolved.parent if resolved.suffix == ".onnx" else resolved
        return self._open_once(("model", str(path)), [folder], open_with_card)

    def tokenizer(self, path: Path) -> DomainTokenizer:
        """Return the tokenizer of a folder, see `load_tokenizer`."""
        from domainbert.tokenization.load import load_tokenizer

        return self._open_once(("tokenizer", str(path)), [path], lambda: load_tokenizer(path))

    def labelled(self, task: TaskConfig, labelled_set: LabelledSet) -> Labelled[Any]:
        """Return the items of a labelled set (a file or a list of files), see `read_set`.

        Up to 16 MB of files are kept in memory; beyond that, the least recently used are dropped and read again.
        """
        return read_set(task, labelled_set, self._read_file)

    def labels(self, task: TaskConfig, file: Single) -> Mapping[str, FoundLabel]:
        """Return the labels in a labelled file, see `find_labels`."""
        key = ("labels", *_reading_key(task, file))
        return self._open_once(key, _files_of(task, file), lambda: find_labels(self._read_file(task, file).items))

    def forget_items(self) -> None:
        """Free the memory of labelled files, but keep their labels."""
        for key in [key for key in self._opened if key[0] == "labelled"]:
            del self._opened[key]

    def _read_file(self, task: TaskConfig, file: Single) -> Labelled[Any]:
        def read() -> Labelled[Any]:
            with _without_gc():
                return read_file(task, file)

        key = ("labelled", *_reading_key(task, file))
        labelled: Labelled[Any] = self._open_once(key, _files_of(task, file), read)
        self._opened[key] = self._opened.pop(key)  # the most recently used comes last
        self._limit_memory()
        return labelled

    def _open_once(self, key: tuple[Any, ...], paths: list[Path], open_input: Callable[[], Any]) -> Any:
        """Return the result of `open_input`, or raise its error; reuse it while the files in `paths` are unchanged."""
        stamps = [stamp for path in paths for stamp in _file_stamps(path)]
        recorded_stamps, result = self._opened.get(key, (None, None))
        if recorded_stamps != stamps:
            try:
                result = open_input()
            except DomainbertError as error:
                result = error
            self._opened[key] = (stamps, result)
        if isinstance(result, DomainbertError):
            raise result.with_traceback(None)
        return result

    def _limit_memory(self) -> None:
        total = 0
        for key in [key for key in reversed(self._opened) if key[0] == "labelled"]:  # the most recently used first
            stamps, _ = self._opened[key]
            total += sum(size for _, size, *_ in stamps)
            if total > _MAX_KEPT_BYTES:
                del self._opened[key]


def _reading_key(task: TaskConfig, file: Single) -> tuple[Any, ...]:
    return type(task), repr(task.reading), repr(file)


def _files_of(task: TaskConfig, file: Single) -> list[Path]:
    names = getattr(task.reading, "label_names_file", None)
    return [*paths_of(file), *([Path(names)] if names else [])]


def _file_stamps(path: Path) -> list[Any]:
    """Return name, size and times of a file; or, for a folder, of each file in it, in its `seed-*` folders, and of each
    Arrow file in a subfolder (the splits of a data set)."""
    entries = (*path.iterdir(), *path.glob("seed-*/*"), *path.glob("*/*.arrow")) if path.is_dir() else (path,)
    files = sorted(set(entries))
    return [(str(file), *quick_look(file.stat())) for file in files if file.exists() and not file.is_dir()]


@contextmanager
def _without_gc() -> Iterator[None]:
    """Suspend garbage collection, which takes longer than the reading itself when it creates millions of lists."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
