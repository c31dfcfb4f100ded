"""Losses on what is predicted: soft targets, hard targets, logits."""

from __future__ import annotations

from typing import ClassVar

from torch import Tensor

from domainbert.distillation.losses import DistillationLoss, Outputs, Places, Reads, Unit, full


class SoftTargetsLoss(DistillationLoss):
    """T² KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al. 2015, section 2), at predicted positions.

    T² keeps the gradient's size whatever the temperature.
    """

    unit: Unit = "outputs"
    reads: ClassVar[Reads] = "predicted"

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert teacher is not None and teacher.logits is not None and student.logits is not None
        return self.between(student.logits, teacher.logits)

    def between(self, student: Tensor, teacher: Tensor) -> Tensor:
        """The sum over rows of logits, both (N, C)."""
        temperature = self.temperature
        return temperature**2 * self.divergence(full(teacher) / temperature, full(student) / temperature).sum()


class AllSoftTargetsLoss(SoftTargetsLoss):
    """The same at every token that is not padding (Sanh et al. 2019, section 2)."""

    unit: Unit = "tokens"
    reads: ClassVar[Reads] = "all"

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert teacher is not None and teacher.all_logits is not None and student.all_logits is not None
        return self.between(student.all_logits, teacher.all_logits)


class HardTargetsLoss(DistillationLoss):
    """Cross-entropy with the true classes, which whoever runs the student computes: a task has its own way."""

    unit: Unit = "targets"
    reads: ClassVar[Reads] = "hard"
    needs_teacher: ClassVar[bool] = False

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert student.hard_loss is not None
        return student.hard_loss


class LogitMSELoss(DistillationLoss):
    """Mean over the classes of (student - teacher)² (Ba and Caruana 2014, eq. 1)."""

    unit: Unit = "outputs"
    reads: ClassVar[Reads] = "predicted"

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert teacher is not None and teacher.logits is not None and student.logits is not None
        return (full(student.logits) - full(teacher.logits)).square().mean(dim=-1).sum()
