"""Interface of the distillation losses."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.recording import Projections

Reads = Literal["none", "predicted", "all", "hard"]
Unit = Literal["targets", "outputs", "tokens", "segments", "pairs"]
"""Unit that a loss is a mean of: targets (masked tokens, labelled words or texts), outputs (words or texts of a task),
tokens that are not padding, segments (texts in the packed rows), or pairs of tokens of one segment."""


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for a batch; only what some loss needs is there.

    Attributes:
        hidden: of every layer, the embeddings first, each (B, S, H).
        projections: of the layers that losses name.
        logits: at the positions that are predicted, (N, C).
        all_logits: at every token that is not padding, (tokens, C).
        hard_loss: cross-entropy with what is true, summed; of a student only.
    """

    hidden: list[Tensor]
    projections: dict[int, Projections]
    logits: Tensor | None = None
    all_logits: Tensor | None = None
    hard_loss: Tensor | None = None


@dataclass(frozen=True)
class Places:
    """Places in packed rows where the losses look: of (B, S) tokens, whose positions restart with each segment."""

    position_ids: Tensor
    segment_ids: Tensor

    @property
    def real(self) -> Tensor:
        """(B, S) which tokens are not padding."""
        return self.segment_ids > 0

    @property
    def pairs(self) -> Tensor:
        """(B, S, S) which tokens are of the same segment."""
        same = self.segment_ids.unsqueeze(-1) == self.segment_ids.unsqueeze(-2)
        return same & self.real.unsqueeze(-1)

    @cached_property
    def first(self) -> Tensor:
        """(segments,) the first token of each segment in the flattened rows: its [CLS]."""
        return ((self.position_ids == 0) & self.real).flatten().nonzero().flatten()


class DistillationLoss(nn.Module, ABC):
    """A loss, summed over a micro-batch; who calls it divides by the number of units in the *global* batch.

    Attributes:
        unit: what is counted.
        reads: which logits it looks at: none, those at predicted positions, all, or those with a true class (`hard`).
        needs_teacher: whether it looks at the teacher at all.
        pairs: layers of student and teacher that are compared.
        attends: whether it looks at the projections of those layers, not at their hidden states.
    """

    unit: Unit
    reads: Reads = "none"
    needs_teacher: ClassVar[bool] = True
    attends: ClassVar[bool] = False
    pairs: Sequence[tuple[int, int]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.divergence: Callable[[Tensor, Tensor], Tensor] = divergence
        """Between what teacher and student predict; a task whose logits are not those of a softmax has its own."""

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """The sum over the micro-batch, a scalar; `teacher` is None only where no loss needs it."""


class LayerLoss(DistillationLoss):
    """A loss between layers, summed over pairs of them."""

    unit: Unit = "tokens"

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.pairs = list(pairs)

    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """See `DistillationLoss.forward`."""
        assert teacher is not None
        sums = [
            self.between(self.of_layer(student, own, places), self.of_layer(teacher, source, places), places, index)
            for index, (own, source) in enumerate(self.pairs)
        ]
        return torch.stack(sums).sum()

    @abstractmethod
    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Any:
        """What is compared of a layer of either side."""

    @abstractmethod
    def between(self, student: Any, teacher: Any, places: Places, index: int) -> Tensor:
        """The sum over one pair of layers, number `index` of all."""


def full(tensor: Tensor) -> Tensor:
    """At least fp32: losses are small differences of large numbers."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def divergence(teacher: Tensor, student: Tensor) -> Tensor:
    """Kullback-Leibler divergence of softmax(teacher) from softmax(student) over the last dimension, which is gone."""
    log_teacher, log_student = full(teacher).log_softmax(dim=-1), full(student).log_softmax(dim=-1)
    return functional.kl_div(log_student, log_teacher, reduction="none", log_target=True).sum(dim=-1)
