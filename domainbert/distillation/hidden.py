"""Losses on hidden states: cosine, projected mean squared error, [CLS] of PKD."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.distillation.losses import DistillationLoss, Outputs, Places, Unit, full

Pairs = Sequence[tuple[int, int]]


class HiddenLoss(DistillationLoss):
    """A loss between hidden states, summed over pairs of layers."""

    unit: Unit = "tokens"

    def __init__(self, pairs: Pairs) -> None:
        super().__init__()
        self.pairs = list(pairs)

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert teacher is not None
        sums = [
            self.between(self.chosen(student.hidden[own], places), self.chosen(teacher.hidden[source], places), index)
            for index, (own, source) in enumerate(self.pairs)
        ]
        return torch.stack(sums).sum()

    def chosen(self, hidden: Tensor, places: Places) -> Tensor:
        """The states that are compared, (N, H): those of tokens that are not padding."""
        return full(hidden[places.real])

    @abstractmethod
    def between(self, student: Tensor, teacher: Tensor, index: int) -> Tensor:
        """The sum over the states of one pair of layers, number `index` of all."""


class HiddenCosineLoss(HiddenLoss):
    """1 - cos(student, teacher) (Sanh et al. 2019, section 2)."""

    def between(self, student: Tensor, teacher: Tensor, index: int) -> Tensor:
        """See `HiddenLoss.between`."""
        return (1 - functional.cosine_similarity(student, teacher, dim=-1)).sum()


class HiddenMSELoss(HiddenLoss):
    """Mean over the teacher's width of (student W - teacher)² (Jiao et al. 2020, eq. 8 and 9)."""

    def __init__(self, pairs: Pairs, student_size: int, teacher_size: int, projection: str) -> None:
        super().__init__(pairs)
        count = {"shared": 1, "per_layer": len(self.pairs), "none": 0}[projection]
        self.projections = nn.ModuleList(nn.Linear(student_size, teacher_size, bias=False) for _ in range(count))
        for linear in self.projections:
            nn.init.normal_(linear.weight, std=student_size**-0.5)  # type: ignore[arg-type]

    def between(self, student: Tensor, teacher: Tensor, index: int) -> Tensor:
        """See `HiddenLoss.between`."""
        if len(self.projections):
            student = full(self.projections[index % len(self.projections)](student))
        return (student - teacher).square().mean(dim=-1).sum()


class PatientCLSLoss(HiddenLoss):
    """|| student / |student| - teacher / |teacher| ||² at [CLS] (Sun et al. 2019, eq. 7)."""

    unit: Unit = "segments"

    def chosen(self, hidden: Tensor, places: Places) -> Tensor:
        """The states of [CLS], (segments, H)."""
        return full(hidden.flatten(0, 1)[places.first])

    def between(self, student: Tensor, teacher: Tensor, index: int) -> Tensor:
        """See `HiddenLoss.between`."""
        difference = functional.normalize(student, dim=-1) - functional.normalize(teacher, dim=-1)
        return difference.square().sum()
