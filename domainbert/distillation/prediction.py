"""Losses on what is predicted: soft targets, hard targets, logits."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from domainbert.distillation.losses import DistillationLoss, Outputs, Places, Reads, Unit, full


class SoftTargetsLoss(DistillationLoss):
    """T² KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al. 2015, section 2).

    T² keeps the gradient's size whatever the temperature.

    Args:
        temperature: T.
        every: at every token that is not padding (Sanh et al. 2019, section 2), not only at predicted positions.
    """

    def __init__(self, temperature: float, every: bool) -> None:
        super().__init__()
        self.temperature = temperature
        self.unit, self.reads = ("tokens", "all") if every else ("outputs", "predicted")

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        logits = "all_logits" if self.reads == "all" else "logits"
        own, source = (full(getattr(one, logits)) / self.temperature for one in (student, teacher))
        return self.temperature**2 * self.divergence(source, own).sum()


class HardTargetsLoss(DistillationLoss):
    """Cross-entropy with the true classes, which whoever runs the student computes: a task has its own way."""

    unit: Unit = "targets"
    reads: Reads = "hard"
    needs_teacher: ClassVar[bool] = False

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert student.hard_loss is not None
        return student.hard_loss


class LogitMSELoss(DistillationLoss):
    """Mean over the classes of (student - teacher)² (Ba and Caruana 2014, eq. 1)."""

    unit: Unit = "outputs"
    reads: Reads = "predicted"

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert teacher is not None and teacher.logits is not None and student.logits is not None
        return (full(student.logits) - full(teacher.logits)).square().mean(dim=-1).sum()
