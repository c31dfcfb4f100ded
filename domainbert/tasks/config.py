"""Configuration of every labelled task, without torch: its settings in a YAML, its files, the metric that counts.

A task is a folder: `config.py` with a `TaskConfig`, `files.py` with `read(config, path)` (or the configuration has a
`read` of its own), and `task.py` with a `Task` called like the configuration (`Ner`, `NerTask`). The folder's name is
the task's. One in a user package is known once its `config.py` has been imported (`--allow-import`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any, ClassVar

from domainbert.base.choices import beside, choices_of, concrete_subclasses
from domainbert.base.errors import DomainbertError
from domainbert.labelled.items import Labelled
from domainbert.metrics.headline import LOSS, Headline
from domainbert.tasks.config_capabilities import Distillation, Evaluation, Recognising
from domainbert.tasks.output import JsonlWriter, PredictionWriter

TASK_KEY = "domainbert_task"
"""Key of `config.json`: the name of the task that a model folder is for."""

_OURS = f"{__name__.partition('.')[0]}."


@dataclass(frozen=True)
class TaskConfig(ABC):
    """Settings of a task: what is predicted, and how the labelled files say it."""

    # no annotations, so no fields
    entry_point_group = "domainbert.tasks"
    """Where installed packages register tasks of their own."""

    title = "Fine-tuned model"
    """Name of a model of the task, for its card."""

    pipeline_tag: ClassVar[str | None] = None
    """Its kind of work in the words of the Hugging Face hub, for model cards; None where the hub has no word for it."""

    further: ClassVar[tuple[Headline, ...]] = ()
    """Validation metrics beside the headline by which an epoch, or in a search the settings, may be chosen."""

    recognising: ClassVar[Recognising[Any] | None] = None
    distillation: ClassVar[Distillation] = Distillation()
    evaluation: ClassVar[Evaluation] = Evaluation()
    """Optional parts, see `config_capabilities`."""

    @property
    @abstractmethod
    def headline(self) -> Headline:
        """The metric that counts."""

    def validation_metric(self, key: str) -> Headline:
        """A validation metric, one of the task's or the loss; `DomainbertError` names those that there are."""
        known = {one.key: one for one in (self.headline, *self.further, LOSS)}
        if key not in known:
            raise DomainbertError(f"select_by: found {key!r}; expected one of {', '.join(known)}")
        return known[key]

    @property
    def name(self) -> str:
        """The task's name: that of its folder."""
        return folder_name(type(self))

    def read(self, path: Any) -> Labelled[Any]:
        """The items of a labelled file, as `read(config, path)` of `files.py` beside the configuration gives them.

        Args:
            path: of the file; a `LabelledFile` where the `format` of the task has a key `by`.
        """
        found: Labelled[Any] = beside(type(self), "files", "task").read(self, path)
        return found

    def check_window(self, max_length: int) -> None:
        """`DomainbertError` where windows of so many tokens are too short for what the task reads."""
        return None

    @property
    def reads_pairs(self) -> bool:
        """Whether its models read two texts together: no sentence of a corpus, and by a tokenizer that frames pairs."""
        return False

    @property
    def reading(self) -> object:
        """The settings that decide how its files are read: its `format`, if it has one, else all."""
        return getattr(self, "format", self)

    @property
    def by(self) -> tuple[str, ...]:
        """The keys whose values are slices that are scored apart: `by` of its `format`, if it has that."""
        found: tuple[str, ...] = getattr(getattr(self, "format", None), "by", ())
        return found

    def check_labels(self, labels: Collection[str]) -> None:
        """`DomainbertError` if its settings name labels that are not among those of training."""
        return None

    @property
    def r_drop_unsupported(self) -> str | None:
        """Return the reason why `r_drop` cannot compare two predictions; None where it can."""
        return None

    def read_labels(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Labels of files as these settings read them, which others may have read otherwise."""
        return tuple(labels)

    def known_labels(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """The labels that a file may hold, given the names of a model's outputs."""
        return self.read_labels(outputs)


def folder_name(kind: type) -> str:
    """The name of the folder that a class of a task stands in; `DomainbertError` if it is in no package."""
    name = kind.__module__.rpartition(".")[0].rpartition(".")[2]
    if not name:
        raise DomainbertError(
            f"{kind.__module__}.{kind.__name__}: in no folder; expected a folder with config.py and task.py"
        )
    return name


def prediction_writer(task: str, format: str) -> type[PredictionWriter]:
    """Return the writer of the predictions of a task: of JSONL, or of the `WRITERS` in the task's `writers.py`, if any.

    `DomainbertError` names the formats of the task.
    """
    writers: dict[str, type[PredictionWriter]] = {"jsonl": JsonlWriter}
    if format not in writers and find_spec(f"{_kinds()[task].__module__.rpartition('.')[0]}.writers"):
        writers |= beside(_kinds()[task], "writers", "task").WRITERS
    if format not in writers:
        raise DomainbertError(f"output_format: {format[:80]!r}; expected {', '.join(writers)}: the model is for {task}")
    return writers[format]


def task_kind(head: str | None, fields: Mapping[str, Any]) -> type[TaskConfig] | None:
    """The configuration of the task that a model folder is for, by its head and `config.json`; None if for none.

    Raises:
        DomainbertError: it names a task that is not known; or two known ones have one name.
    """
    kinds = _kinds()
    name = fields.get(TASK_KEY)
    if name is None:
        ours_first = reversed(kinds.values())
        return next((kind for kind in ours_first if kind.recognising and kind.recognising.adopts(head, fields)), None)
    if not isinstance(name, str) or name not in kinds:
        raise DomainbertError(
            f"{TASK_KEY}: found {str(name)[:80]!r}; known tasks are {', '.join(sorted(kinds))} "
            "(--allow-import names the module that defines one of your own)"
        )
    return kinds[name]


def usual_config(kind: type[TaskConfig], fields: Mapping[str, Any]) -> TaskConfig | None:
    """Return a task with the settings in `config.json`, and defaults for all others; None if a setting has neither."""
    try:
        return kind(**kind.evaluation.settings_from_model_config(fields))
    except TypeError:
        return None


def _kinds() -> dict[str, type[TaskConfig]]:
    """The tasks by name, ours last; `DomainbertError` if two folders have one name."""
    choices_of(TaskConfig)  # imports ours
    found: dict[str, type[TaskConfig]] = {}
    for kind in sorted(concrete_subclasses(TaskConfig), key=lambda kind: kind.__module__.startswith(_OURS)):
        name = folder_name(kind)
        if found.setdefault(name, kind).__module__ != kind.__module__:
            raise DomainbertError(
                f"{found[name].__module__}: its folder is called {name}, as that of {kind.__module__}; "
                "expected another name, for a model folder says by it which task it is for"
            )
        found[name] = kind
    return found
