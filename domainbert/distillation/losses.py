"""Distillation losses: the base class, and losses on predictions, hidden states and attention."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional
from typing_extensions import override

from domainbert.encoders.layers import segment_mask
from domainbert.encoders.packed import select
from domainbert.encoders.recording import Projections
from domainbert.training.divergence import at_least_fp32, softmax_divergence

Reads = Literal["none", "predicted", "all", "hard"]
Unit = Literal["targets", "outputs", "examples", "tokens", "segments", "pairs"]
"""Unit over which a loss is averaged: targets (masked tokens, labelled words or texts), outputs (words or texts of a
task), examples (labelled or not), tokens that are not padding, segments (texts in packed rows), or pairs of tokens of
a segment."""

_MASKED_SCORE = -1e9  # score of masked pairs; finite, so that differences of scores are not nan


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

    `precomputed` may contain `token_positions` and `cls_positions`, because computing them on a GPU would wait for it.
    """

    position_ids: Tensor
    segment_ids: Tensor
    precomputed: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> TokenPositions:
        """Return the token positions of a batch, which may contain the precomputed indices."""
        return cls(batch["position_ids"], batch["segment_ids"], precomputed=batch)

    @property
    def real(self) -> Tensor:
        """Whether each token is not padding: (B, S)."""
        return self.segment_ids > 0

    @property
    def pairs(self) -> Tensor:
        """Whether both tokens of a pair are in the same segment, which excludes padding: (B, S, S)."""
        same = self.segment_ids.unsqueeze(-1) == self.segment_ids.unsqueeze(-2)
        return same & self.real.unsqueeze(-1)

    def hidden_pairs(self, window: int | None) -> Tensor:
        """Return whether the attention between two tokens is masked: (B, 1, S, S).

        It is masked if the tokens are of different segments, or further apart than `window` (if not None).
        """
        return segment_mask(self.segment_ids, window).isinf()

    @cached_property
    def cls_positions(self) -> Tensor:
        """Index of the first token of each segment, its [CLS], in the flattened rows: (segments,)."""
        return self._indices("cls_positions", (self.position_ids == 0) & self.real)

    @cached_property
    def token_positions(self) -> Tensor:
        """Indices of the tokens that are not padding in the flattened rows: (tokens,)."""
        return self._indices("token_positions", self.real)

    def _indices(self, name: str, mask: Tensor) -> Tensor:
        return self.precomputed[name] if name in self.precomputed else mask.flatten().nonzero().flatten()


class DistillationLoss(nn.Module, ABC):
    """Base class of losses. `forward` sums over a micro-batch; the caller divides by the units of the *global* batch.

    Attributes:
        unit: the sum is divided by the number of these units.
        reads: logits that the loss reads: none, those at predicted positions, all, or those at positions with a true
            class (`hard`).
        needs_teacher: whether the loss compares with a teacher.
        pairs: compared layers (student, teacher).
        needs_attention: whether the loss compares projections of these layers rather than hidden states.
    """

    unit: Unit
    reads: Reads = "none"
    needs_teacher: ClassVar[bool] = True
    needs_attention: ClassVar[bool] = False
    pairs: Sequence[tuple[int, int]] = ()

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs | None, tokens: TokenPositions) -> Tensor:
        """Return the loss summed over the micro-batch, a scalar; `teacher` is None only if no loss needs it."""


class SoftTargetsLoss(DistillationLoss):
    """T² KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al. 2015, section 2), at predicted positions or,
    if `all_tokens`, at all tokens that are not padding (Sanh et al. 2019, section 2).

    The factor T² makes the size of the gradient independent of the temperature.
    """

    unit: Unit = "outputs"
    reads: Reads = "predicted"

    def __init__(self, temperature: float, all_tokens: bool) -> None:
        super().__init__()
        self.temperature = temperature
        self.divergence: Callable[..., Tensor] = softmax_divergence  # a task may set its own
        if all_tokens:  # instead of the predicted positions
            self.unit, self.reads = "tokens", "all"

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, tokens: TokenPositions) -> Tensor:
        assert teacher is not None
        name = "all_logits" if self.reads == "all" else "logits"
        student_logits, teacher_logits = (
            at_least_fp32(getattr(outputs, name)) / self.temperature for outputs in (student, teacher)
        )
        # only the divergence of a task takes the example of each row
        extra_arguments = () if student.example is None else (student.example,)
        return self.temperature**2 * self.divergence(teacher_logits, student_logits, *extra_arguments).sum()


class HardTargetsLoss(DistillationLoss):
    """Cross-entropy with the true classes, computed by the caller because a task may have its own loss."""

    unit: Unit = "targets"
    reads: Reads = "hard"
    needs_teacher: ClassVar[bool] = False

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, tokens: TokenPositions) -> Tensor:
        assert student.hard_loss is not None
        return student.hard_loss


class LogitMSELoss(DistillationLoss):
    """Mean over the classes of (student - teacher)² (Ba and Caruana 2014, eq. 1)."""

    unit: Unit = "outputs"
    reads: Reads = "predicted"

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, tokens: TokenPositions) -> Tensor:
        assert teacher is not None and teacher.logits is not None and student.logits is not None
        return (at_least_fp32(student.logits) - at_least_fp32(teacher.logits)).square().mean(dim=-1).sum()


class LayerLoss(DistillationLoss):
    """Base class of losses that compare layers, by default their hidden states, summed over the pairs of layers."""

    unit: Unit = "tokens"

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.pairs = list(pairs)

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, tokens: TokenPositions) -> Tensor:
        assert teacher is not None
        losses = []
        for index, (student_layer, teacher_layer) in enumerate(self.pairs):
            student_values = self.layer_values(student, student_layer, tokens)
            teacher_values = self.layer_values(teacher, teacher_layer, tokens)
            losses.append(self.pair_loss(student_values, teacher_values, tokens, index))
        return torch.stack(losses).sum()

    def layer_values(self, outputs: Outputs, layer: int, tokens: TokenPositions) -> Any:
        """Return the values of a layer that the loss compares, of the student or of the teacher.

        By default these are the hidden states (tokens, H) of the tokens that are not padding.
        """
        return at_least_fp32(select(outputs.hidden[layer], tokens.token_positions))

    @abstractmethod
    def pair_loss(self, student: Any, teacher: Any, tokens: TokenPositions, index: int) -> Tensor:
        """Return the loss between the layers of pair `index`, from their `layer_values`, summed over the
        micro-batch."""


class HiddenCosineLoss(LayerLoss):
    """1 - cos(student, teacher) (Sanh et al. 2019, section 2)."""

    @override
    def pair_loss(self, student: Tensor, teacher: Tensor, tokens: TokenPositions, index: int) -> Tensor:
        return (1 - functional.cosine_similarity(student, teacher, dim=-1)).sum()


class HiddenMSELoss(LayerLoss):
    """Mean over the teacher's width of (student W - teacher)² (Jiao et al. 2020, eq. 8 and 9)."""

    def __init__(self, pairs: Sequence[tuple[int, int]], student_size: int, teacher_size: int, projection: str) -> None:
        super().__init__(pairs)
        count = {"shared": 1, "per_layer": len(self.pairs), "none": 0}[projection]
        self.projections = nn.ModuleList(nn.Linear(student_size, teacher_size, bias=False) for _ in range(count))
        for linear in self.projections:
            nn.init.normal_(linear.weight, std=student_size**-0.5)  # type: ignore[arg-type]

    @override
    def pair_loss(self, student: Tensor, teacher: Tensor, tokens: TokenPositions, index: int) -> Tensor:
        if self.projections:
            projection = self.projections[index % len(self.projections)]  # of this pair, or the shared one
            student = at_least_fp32(projection(student))
        return (student - teacher).square().mean(dim=-1).sum()


class PatientCLSLoss(LayerLoss):
    """|| student / |student| - teacher / |teacher| ||² at [CLS] (Sun et al. 2019, eq. 7)."""

    unit: Unit = "segments"

    @override
    def layer_values(self, outputs: Outputs, layer: int, tokens: TokenPositions) -> Tensor:
        """Return the hidden states (segments, H) of [CLS]."""
        return at_least_fp32(select(outputs.hidden[layer], tokens.cls_positions))

    @override
    def pair_loss(self, student: Tensor, teacher: Tensor, tokens: TokenPositions, index: int) -> Tensor:
        difference = functional.normalize(student, dim=-1) - functional.normalize(teacher, dim=-1)
        return difference.square().sum()


class AttentionLoss(LayerLoss):
    """Base class of losses that compare the projections of attention."""

    needs_attention: ClassVar[bool] = True

    @override
    def layer_values(self, outputs: Outputs, layer: int, tokens: TokenPositions) -> Projections:
        return outputs.projections[layer]


class AttentionMSELoss(AttentionLoss):
    """(student - teacher)² of the scores, Q Kᵀ / sqrt(d) in BERT, mean over heads (Jiao et al. 2020, eq. 7); 0 for
    pairs outside a window."""

    unit: Unit = "pairs"

    @override
    def pair_loss(self, student: Projections, teacher: Projections, tokens: TokenPositions, index: int) -> Tensor:
        not_attended = tokens.hidden_pairs(student.window) | tokens.hidden_pairs(teacher.window)
        difference = (student.scores - teacher.scores).masked_fill(not_attended, 0)  # (rows, heads, S, S)
        return (difference.square().mean(dim=1) * tokens.pairs).sum()  # `pairs` is 0 for padding


class AttentionKLLoss(AttentionLoss):
    """KL(teacher || student) of the softmax of the scores, mean over heads (Wang et al. 2020, eq. 6)."""

    @override
    def pair_loss(self, student: Projections, teacher: Projections, tokens: TokenPositions, index: int) -> Tensor:
        return attention_divergence(student.scores, teacher.scores, tokens, student.window, teacher.window)


class RelationsLoss(AttentionLoss):
    """KL(teacher || student) of softmax(A Aᵀ / sqrt(d)), mean over relation heads (Wang et al. 2021, eq. 4 and 5)."""

    def __init__(self, pairs: Sequence[tuple[int, int]], relations: Sequence[str], num_heads: int) -> None:
        super().__init__(pairs)
        self.relations, self.num_heads = tuple(relations), num_heads

    @override
    def pair_loss(self, student: Projections, teacher: Projections, tokens: TokenPositions, index: int) -> Tensor:
        models = student.regrouped(self.num_heads), teacher.regrouped(self.num_heads)
        losses = []
        for name in self.relations:  # "queries", "keys" or "values"
            vectors_by_model = [getattr(projections, name) for projections in models]
            # A Aᵀ / sqrt(d): the scores of attention whose queries and keys are both A
            student_scores, teacher_scores = (
                Projections(vectors, vectors, vectors).scores for vectors in vectors_by_model
            )
            losses.append(attention_divergence(student_scores, teacher_scores, tokens))
        return torch.stack(losses).sum()


def attention_divergence(
    student: Tensor,
    teacher: Tensor,
    tokens: TokenPositions,
    window: int | None = None,
    teacher_window: int | None = None,
) -> Tensor:
    """Return KL(teacher || student) of the attention of each token, mean over heads, summed over tokens: a scalar.

    The attention is the softmax of the scores (B, heads, S, S) over the segment. Scores outside a window are masked:
    `window` masks both models, because the student has no attention outside it; `teacher_window` masks the teacher.
    """
    # padding attends to padding, so that no softmax is empty; the sum excludes padding
    masked = tokens.hidden_pairs(window)
    student_scores = student.masked_fill(masked, _MASKED_SCORE)
    teacher_scores = teacher.masked_fill(masked | tokens.hidden_pairs(teacher_window), _MASKED_SCORE)
    divergence = softmax_divergence(teacher_scores, student_scores).mean(dim=1)
    return divergence.flatten().index_select(0, tokens.token_positions).sum()
