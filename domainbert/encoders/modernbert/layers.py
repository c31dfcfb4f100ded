"""Layers of ModernBERT: pre-norm, with rotary positions, windows and gates."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from domainbert.encoders.layers import ACTIVATIONS, Dropout, MultiHead, Segments, StackedLinear
from domainbert.encoders.modernbert.config import ModernBertConfig
from domainbert.encoders.packed import select


class Rotation(NamedTuple):
    """Rotation of queries and keys by position: cosines and sines of the angles, each (B, 1, S, D / 2)."""

    cosines: Tensor
    sines: Tensor

    def rotate(self, heads: Tensor) -> Tensor:
        """Return `heads` (..., B, heads, S, D) after rotation (Su et al. 2021, eq. 34), computed in fp32 or wider.

        Elements k and k + D / 2 are a pair.
        """
        first, second = heads.to(torch.promote_types(heads.dtype, torch.float32)).chunk(2, dim=-1)
        rotated = first * self.cosines - second * self.sines, second * self.cosines + first * self.sines
        return torch.cat(rotated, dim=-1).to(heads.dtype)


def rotation(position_ids: Tensor, head_size: int, theta: float) -> Rotation:
    """Return the rotation by the angles position * theta^(-2k / D), for positions (B, S) and heads of width D."""
    rates = 1.0 / theta ** (torch.arange(0, head_size, 2, device=position_ids.device).float() / head_size)
    angles = position_ids[:, None, :, None].float() * rates
    return Rotation(angles.cos(), angles.sin())


class Context(NamedTuple):
    """Values that all layers share in a batch."""

    segments: Segments
    global_rotation: Rotation
    local_rotation: Rotation


class RotarySelfAttention(MultiHead):
    """Multi-head self-attention with rotary positions, within a window or (None) over the whole text."""

    def __init__(self, config: ModernBertConfig, window: int | None) -> None:
        sizes = config.hidden_size, config.num_attention_heads
        super().__init__(*sizes, config.attention_dropout, window, bias=config.attention_bias)
        self.dropout = Dropout(config.attention_dropout)

    def forward(self, hidden: Tensor, context: Context, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        heads = self.project(hidden)
        rotation = context.global_rotation if self.attend.window is None else context.local_rotation
        query, key = rotation.rotate(heads[:2])
        mixed = self.attend(query, key, heads[2], context.segments)
        return self.dropout(self.join_heads(mixed, positions))


class GatedFeedForward(nn.Module):
    """GeGLU (Shazeer 2020, eq. 6), with any activation: the first half of a linear layer gates the second."""

    def __init__(self, config: ModernBertConfig) -> None:
        super().__init__()
        self.expand = StackedLinear(config.hidden_size, config.intermediate_size, 2, bias=config.mlp_bias)
        self.activation = ACTIVATIONS[config.hidden_activation]
        self.dropout = Dropout(config.mlp_dropout)
        self.contract = nn.Linear(config.intermediate_size, config.hidden_size, bias=config.mlp_bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """Return new hidden states of the same shape, (..., H)."""
        gate, states = self.expand(hidden).chunk(2, dim=-1)
        return self.contract(self.dropout(self.activation(gate) * states))


class PreNormLayer(nn.Module):
    """A layer that normalises the inputs of attention and feed-forward; the embeddings normalise the first input."""

    def __init__(self, config: ModernBertConfig, window: int | None, is_first: bool) -> None:
        super().__init__()
        self.attention_norm = nn.Identity() if is_first else layer_norm(config)
        self.attention = RotarySelfAttention(config, window)
        self.feed_forward_norm = layer_norm(config)
        self.feed_forward = GatedFeedForward(config)

    def forward(self, hidden: Tensor, context: Context, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        mixed = self.attention(self.attention_norm(hidden), context, positions)
        hidden = select(hidden, positions) + mixed
        return hidden + self.feed_forward(self.feed_forward_norm(hidden))


def layer_norm(config: ModernBertConfig) -> nn.LayerNorm:
    """Return a layer norm of the hidden size, with or without a bias."""
    return nn.LayerNorm(config.hidden_size, eps=config.norm_eps, bias=config.norm_bias)
