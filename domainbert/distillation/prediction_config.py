"""Settings of losses on predictions. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Range
from domainbert.distillation.config import LossConfig, Sizes

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
                f"{setting}: found another vocabulary in {name} than in {first_name}; expected models with the same "
                f"vocabulary, because the task {task.name} compares the outputs token by token"
            )
