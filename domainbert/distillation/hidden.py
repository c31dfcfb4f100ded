"""Losses on hidden states: cosine, projected mean squared error, [CLS] of PKD."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from domainbert.distillation.losses import LayerLoss, Outputs, Places, Unit, full


class HiddenLoss(LayerLoss):
    """A loss between hidden states."""

    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Tensor:
        """See `LayerLoss.of_layer`: (N, H), those of tokens that are not padding."""
        return full(outputs.hidden[layer][places.real])


class HiddenCosineLoss(HiddenLoss):
    """1 - cos(student, teacher) (Sanh et al. 2019, section 2)."""

    def between(self, student: Tensor, teacher: Tensor, places: Places, index: int) -> Tensor:
        """See `LayerLoss.between`."""
        return (1 - functional.cosine_similarity(student, teacher, dim=-1)).sum()


class HiddenMSELoss(HiddenLoss):
    """Mean over the teacher's width of (student W - teacher)² (Jiao et al. 2020, eq. 8 and 9)."""

    def __init__(self, pairs: Sequence[tuple[int, int]], student_size: int, teacher_size: int, projection: str) -> None:
        super().__init__(pairs)
        count = {"shared": 1, "per_layer": len(self.pairs), "none": 0}[projection]
        self.projections = nn.ModuleList(nn.Linear(student_size, teacher_size, bias=False) for _ in range(count))
        for linear in self.projections:
            nn.init.normal_(linear.weight, std=student_size**-0.5)  # type: ignore[arg-type]

    def between(self, student: Tensor, teacher: Tensor, places: Places, index: int) -> Tensor:
        """See `LayerLoss.between`."""
        if len(self.projections):
            student = full(self.projections[index % len(self.projections)](student))
        return (student - teacher).square().mean(dim=-1).sum()


class PatientCLSLoss(HiddenLoss):
    """|| student / |student| - teacher / |teacher| ||² at [CLS] (Sun et al. 2019, eq. 7)."""

    unit: Unit = "segments"

    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Tensor:
        """See `LayerLoss.of_layer`: (segments, H)."""
        return full(outputs.hidden[layer].flatten(0, 1)[places.first])

    def between(self, student: Tensor, teacher: Tensor, places: Places, index: int) -> Tensor:
        """See `LayerLoss.between`."""
        difference = functional.normalize(student, dim=-1) - functional.normalize(teacher, dim=-1)
        return difference.square().sum()
