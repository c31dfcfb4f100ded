"""Base classes of task settings. Free of torch.

A task is a folder with the task's name: `config.py` defines a `TaskConfig`, `files.py` defines `read(config, path)`
(unless the configuration overrides `read`), and `task.py` defines a `Task` with the name of the configuration plus
`Task` (`Ner`, `NerTask`). A task of a user package is registered when its `config.py` is imported (`--allow-import`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, TypeVar

from typing_extensions import Self, override

from domainbert.base.choices import import_sibling
from domainbert.base.errors import DomainbertError, format_names
from domainbert.base.fields import field_types, read_field
from domainbert.encoders.head_config import Pooling
from domainbert.labelled.file_sample import Sample
from domainbert.labelled.formats import RowFormat
from domainbert.labelled.items import Labelled
from domainbert.metrics.headline import LOSS, Headline
from domainbert.training.hparams import from_plain

AnyConfig = TypeVar("AnyConfig", bound="TaskConfig")

TASK_KEY = "domainbert_task"
"""Key of `config.json`: the name of the task that a model folder is for."""

NULL_LABEL_KEY = "domainbert_nothing"
"""Key of `config.json`: the null label, the negative class such as `O` or `no_relation`; null if there is none."""


class FormatDetector(ABC, Generic[AnyConfig]):
    """Recognition of labelled files for `init`, and of model folders without a task name."""

    whole_texts: ClassVar[bool] = False
    """Whether a text must fit in one window; `init` then chooses long windows."""

    many_targets: ClassVar[bool] = False
    """Whether a text has a target for each word; `init` then chooses a higher learning rate."""

    @abstractmethod
    def detect(self, kind: type[AnyConfig], sample: Sample) -> DetectedTask | None:
        """Return the task, of the class `kind`, with the columns of a labelled file; None if the file does not match.

        Raise `DomainbertError` if the file matches only with an option, which the message names.
        """

    def with_repair(self, config: AnyConfig) -> AnyConfig | None:
        """Return the configuration with one more repair of files enabled; None if no repair is left."""
        return None

    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether a model folder without a task name fits this task, by its head and `config.json` (default: False)."""
        return False


@dataclass(frozen=True)
class Distillation:
    """Limits of `distill-task`."""

    has_logits: bool = True
    """Whether each output has one logit per label, which `LogitMSE` and `cache` require."""

    shares_vocabulary: bool = False
    """Whether student and teachers must have the same vocabulary."""

    unlabelled_unsupported: str | None = None
    """Reason why a student cannot train on unlabelled text; None if it can."""


@dataclass(frozen=True)
class Evaluation:
    """Settings that the scores of a test set depend on."""

    training_settings: tuple[str, ...] = ()
    """Settings that must be equal in training and in `evaluate`."""

    saved_settings: tuple[str, ...] = ()
    """Settings that `evaluate` reads from the model folder; it accepts the defaults or equal values."""

    scoring_settings: tuple[str, ...] = ("slice_keys",)
    """Settings of `reading` that an evaluation may change, as they only decide how a file is scored."""

    uses_training_set: bool = False
    """Whether scores distinguish items seen in the training set from unseen items."""

    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings that test scores depend on, from the fields of a model's `config.json`; by default {}."""
        return {}


class NullLabelEvaluation(Evaluation):
    """Evaluation of a task with a null label, which its only training setting names."""

    @override
    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        (setting,) = self.training_settings  # name of the setting for the null label
        return {setting: read_field(fields, NULL_LABEL_KEY, str | None)} if NULL_LABEL_KEY in fields else {}


@dataclass(frozen=True)
class TaskConfig(ABC):
    """Settings of a task: labels to predict and format of the labelled files."""

    labels: tuple[str, ...] | None = field(default=None, kw_only=True)
    """Labels that the model predicts (entity types, classes); null takes the labels of the training set."""

    # no annotations, so no fields
    entry_point_group = "domainbert.tasks"
    """Entry point group in which installed packages register tasks."""

    title = "Fine-tuned model"
    """Title of a model card."""

    no_labels: ClassVar[tuple[str, str]] = "no item has a label", "at least one label"
    """Problem with a training set without labels, for an error message."""

    fixed_outputs: ClassVar[bool] = False
    """Whether the outputs do not depend on the labels of a training set."""

    pipeline_tag: ClassVar[str | None] = None
    """`pipeline_tag` of the Hugging Face hub for model cards; None if the hub has no matching tag."""

    further: ClassVar[tuple[Headline, ...]] = ()
    """Further validation metrics that can select an epoch, or the settings in a search."""

    format_detector: ClassVar[FormatDetector[Any] | None] = None
    distillation: ClassVar[Distillation] = Distillation()
    evaluation: ClassVar[Evaluation] = Evaluation()
    """Optional parts of a task."""

    def __post_init__(self) -> None:
        if self.labels is not None:
            self._check_given_labels(tuple(self.labels))
        format = getattr(self, "format", None)
        if isinstance(format, Mapping):  # given in Python as in a YAML
            object.__setattr__(self, "format", from_plain(field_types(type(self))["format"], format))

    def _check_given_labels(self, labels: tuple[str, ...]) -> None:
        """Check `labels` and store them as a tuple."""
        if self.fixed_outputs:
            raise DomainbertError(
                where="labels", found=format_names(labels), expected="null, as the task has no labels"
            )
        if not labels or len(set(labels)) < len(labels) or not all(isinstance(label, str) for label in labels):
            raise DomainbertError(where="labels", found=f"{labels!r:.80}", expected="at least one name, each once")
        object.__setattr__(self, "labels", labels)

    @property
    @abstractmethod
    def headline(self) -> Headline:
        """Return the main metric, which selects the best epoch by default."""

    def validation_metric(self, key: str) -> Headline:
        """Return the validation metric with this key, or the loss; raise `DomainbertError` for an unknown key."""
        metrics = {metric.key: metric for metric in (self.headline, *self.further, LOSS)}
        if key not in metrics:
            raise DomainbertError(where="select_by", found=repr(key), expected=f"one of {', '.join(metrics)}")
        return metrics[key]

    @property
    def name(self) -> str:
        """Return the task's name, which is the name of its folder."""
        return folder_name(type(self))

    def read(self, path: Any) -> Labelled[Any]:
        """Return the items of a labelled file, read with `read(config, path)` of `files.py` in the task's folder.

        Args:
            path: path of the file; a `LabelledFile` if the `format` of the task has a key `slice_keys`.
        """
        labelled: Labelled[Any] = import_sibling(type(self), "files", "task").read(self, path)
        return labelled

    def check_window(self, max_length: int) -> None:
        """Raise `DomainbertError` if windows of `max_length` tokens are too short for the task; by default never."""
        return None

    @property
    def reads_pairs(self) -> bool:
        """Whether models read pairs of texts, which needs a tokenizer with a pair template."""
        return False

    @property
    def reading(self) -> object:
        """Return the settings that decide how files are read: `format` if the task has it, otherwise all settings."""
        return getattr(self, "format", self)

    @property
    def slice_keys(self) -> tuple[str, ...]:
        """Return `format.slice_keys`, the keys whose values are scored as slices; () if the task has none."""
        keys: tuple[str, ...] = getattr(getattr(self, "format", None), "slice_keys", ())
        return keys

    def check_labels(self, labels: Collection[str]) -> None:
        """Raise `DomainbertError` if the settings name labels that training does not have; by default never."""
        return None

    def as_teacher(self) -> Self:
        """Return the task for a teacher, with the head that teaches best; by default the same task."""
        return self

    def read_labels(self, labels: Sequence[str]) -> tuple[str, ...]:
        """Return the labels of a model or file as these settings read them; by default unchanged."""
        return tuple(labels)

    def known_labels(self, outputs: Sequence[str]) -> tuple[str, ...]:
        """Return the labels that a file may contain, given the names of a model's outputs."""
        return self.read_labels(outputs)


@dataclass(frozen=True)
class TextTaskConfig(TaskConfig):
    """Settings of a task on whole texts or pairs of texts; its `format` is a `RowFormat`."""

    mean_over: str | None = field(default=None, kw_only=True)
    """Key from `format.slice_keys`: the headline becomes the mean of the metric over the slices of this key."""

    pooling: Pooling | None = field(default=None, kw_only=True)
    """Pooling of the hidden states for the head: [CLS] (`cls`), or `mean` or `max` over all tokens. null takes the
    pooling of the model folder, or the default of the family: [CLS], for ModernBERT `classifier_pooling`.
    `transformers` ignores the setting and uses the default of the family."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.mean_over is None or self.mean_over in self.slice_keys:
            return
        expected = f"a key of format.slice_keys, which has {format_names(self.slice_keys)}; add it there"
        raise DomainbertError(where="mean_over", found=repr(self.mean_over), expected=expected)

    @property
    @abstractmethod
    def whole(self) -> Headline:
        """Return the main metric over the whole set."""

    @property
    @override
    def headline(self) -> Headline:
        """Return the main metric, as its mean over slices if `mean_over` is set."""
        return self.whole.mean_over(self.mean_over)

    @property
    @override
    def reads_pairs(self) -> bool:
        return isinstance(self.reading, RowFormat) and self.reading.text_pair_key is not None


@dataclass(frozen=True)
class DetectedTask:
    """A task that matches a file."""

    task: TaskConfig
    """The task with the keys and columns of the file."""

    reason: str
    """Property of the file that matches the task, for the terminal."""

    specificity: int = 1
    """Rank among matching tasks; the task with the highest value is selected."""

    others: tuple[str, ...] = ()
    """Class names of other tasks that match."""


def folder_name(kind: type) -> str:
    """Return the name of the folder that defines a task class; raise `DomainbertError` if it is in no package."""
    package = kind.__module__.rpartition(".")[0]
    name = package.rpartition(".")[2]
    if not name:
        raise DomainbertError(
            where=f"{kind.__module__}.{kind.__name__}",
            found="outside a package",
            expected="it in TASK/config.py with task.py",
        )
    return name
