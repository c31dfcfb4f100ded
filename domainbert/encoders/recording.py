"""Records what losses between two encoders compare: hidden states of every layer, and queries, keys and values of some.

Projections are taken by hooks that exist only while they are wanted, so an encoder that nobody looks into pays nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import Tensor

from domainbert.encoders.attention import segment_mask
from domainbert.encoders.base import Encoder
from domainbert.encoders.layers import Attention
from domainbert.encoders.packed import Packed


@dataclass(frozen=True)
class Projections:
    """Inputs of the attention of one layer, each (B, heads, S, D) but for the scores' bias, (B or 1, heads, S, S)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    bias: Tensor | None = None
    scale: float | None = None
    """Factor of the scores; None is 1 / sqrt(D)."""
    window: int | None = None
    """Distance that a token sees in its text; None is all of it."""

    @property
    def scores(self) -> Tensor:
        """Input of the softmax, tokens of other texts included: (B, heads, S, S), in fp32 or more."""
        queries, keys = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in (self.queries, self.keys))
        products = queries @ keys.transpose(-1, -2)
        scaled = products / math.sqrt(queries.shape[-1]) if self.scale is None else products * self.scale
        return scaled if self.bias is None else scaled + self.bias

    def probabilities(self, segment_ids: Tensor) -> Tensor:
        """Attention of each token to those of its text that it sees: (B, S) -> (B, heads, S, S), rows add up to 1."""
        return (self.scores + segment_mask(segment_ids, self.window)).softmax(dim=-1)

    def regrouped(self, num_heads: int) -> Projections:
        """The same with the heads put together and the width H divided among `num_heads` others: (B, heads, S, D)."""
        parts = (heads.transpose(1, 2).flatten(2) for heads in (self.queries, self.keys, self.values))  # (B, S, H)
        return Projections(*(part.unflatten(2, (num_heads, -1)).transpose(1, 2) for part in parts))


class Recording(NamedTuple):
    """One pass through an encoder."""

    hidden: list[Tensor]
    """The embeddings' output and every layer's, each (B, S, H)."""
    projections: dict[int, Projections]
    """Of the layers asked for, by their number; 1 is the first layer."""


def record(encoder: Encoder, tokens: Packed, layers: Collection[int] = ()) -> Recording:
    """Run an encoder and keep what losses look at; `layers` are those, from 1, whose projections are kept."""
    projections: dict[int, Projections] = {}
    numbers = itertools.count(1)  # each block has one attention, so the n-th that runs is that of block n

    def keep(module: Attention, inputs: tuple[Any, ...]) -> None:
        if (number := next(numbers)) in layers:
            queries, keys, values = (part.view_as(part) for part in inputs[:3])
            bias = inputs[4] if len(inputs) > 4 else inputs[3].bias
            bias = None if bias is None else bias.view_as(bias)
            projections[number] = Projections(queries, keys, values, bias, module.scale, module.window)

    with ExitStack() as hooks:
        for part in encoder.modules() if layers else ():
            if isinstance(part, Attention):
                hooks.enter_context(part.register_forward_pre_hook(keep))
        return Recording(encoder.hidden_states(tokens), projections)
