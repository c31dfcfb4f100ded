"""Losses on attention: scores, distributions, and the relations of MiniLM."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from domainbert.distillation.losses import LayerLoss, Outputs, Places, Unit, divergence, full
from domainbert.encoders.recording import Projections

_NEVER = -1e9  # finite, so that the difference of two such scores is a number


class AttentionLoss(LayerLoss):
    """A loss between projections."""

    attends: ClassVar[bool] = True

    def of_layer(self, outputs: Outputs, layer: int, places: Places) -> Projections:
        """See `LayerLoss.of_layer`."""
        return outputs.projections[layer]


class AttentionMSELoss(AttentionLoss):
    """(student - teacher)² of Q Kᵀ / sqrt(d), mean over heads (Jiao et al. 2020, eq. 7)."""

    unit: Unit = "pairs"

    def between(self, student: Projections, teacher: Projections, places: Places, index: int) -> Tensor:
        """See `LayerLoss.between`."""
        own, source = (scores(one.queries, one.keys) for one in (student, teacher))
        return ((own - source).square().mean(dim=1) * places.pairs).sum()


class AttentionKLLoss(AttentionLoss):
    """KL(teacher || student) of softmax(Q Kᵀ / sqrt(d)), mean over heads (Wang et al. 2020, eq. 6)."""

    def between(self, student: Projections, teacher: Projections, places: Places, index: int) -> Tensor:
        """See `LayerLoss.between`."""
        return row_divergence(scores(student.queries, student.keys), scores(teacher.queries, teacher.keys), places)


class RelationsLoss(AttentionLoss):
    """KL(teacher || student) of softmax(A Aᵀ / sqrt(d)), mean over relation heads (Wang et al. 2021, eq. 4 and 5)."""

    def __init__(self, pairs: Sequence[tuple[int, int]], relations: Sequence[str], num_heads: int) -> None:
        super().__init__(pairs)
        self.relations, self.num_heads = tuple(relations), num_heads

    def between(self, student: Projections, teacher: Projections, places: Places, index: int) -> Tensor:
        """See `LayerLoss.between`."""
        sides = student.regrouped(self.num_heads), teacher.regrouped(self.num_heads)
        sums = []
        for name in self.relations:
            own, source = (scores(part, part) for part in (getattr(side, name) for side in sides))
            sums.append(row_divergence(own, source, places))
        return torch.stack(sums).sum()


def scores(left: Tensor, right: Tensor) -> Tensor:
    """left rightᵀ / sqrt(D): (B, heads, S, D) twice -> (B, heads, S, S)."""
    return full(left) @ full(right).transpose(-1, -2) / math.sqrt(left.shape[-1])


def row_divergence(student: Tensor, teacher: Tensor, places: Places) -> Tensor:
    """KL(teacher || student) of each token's distribution over its segment, from scores (B, heads, S, S); mean over
    heads, summed over tokens."""
    # Padding sees itself, so that no softmax is empty; it is left out of the sum.
    same = places.segment_ids.unsqueeze(-1) == places.segment_ids.unsqueeze(-2)
    apart = ~same.unsqueeze(1)
    own, source = (one.masked_fill(apart, _NEVER) for one in (student, teacher))
    return divergence(source, own).mean(dim=1)[places.real].sum()
