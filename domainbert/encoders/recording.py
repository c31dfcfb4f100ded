"""Records hidden states of all layers, and queries, keys and values of some, for losses between two encoders.

The hooks exist only during a recording, so they cost nothing at other times.
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

from domainbert.encoders.base import Encoder
from domainbert.encoders.layers import Attention, segment_mask
from domainbert.encoders.packed import Packed


@dataclass(frozen=True)
class Projections:
    """Inputs of the attention of a layer, each (B, heads, S, D), and a bias of the scores, (B or 1, heads, S, S)."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    bias: Tensor | None = None
    scale: float | None = None
    """Factor of the scores; None is 1 / sqrt(D)."""
    window: int | None = None
    """Largest distance between a token and the tokens that it sees; None is unlimited."""

    @property
    def scores(self) -> Tensor:
        """Attention scores, the input of the softmax, without masks: (B, heads, S, S), in fp32 or wider."""
        queries, keys = (part.to(torch.promote_types(part.dtype, torch.float32)) for part in (self.queries, self.keys))
        products = queries @ keys.transpose(-1, -2)
        scaled = products / math.sqrt(queries.shape[-1]) if self.scale is None else products * self.scale
        return scaled if self.bias is None else scaled + self.bias

    def probabilities(self, segment_ids: Tensor) -> Tensor:
        """Return the attention probabilities within texts and windows: (B, S) -> (B, heads, S, S); rows sum to 1."""
        return (self.scores + segment_mask(segment_ids, self.window)).softmax(dim=-1)

    def regrouped(self, num_heads: int) -> Projections:
        """Return the projections with heads joined and split into `num_heads` new ones, each (B, num_heads, S, D).

        Bias, scale and window, which belong to the attention with the old heads, are left out.
        """
        parts = (heads.transpose(1, 2).flatten(2) for heads in (self.queries, self.keys, self.values))  # (B, S, H)
        return Projections(*(part.unflatten(2, (num_heads, -1)).transpose(1, 2) for part in parts))


class Recording(NamedTuple):
    """Recorded states of one pass through an encoder."""

    hidden: list[Tensor]
    """Outputs of the embeddings and of every layer, each (B, S, H)."""
    projections: dict[int, Projections]
    """Projections of the requested layers, by number; 1 is the first layer."""


def record(encoder: Encoder, tokens: Packed, layers: Collection[int] = ()) -> Recording:
    """Run an encoder and return its hidden states, and the projections of `layers` (1 is the first)."""
    projections: dict[int, Projections] = {}
    block_numbers = itertools.count(1)  # each block has one attention, so the n-th call belongs to block n

    def record_projections(module: Attention, inputs: tuple[Any, ...]) -> None:
        """Record the inputs of an attention: query, key, value, segments and, in some families, a bias."""
        number = next(block_numbers)
        if number in layers:
            queries, keys, values, segments, *biases = inputs
            bias = biases[0] if biases else segments.bias  # of this layer, or shared by all layers
            projections[number] = Projections(queries, keys, values, bias, module.scale, module.window)

    with ExitStack() as hooks:  # removes the hooks
        for module in encoder.modules() if layers else ():
            if isinstance(module, Attention):
                hooks.enter_context(module.register_forward_pre_hook(record_projections))
        return Recording(encoder.hidden_states(tokens), projections)
