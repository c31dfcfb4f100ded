"""Losses on what is predicted. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from typing_extensions import override

from domainbert.base.ranges import Range
from domainbert.distillation.config import LossConfig, Sizes

if TYPE_CHECKING:
    from domainbert.distillation.losses import DistillationLoss


@dataclass(frozen=True)
class SoftTargets(LossConfig):
    """T² KL(teacher || student) of the distributions at temperature T (Hinton et al. 2015, arXiv:1503.02531, eq. 1)."""

    temperature: Annotated[float, Range(0.01, 1000)] = 2.0
    """Logits are divided by it; above 1 the teacher's lesser choices weigh more."""

    positions: Literal["predicted", "all"] = "predicted"
    """`predicted` are the masked tokens of a corpus, and the words or texts of a task; `all` is every token of a
    corpus, as DistilBERT does, which takes much more time and memory."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import SoftTargetsLoss

        return SoftTargetsLoss(self.temperature, every=self.positions == "all")


@dataclass(frozen=True)
class HardTargets(LossConfig):
    """Cross-entropy with what is true: the masked tokens of a corpus (masked LM), the labels of a task."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import HardTargetsLoss

        return HardTargetsLoss()


@dataclass(frozen=True)
class LogitMSE(LossConfig):
    """Mean squared difference of the logits (Ba and Caruana 2014, arXiv:1312.6184, eq. 1); not of a CRF."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import LogitMSELoss

        return LogitMSELoss()
