"""Settings of losses on attention. Imports no torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Items, Range
from domainbert.distillation.config import LayerLossConfig, Sizes, check_equal, uniform_pairs

if TYPE_CHECKING:
    from domainbert.distillation.losses import DistillationLoss

_SAME_HEADS = "the same number of heads, or Relations, which regroups heads"


@dataclass(frozen=True)
class AttentionMSE(LayerLossConfig):
    """Mean squared difference of the attention scores before the softmax (Jiao et al. 2020, TinyBERT,
    arXiv:1909.10351, eq. 7), summed over layers. Default layers: all, mapped uniformly."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import AttentionMSELoss

        check_equal("num_attention_heads", student.num_heads, teacher.num_heads, _SAME_HEADS)
        pairs = self.pairs(student, teacher, default=uniform_pairs(student, teacher, first=1), lowest=1)
        return AttentionMSELoss(pairs)


@dataclass(frozen=True)
class AttentionKL(LayerLossConfig):
    """KL divergence of the attention distributions, mean over heads (Wang et al. 2020, MiniLM, arXiv:2002.10957,
    eq. 6). Default layer: the last."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import AttentionKLLoss

        check_equal("num_attention_heads", student.num_heads, teacher.num_heads, _SAME_HEADS)
        pairs = self.pairs(student, teacher, default=[(student.num_layers, teacher.num_layers)], lowest=1)
        return AttentionKLLoss(pairs)


@dataclass(frozen=True)
class Relations(LayerLossConfig):
    """KL divergence of softmax(A Aᵀ / sqrt(d)) between all tokens of a text, where A is the queries, keys or values
    regrouped into relation heads (Wang et al. 2021, MiniLMv2, arXiv:2012.15828, eq. 4 and 5); mean over relation heads,
    summed over relations. `values` alone with the heads of the model is MiniLM's value relation (eq. 8 and 9 there).
    Default layer: the last."""

    relations: Annotated[tuple[Literal["queries", "keys", "values"], ...], Items()] = ("queries", "keys", "values")
    """Relations to compare."""

    relation_heads: Annotated[int, Range(1, 10_000)] | None = None
    """Number of heads into which the hidden size of both models is divided (MiniLMv2: 48 or 64). None takes the number
    of attention heads, which must be equal in both models."""

    @override
    def build(self, student: Sizes, teacher: Sizes) -> DistillationLoss:
        from domainbert.distillation.losses import RelationsLoss

        heads = self.relation_heads
        if heads is None:
            check_equal("num_attention_heads", student.num_heads, teacher.num_heads, "set relation_heads")
            heads = teacher.num_heads
        for name, sizes in (("student", student), ("teacher", teacher)):
            if sizes.hidden_size % heads:
                expected = f"a divisor of the hidden_size of the {name}, {sizes.hidden_size}"
                raise DomainbertError(found=f"relation_heads: {heads}", expected=expected)
        pairs = self.pairs(student, teacher, default=[(student.num_layers, teacher.num_layers)], lowest=1)
        return RelationsLoss(pairs, self.relations, heads)
