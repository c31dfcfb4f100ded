"""The distillation losses: their interface, on what is predicted, on hidden states, and on attention."""

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
"""Unit that a loss is a mean of: targets (masked tokens, labelled words or texts), outputs (words or texts of a task),
examples (labelled or not), tokens that are not padding, segments (texts in the packed rows), or pairs of tokens of a
segment."""

_NEVER = -1e9  # a score, finite, so that the difference of two is a number


@dataclass(frozen=True)
class Outputs:
    """Outputs of a model for a batch; only what some loss needs is there.

    Attributes:
        hidden: of every layer, the embeddings first, each (B, S, H).
        projections: of the layers that losses name.
        logits: at the positions that are predicted, (N, C).
        all_logits: at every token that is not padding, (tokens, C).
        example: of a task, the example of each of `logits`, or -1: see `Teaching.divergence`; of a student only.
        hard_loss: cross-entropy with what is true, summed; of a student only.
    """

    hidden: list[Tensor]
    projections: dict[int, Projections]
    logits: Tensor | None = None
    all_logits: Tensor | None = None
    example: Tensor | None = None
    hard_loss: Tensor | None = None


@dataclass(frozen=True)
class Places:
    """Places in packed rows where the losses look: of (B, S) tokens, whose positions restart with each segment.

    `given` are `real_places` and `first_places` of the batch, where it has them: a GPU is waited for to find them.
    """

    position_ids: Tensor
    segment_ids: Tensor
    given: Mapping[str, Tensor] = field(default_factory=dict)

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> Places:
        """Return the places of a batch."""
        return cls(batch["position_ids"], batch["segment_ids"], batch)

    @property
    def real(self) -> Tensor:
        """(B, S) which tokens are not padding."""
        return self.segment_ids > 0

    @property
    def pairs(self) -> Tensor:
        """(B, S, S) which tokens are of the same segment."""
        same = self.segment_ids.unsqueeze(-1) == self.segment_ids.unsqueeze(-2)
        return same & self.real.unsqueeze(-1)

    def hidden_pairs(self, window: int | None) -> Tensor:
        """(B, 1, S, S) which tokens do not see each other: those of two segments, or further apart than a window."""
        hidden = self.segment_ids.unsqueeze(-1) != self.segment_ids.unsqueeze(-2)
        if window is not None:
            places = torch.arange(hidden.shape[-1], device=hidden.device)
            hidden = hidden | ((places.unsqueeze(-1) - places).abs() > window)
        return hidden.unsqueeze(1)

    @cached_property
    def first_places(self) -> Tensor:
        """(segments,) the first token of each segment in the flattened rows: its [CLS]."""
        return self._place("first_places", (self.position_ids == 0) & self.real)

    @cached_property
    def real_places(self) -> Tensor:
        """(tokens,) the tokens in the flattened rows that are not padding."""
        return self._place("real_places", self.real)

    def _place(self, name: str, chosen: Tensor) -> Tensor:
        return self.given[name] if name in self.given else chosen.flatten().nonzero().flatten()


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
        self.divergence: Callable[..., Tensor] = softmax_divergence
        """Between what teacher and student predict; of a task it is given `Outputs.example`, too."""

    @abstractmethod
    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        """The sum over the micro-batch, a scalar; `teacher` is None only where no loss needs it."""


class SoftTargetsLoss(DistillationLoss):
    """T² KL(softmax(teacher / T) || softmax(student / T)) (Hinton et al. 2015, section 2), at predicted positions or,
    if `every`, at all tokens that are not padding (Sanh et al. 2019, section 2).

    T² keeps the gradient's size whatever the temperature.
    """

    unit: Unit = "outputs"
    reads: Reads = "predicted"

    def __init__(self, temperature: float, every: bool) -> None:
        super().__init__()
        self.temperature = temperature
        if every:
            self.unit, self.reads = "tokens", "all"

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        logits = "all_logits" if self.reads == "all" else "logits"
        own, source = (full(getattr(one, logits)) / self.temperature for one in (student, teacher))
        of_task = () if student.example is None else (student.example,)
        return self.temperature**2 * self.divergence(source, own, *of_task).sum()


class HardTargetsLoss(DistillationLoss):
    """Cross-entropy with the true classes, which whoever runs the student computes: a task has its own way."""

    unit: Unit = "targets"
    reads: Reads = "hard"
    needs_teacher: ClassVar[bool] = False

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        assert student.hard_loss is not None
        return student.hard_loss


class LogitMSELoss(DistillationLoss):
    """Mean over the classes of (student - teacher)² (Ba and Caruana 2014, eq. 1)."""

    unit: Unit = "outputs"
    reads: Reads = "predicted"

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        assert teacher is not None and teacher.logits is not None and student.logits is not None
        return (full(student.logits) - full(teacher.logits)).square().mean(dim=-1).sum()


class LayerLoss(DistillationLoss):
    """A loss between layers, summed over pairs of them."""

    unit: Unit = "tokens"

    def __init__(self, pairs: Sequence[tuple[int, int]]) -> None:
        super().__init__()
        self.pairs = list(pairs)

    @override
    def forward(self, student: Outputs, teacher: Outputs | None, places: Places) -> Tensor:
        assert teacher is not None
        sums = [
            self.between(self.of_layer(student, own, places), self.of_layer(teacher, source, places), places, index)
            for index, (own, source) in enumerate(self.pairs)
        ]
        return torch.stack(sums).sum()

    @abstractmethod
    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Any:
        """The part of a layer, of either side, that is compared."""

    @abstractmethod
    def between(self, student: Any, teacher: Any, places: Places, index: int) -> Tensor:
        """The sum over one pair of layers, number `index` of all."""


class HiddenLoss(LayerLoss):
    """A loss between hidden states."""

    @override
    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Tensor:
        """Hidden states (N, H) of the tokens that are not padding."""
        return full(select(outputs.hidden[layer], places.real_places))


class HiddenCosineLoss(HiddenLoss):
    """1 - cos(student, teacher) (Sanh et al. 2019, section 2)."""

    @override
    def between(self, student: Tensor, teacher: Tensor, places: Places, index: int) -> Tensor:
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
    def between(self, student: Tensor, teacher: Tensor, places: Places, index: int) -> Tensor:
        if len(self.projections):
            student = full(self.projections[index % len(self.projections)](student))
        return (student - teacher).square().mean(dim=-1).sum()


class PatientCLSLoss(HiddenLoss):
    """|| student / |student| - teacher / |teacher| ||² at [CLS] (Sun et al. 2019, eq. 7)."""

    unit: Unit = "segments"

    @override
    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Tensor:
        """Mean hidden states (segments, H)."""
        return full(select(outputs.hidden[layer], places.first_places))

    @override
    def between(self, student: Tensor, teacher: Tensor, places: Places, index: int) -> Tensor:
        difference = functional.normalize(student, dim=-1) - functional.normalize(teacher, dim=-1)
        return difference.square().sum()


class AttentionLoss(LayerLoss):
    """A loss between projections."""

    attends: ClassVar[bool] = True

    @override
    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Projections:
        return outputs.projections[layer]


class AttentionMSELoss(AttentionLoss):
    """(student - teacher)² of the scores, Q Kᵀ / sqrt(d) in BERT, mean over heads (Jiao et al. 2020, eq. 7); 0 outside
    of a window."""

    unit: Unit = "pairs"

    @override
    def between(self, student: Projections, teacher: Projections, places: Places, index: int) -> Tensor:
        hidden = places.hidden_pairs(student.window) | places.hidden_pairs(teacher.window)
        apart = (student.scores - teacher.scores).masked_fill(hidden, 0)
        return (apart.square().mean(dim=1) * places.pairs).sum()


class AttentionKLLoss(AttentionLoss):
    """KL(teacher || student) of the softmax of the scores, mean over heads (Wang et al. 2020, eq. 6)."""

    @override
    def between(self, student: Projections, teacher: Projections, places: Places, index: int) -> Tensor:
        return row_divergence(student.scores, teacher.scores, places, student.window, teacher.window)


class RelationsLoss(AttentionLoss):
    """KL(teacher || student) of softmax(A Aᵀ / sqrt(d)), mean over relation heads (Wang et al. 2021, eq. 4 and 5)."""

    def __init__(self, pairs: Sequence[tuple[int, int]], relations: Sequence[str], num_heads: int) -> None:
        super().__init__(pairs)
        self.relations, self.num_heads = tuple(relations), num_heads

    @override
    def between(self, student: Projections, teacher: Projections, places: Places, index: int) -> Tensor:
        sides = student.regrouped(self.num_heads), teacher.regrouped(self.num_heads)
        sums = []
        for name in self.relations:
            own, source = (scores(part, part) for part in (getattr(side, name) for side in sides))
            sums.append(row_divergence(own, source, places))
        return torch.stack(sums).sum()


def scores(left: Tensor, right: Tensor) -> Tensor:
    """left rightᵀ / sqrt(D): (B, heads, S, D) twice -> (B, heads, S, S)."""
    return full(left) @ full(right).transpose(-1, -2) / math.sqrt(left.shape[-1])


def row_divergence(
    student: Tensor, teacher: Tensor, places: Places, window: int | None = None, teacher_window: int | None = None
) -> Tensor:
    """KL(teacher || student) of each token's distribution over its segment, from scores (B, heads, S, S); mean over
    heads, summed over tokens. Each looks through its window, and the teacher no further than the student can."""
    # Padding sees itself, so that no softmax is empty; it is left out of the sum.
    hidden = places.hidden_pairs(window)
    own = student.masked_fill(hidden, _NEVER)
    source = teacher.masked_fill(hidden | places.hidden_pairs(teacher_window), _NEVER)
    return softmax_divergence(source, own).mean(dim=1).flatten().index_select(0, places.real_places).sum()
