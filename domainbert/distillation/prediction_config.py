"""Settings of losses on predictions. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Range
from domainbert.distillation.config import LossConfig, Sizes
from domainbert.distillation.student_config import StudentConfig

if TYPE_CHECKING:
    from domainbert.distillation.losses import DistillationLoss
    from domainbert.tasks.config import TaskConfig


@dataclass(frozen=True)
class SoftTargets(LossConfig):
    """T² KL(teacher || student) of the distributions at temperature T (Hinton et al. 2015, arXiv:1503.02531, eq. 1).

    >>> from domainbert import SoftTargets
    >>> SoftTargets(temperature=2.0).weight
    1.0
    """

    temperature: Annotated[float, Range(0.01, 1000)] = 2.0
    """Temperature by which logits are divided; above 1, less probable classes of the teacher weigh more."""

    positions: Literal["predicted", "all"] = "predicted"
    """`predicted`: the masked tokens of a corpus, or the words or texts of a task. `all`: every token of a corpus, as
    in DistilBERT, which takes much more time and memory."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import SoftTargetsLoss

        return SoftTargetsLoss(self.temperature, all_tokens=self.positions == "all")


@dataclass(frozen=True)
class HardTargets(LossConfig):
    """Cross-entropy with the masked tokens of a corpus (masked LM) or the labels of a task.

    >>> from domainbert import HardTargets
    >>> HardTargets(weight=0.5).weight
    0.5
    """

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import HardTargetsLoss

        return HardTargetsLoss()


@dataclass(frozen=True)
class LogitMSE(LossConfig):
    """Mean squared difference of the logits (Ba and Caruana 2014, arXiv:1312.6184, eq. 1); not for a CRF."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import LogitMSELoss

        return LogitMSELoss()


def check_task_distillation(
    task: TaskConfig, losses: Sequence[LossConfig], student: StudentConfig, has_model: bool, has_cache: bool
) -> None:
    """Raise `DomainbertError` if settings of a distillation on a task exclude each other.

    `has_model` is whether the user gives a model from which the student starts, `has_cache` a cache of teacher logits.
    """
    if has_model and student != StudentConfig():
        raise DomainbertError(where="student", found="next to model", expected="only student or only model")
    for number, loss in enumerate(losses):
        if isinstance(loss, LogitMSE) and not task.distillation.has_logits:
            raise DomainbertError(
                f"LogitMSE compares a logit for each label, but {task.name} has none",
                where=f"losses[{number}]",
                expected="SoftTargets, HardTargets or losses on layers",
            )
        if isinstance(loss, SoftTargets) and loss.positions == "all":
            raise DomainbertError(
                where=f"losses[{number}].positions", found="'all', only for distill", expected="predicted"
            )
    if has_cache:
        check_cached_task(task)


def check_cached_task(task: TaskConfig) -> None:
    """Raise `DomainbertError` if the outputs of a task cannot be in a cache."""
    if not task.distillation.has_logits:
        raise DomainbertError(f"{task.name} has no logit for each label", where="cache", expected="cache: null")


def check_one_vocabulary(
    task: TaskConfig, losses: Sequence[LossConfig], has_model: bool, fingerprints: Sequence[str | None]
) -> None:
    """Raise `DomainbertError` if the models have different vocabularies and the task cannot compare such models.

    Args:
        task, losses: settings of the distillation.
        has_model: whether the user gives a model from which the student starts. Otherwise it starts from a teacher.
        fingerprints: fingerprints of the vocabularies of that model (if `has_model`) and then of each teacher; a
            fingerprint that is not known yet is None.
    """
    if not task.distillation.shares_vocabulary or all(isinstance(loss, HardTargets) for loss in losses):
        return
    names = ["model"] if has_model else []
    names += [f"teachers[{number}]" for number in range(len(fingerprints) - len(names))]
    by_name = {name: value for name, value in zip(names, fingerprints, strict=True) if value is not None}
    first_name = next(iter(by_name), "")
    for name, fingerprint in by_name.items():
        if fingerprint != by_name[first_name]:
            setting, _, _ = first_name.partition("[")
            raise DomainbertError(
                where=setting,
                found=f"another vocabulary in {name} than in {first_name}",
                expected=f"models with the same vocabulary, because the task {task.name} compares the outputs "
                "token by token",
            )
