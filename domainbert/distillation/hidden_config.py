"""Settings of losses on hidden states. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.distillation.config import LayerLossConfig, Sizes, check_equal, uniform_pairs

if TYPE_CHECKING:
    from domainbert.distillation.losses import DistillationLoss

_SAME_WIDTH = "the same size, or HiddenMSE, which projects the student"


@dataclass(frozen=True)
class HiddenCosine(LayerLossConfig):
    """1 - cos of hidden states, mean over tokens (Sanh et al. 2019, arXiv:1910.01108). Default layer: the last."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import HiddenCosineLoss

        check_equal("hidden_size", student.hidden_size, teacher.hidden_size, _SAME_WIDTH)
        return HiddenCosineLoss(self.pairs(student, teacher, default=[(student.num_layers, teacher.num_layers)]))


@dataclass(frozen=True)
class HiddenMSE(LayerLossConfig):
    """Mean squared difference of hidden states, projected to the width of the teacher (Jiao et al. 2020, TinyBERT,
    arXiv:1909.10351, eq. 8 and 9), summed over layers. Default layers: all, with the embeddings, mapped uniformly."""

    projection: Literal["shared", "per_layer", "none"] = "shared"
    """Linear projection of the student, discarded after training: one for all layers, one per layer, or none."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import HiddenMSELoss

        if self.projection == "none":
            check_equal("hidden_size", student.hidden_size, teacher.hidden_size, "set projection: shared")
        pairs = self.pairs(student, teacher, default=uniform_pairs(student, teacher, first=0))
        return HiddenMSELoss(pairs, student.hidden_size, teacher.hidden_size, self.projection)


@dataclass(frozen=True)
class PatientCLS(LayerLossConfig):
    """Squared distance of the normalised hidden states of [CLS] (Sun et al. 2019, PKD, arXiv:1908.09355, eq. 7), summed
    over layers. Default layers: all but the last (which the logits train), mapped uniformly (PKD-Skip).

    The authors' code takes the mean over layers and width: their weight is this weight times `hidden_size` times the
    number of layers."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import PatientCLSLoss

        check_equal("hidden_size", student.hidden_size, teacher.hidden_size, _SAME_WIDTH)
        pairs = self.pairs(student, teacher, default=uniform_pairs(student, teacher, first=1)[:-1])
        if not pairs:
            raise DomainbertError("the student has only 1 layer", expected="student_layers: [1] and one teacher layer")
        return PatientCLSLoss(pairs)
