"""Optional parts of a task's configuration, in class attributes of `TaskConfig`. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from domainbert.labelled.file_sample import Sample
    from domainbert.tasks.config import TaskConfig
    from domainbert.tasks.recognition import DetectedTask

AnyConfig = TypeVar("AnyConfig", bound="TaskConfig")


class FormatDetector(ABC, Generic[AnyConfig]):
    """Recognition of labelled files for `init`, and of model folders without a task name."""

    whole_texts: ClassVar[bool] = False
    """Whether a text must fit in one window; `init` then chooses long windows."""

    many_targets: ClassVar[bool] = False
    """Whether a text has a target for each word; `init` then chooses a higher learning rate."""

    @abstractmethod
    def detect(self, kind: type[AnyConfig], sample: Sample) -> DetectedTask | None:
        """Return the task with the columns of a labelled file, or None if the file does not match `kind`.

        Raise `DomainbertError` if the file matches only with an option, which the message names.
        """

    def with_repair(self, config: AnyConfig) -> AnyConfig | None:
        """Return the configuration with one more repair of files enabled; None if no repair is left."""
        return None

    def matches_model(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether a model folder without a task name fits this task, by its head and `config.json` fields."""
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
        """Return the settings in a model's `config.json` that test scores depend on."""
        return {}
