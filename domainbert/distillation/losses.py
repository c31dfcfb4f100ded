"""Distillation losses: the base class, and losses on predictions, hidden states and attention."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from domainbert.encoders.packed import select
from domainbert.encoders.recording import Projections
from domainbert.training.divergence import full, softmax_divergence

Reads = Literal["none", "predicted", "all", "hard"]
Unit = Literal["targets", "outputs", "examples", "tokens", "segments", "pairs"]
"""Unit over which a loss is averaged: targets (masked tokens, labelled words or texts), outputs (words or texts of a
task), examples (labelled or not), tokens that are not padding, segments (texts in packed rows), or pairs of tokens of
a segment."""

_NEVER = -1e9  # score of masked pairs; finite, so that differences of scores are not nan


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for a batch; outputs that no loss reads may be missing.

    Attributes:
        hidden: hidden states of the embeddings and of every layer, each (B, S, H).
        projections: projections of the layers that losses on attention compare, by layer.
        logits: (N, C) at the predicted positions.
        all_logits: (tokens, C) at every token that is not padding.
        example: student of a task only: example of each row of `logits`, or -1; see `DistillationTargets.divergence`.
        hard_loss: student only: cross-entropy with the true classes, summed.
    """

    hidden: list[Tensor]
    projections: dict[int, Projections]
    logits: Tensor | None = None
    all_logits: Tensor | None = None
    example: Tensor | None = None
    hard_loss: Tensor | None = None


@dataclass(frozen=True)
class TokenPositions:
    """Indices and masks of tokens in packed rows (B, S), whose positions restart with each segment.

    `given` may hold `token_positions` and `cls_positions` of the batch, because computing them on a GPU would wait for
    it.
    """

    position_ids: Tensor
    segment_ids: Tensor
    given: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> TokenPositions:
        """Create the places of a batch."""
        return cls(batch["position_ids"], batch["segment_ids"], batch)

    @property
    def real(self) -> Tensor:
        """(B, S) True for tokens that are not padding."""
        return self.segment_ids > 0

    @property
    def pairs(self) -> Tensor:
        """(B, S, S) True for pairs of tokens of the same segment."""
        same = self.segment_ids.unsqueeze(-1) == self.segment_ids.unsqueeze(-2)
        return same & self.real.unsqueeze(-1)

    def hidden_pairs(self, window: int | None) -> Tensor:
        """(B, 1, S, S) True for pairs without attention: of two segments, or further apart than `window`."""
        hidden = self.segment_ids.unsqueeze(-1) != self.segment_ids.unsqueeze(-2)
        if window is not None:
            index = torch.arange(hidden.shape[-1], device=hidden.device)
            hidden = hidden | ((index.unsqueeze(-1) - index).abs() > window)
        return hidden.unsqueeze(1)

    @cached_property
    def cls_positions(self) -> Tensor:
        """(segments,) index of each segment's first token, its [CLS], in the flattened rows."""
        return self._indices("cls_positions", (self.position_ids == 0) & self.real)

    @cached_property
    def token_positions(self) -> Tensor:
        """(tokens,) indices of the tokens in the flattened rows that are not padding."""
        return self._indices("token_positions", self.real)

    def _indices(self, name: str, mask: Tensor) -> Tensor:
        return self.given[name] if name in self.given else mask.flatten().nonzero().flatten()


class DistillationLoss(nn.Module, ABC):
    """Base class of losses. `forward` sums over a micro-batch; the caller divides by the units of the *global* batch.

    Attributes:
        unit: unit by whose number the sum is divided.
        reads: logits that the loss reads: none, at predicted positions, all, or at positions with a true class
            (`hard`).
        needs_teacher: whether the loss compares with a teacher.
        pairs: compared layers (student, teacher).
        needs_attention: whether the loss compares projections of these layers rather than hidden states.
    """

    unit: Unit
    reads: Reads = "none"
    needs_teacher: ClassVar[bool] = True
    needs_attention: ClassVar[bool] = False
    pairs: Sequence[tuple[int, int]] = ()

    def __init__(self) -> None:
        super().__init__()
        self.divergence: Callable[..., Tensor] = softmax_divergence
        """Divergence of the student's predictions from the teacher's; for a task, `Outputs.example` is the third
        argument."""

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs | None, places: TokenPositions) -> Tensor:
        """Return the sum over the micro-batch, a scalar; `teacher` is None only if no loss needs it."""


class SoftTargetsLoss(DistillationLoss):
    """T² KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al. 2015, section 2), at predicted positions or,
    if `every`, at all tokens that are not padding (Sanh et al. 2019, section 2).

    The factor T² makes the size of the gradient independent of the temperature.
    """

    unit: Unit = "outputs"
    reads: Reads = "predicted"

    def __init__(self, temperature: float, every: bool) -> None:
        super().__init__()
        self.temperature = temperature
        if every:
            self.unit, self.reads = "tokens", "all"

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: TokenPositions) -> Tensor:
        logits = "all_logits" if self.reads == "all" else "logits"
        ours, theirs = (full(getattr(outputs, logits)) / self.temperature for outputs in (student, teacher))
        example = () if student.example is None else (student.example,)
        return self.temperature**2 * self.divergence(theirs, ours, *example).sum()


class HardTargetsLoss(DistillationLoss):
    """Cross-entropy with the true classes, computed by the caller because a task may have its own loss."""

    unit: Unit = "targets"
    reads: Reads = "hard"
    needs_teacher: ClassVar[bool] = False

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: TokenPositions) -> Tensor:
        assert student.hard_loss is not None
        return student.hard_loss


class LogitMSELoss(DistillationLoss):
    """Mean over the classes of (student - teacher)² (Ba and Caruana 2014, eq. 1)."""

    unit: Unit = "outputs"
    reads: Reads = "predicted"

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: TokenPositions) -> Tensor:
        assert teacher is not None and teacher.logits is not None and student.logits is not None
        return (full(student.logits) - full(teacher.logits)).square().mean(dim=-1).sum()


class LayerLoss(DistillationLoss):
    """Base class of losses that compare layers, summed over the pairs."""

    unit: Unit = "tokens"

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.pairs = list(pairs)

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: TokenPositions) -> Tensor:
        assert teacher is not None
        sums = [
            self.between(
                self.layer_values(student, ours, places), self.layer_values(teacher, theirs, places), places, index
            )
            for index, (ours, theirs) in enumerate(self.pairs)
        ]
        return torch.stack(sums).sum()

    @abstractmethod
    def layer_values(self, outputs: Outputs, layer: int, places: TokenPositions) -> Any:
        """Return the compared outputs of a layer of student or teacher."""

    @abstractmethod
    def between(self, student: Any, teacher: Any, places: TokenPositions, index: int) -> Tensor:
        """Return the sum over pair number `index` of the layers."""


class HiddenLoss(LayerLoss):
    """Base class of losses that compare hidden states."""

    @override
    def layer_values(self, outputs: Outputs, layer: int, places: TokenPositions) -> Tensor:
        """Return the hidden states (tokens, H) of the tokens that are not padding."""
        return full(select(outputs.hidden[layer], places.token_positions))


class HiddenCosineLoss(HiddenLoss):
    """1 - cos(student, teacher) (Sanh et al. 2019, section 2)."""

    @override
    def between(self, student: Tensor, teacher: Tensor, places: TokenPositions, index: int) -> Tensor:
        return (1 - functional.cosine_similarity(student, teacher, dim=-1)).sum()


class HiddenMSELoss(HiddenLoss):
    """Mean over the teacher's width of (student W - teacher)² (Jiao et al. 2020, eq. 8 and 9)."""

    def __init__(self, pairs: Sequence[tuple[int, int]], student_size: int, teacher_size: int, projection: str) -> None:
        super().__init__(pairs)
        count = {"shared": 1, "per_layer": len(self.pairs), "none": 0}[projection]
        self.projections = nn.ModuleList(nn.Linear(student_size, teacher_size, bias=False) for _ in range(count))
        for linear in self.projections:
            nn.init.normal_(linear.weight, std=student_size**-0.5)  # type: ignore[arg-type]

    @override
    def between(self, student: Tensor, teacher: Tensor, places: TokenPositions, index: int) -> Tensor:
        if len(self.projections):
            student = full(self.projections[index % len(self.projections)](student))
        return (student - teacher).square().mean(dim=-1).sum()


class PatientCLSLoss(HiddenLoss):
    """|| student / |student| - teacher / |teacher| ||² at [CLS] (Sun et al. 2019, eq. 7)."""

    unit: Unit = "segments"

    @override
    def layer_values(self, outputs: Outputs, layer: int, places: TokenPositions) -> Tensor:
        """Return the hidden states (segments, H) of [CLS]."""
        return full(select(outputs.hidden[layer], places.cls_positions))

    @override
    def between(self, student: Tensor, teacher: Tensor, places: TokenPositions, index: int) -> Tensor:
        difference = functional.normalize(student, dim=-1) - functional.normalize(teacher, dim=-1)
        return difference.square().sum()


class AttentionLoss(LayerLoss):
    """Base class of losses that compare the projections of attention."""

    needs_attention: ClassVar[bool] = True

    @override
    def layer_values(self, outputs: Outputs, layer: int, places: TokenPositions) -> Projections:
        return outputs.projections[layer]


class AttentionMSELoss(AttentionLoss):
    """(student - teacher)² of the scores, Q Kᵀ / sqrt(d) in BERT, mean over heads (Jiao et al. 2020, eq. 7); 0 for
    pairs outside a window."""

    unit: Unit = "pairs"

    @override
    def between(self, student: Projections, teacher: Projections, places: TokenPositions, index: int) -> Tensor:
        hidden = places.hidden_pairs(student.window) | places.hidden_pairs(teacher.window)
        difference = (student.scores - teacher.scores).masked_fill(hidden, 0)
        return (difference.square().mean(dim=1) * places.pairs).sum()


class AttentionKLLoss(AttentionLoss):
    """KL(teacher || student) of the softmax of the scores, mean over heads (Wang et al. 2020, eq. 6)."""

    @override
    def between(self, student: Projections, teacher: Projections, places: TokenPositions, index: int) -> Tensor:
        return row_divergence(student.scores, teacher.scores, places, student.window, teacher.window)


class RelationsLoss(AttentionLoss):
    """KL(teacher || student) of softmax(A Aᵀ / sqrt(d)), mean over relation heads (Wang et al. 2021, eq. 4 and 5)."""

    def __init__(self, pairs: Sequence[tuple[int, int]], relations: Sequence[str], num_heads: int) -> None:
        super().__init__(pairs)
        self.relations, self.num_heads = tuple(relations), num_heads

    @override
    def between(self, student: Projections, teacher: Projections, places: TokenPositions, index: int) -> Tensor:
        sides = student.regrouped(self.num_heads), teacher.regrouped(self.num_heads)
        sums = []
        for name in self.relations:
            ours, theirs = (scores(getattr(side, name), getattr(side, name)) for side in sides)
            sums.append(row_divergence(ours, theirs, places))
        return torch.stack(sums).sum()


def scores(left: Tensor, right: Tensor) -> Tensor:
    """Return left rightᵀ / sqrt(D): two (B, heads, S, D) -> (B, heads, S, S)."""
    return full(left) @ full(right).transpose(-1, -2) / math.sqrt(left.shape[-1])


def row_divergence(
    student: Tensor,
    teacher: Tensor,
    places: TokenPositions,
    window: int | None = None,
    teacher_window: int | None = None,
) -> Tensor:
    """Return KL(teacher || student) of each token's distribution over its segment, from scores (B, heads, S, S); mean
    over heads, summed over tokens. Scores outside a window are masked; the student's window also masks the teacher."""
    # padding needs_attention to padding, so that no softmax is empty; the sum excludes it
    hidden = places.hidden_pairs(window)
    ours = student.masked_fill(hidden, _NEVER)
    theirs = teacher.masked_fill(hidden | places.hidden_pairs(teacher_window), _NEVER)
    return softmax_divergence(theirs, ours).mean(dim=1).flatten().index_select(0, places.token_positions).sum()
