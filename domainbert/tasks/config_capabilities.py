"""Optional parts of a task's configuration, in class attributes of `TaskConfig`. Free of torch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

if TYPE_CHECKING:
    from domainbert.labelled.file_sample import Sample
    from domainbert.tasks.config import TaskConfig
    from domainbert.tasks.recognition import Recognised

AnyConfig = TypeVar("AnyConfig", bound="TaskConfig")


class Recognising(ABC, Generic[AnyConfig]):
    """Recognition of labelled files, for `init`, and of model folders that name no task."""

    whole_texts: ClassVar[bool] = False
    """Whether a text is refused that does not fit in one window, so that `init` chooses long windows."""

    many_targets: ClassVar[bool] = False
    """Whether a text has a target for each word, so that `init` chooses a higher learning rate."""

    @abstractmethod
    def recognise(self, kind: type[AnyConfig], sample: Sample) -> Recognised | None:
        """Return the task with the columns of a labelled file, or None if the file does not look like one of `kind`.

        `DomainbertError` if it does, but an option is needed: it names the option.
        """

    def with_repair(self, config: AnyConfig) -> AnyConfig | None:
        """Return the configuration with one more kind of error repaired and counted; None if there is none."""
        return None

    def adopts(self, head: str | None, fields: Mapping[str, Any]) -> bool:
        """Whether a model folder without a task is for this one, by its head and the fields of `config.json`."""
        return False


@dataclass(frozen=True)
class Distillation:
    """Limits of `distill-task`."""

    has_logits: bool = True
    """Whether each output has a logit for each label, as `LogitMSE` and a `cache` need."""

    shares_vocabulary: bool = False
    """Whether student and teachers must have the same vocabulary."""

    unlabelled_unsupported: str | None = None
    """The reason why a student cannot read text without labels."""


@dataclass(frozen=True)
class Evaluation:
    """Settings that the scores of a test set depend on."""

    training_settings: tuple[str, ...] = ()
    """Settings that must be the same in training and in `evaluate`."""

    saved_settings: tuple[str, ...] = ()
    """Settings that a model folder keeps and `evaluate` takes from there; it accepts the defaults or equal values."""

    scoring_settings: tuple[str, ...] = ("by",)
    """Settings of the task's `reading` that an evaluation may change: they decide how a file is scored."""

    uses_training_set: bool = False
    """Whether scores tell seen items from unseen ones, by the training set."""

    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings in a model's `config.json` that decide how test sets are scored."""
        return {}
