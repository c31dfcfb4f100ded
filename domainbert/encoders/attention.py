"""The one place that chooses an attention kernel."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional

_EXPLICIT_LENGTH = 256  # rows up to this length: S x S scores are small, and torch's fused CPU backward is slow


def segment_mask(segment_ids: Tensor) -> Tensor:
    """Which token may see which, those of its own segment: (B, S) -> (B, 1, S, S), 0 where it may and -inf elsewhere.

    Padding (segment 0) sees padding, so that no row of the softmax is empty; nothing reads its output.
    """
    same = segment_ids.unsqueeze(-1) == segment_ids.unsqueeze(-2)
    return torch.zeros(same.shape, device=same.device).masked_fill(~same, float("-inf")).unsqueeze(1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout_rate: float = 0.0) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), each segment by itself.

    On a CPU, training at short lengths spells the attention out: the backward pass of torch's fused kernel takes five
    times as long there, and no fused CPU kernel has dropout.

    Args:
        query: (B, heads, S, D), as are `key` and `value`.
        key: see `query`.
        value: see `query`.
        mask: from `segment_mask`, (B, 1, S, S), added to the scores.
        dropout_rate: on the attention probabilities.

    Returns:
        (B, heads, S, D).
    """
    short = torch.is_grad_enabled() and query.shape[-2] <= _EXPLICIT_LENGTH
    if query.device.type == "cpu" and (dropout_rate or short):
        scores = query @ key.transpose(-1, -2) / math.sqrt(query.shape[-1]) + mask  # (B, heads, S, S)
        return dropout(scores.softmax(dim=-1).to(value.dtype), dropout_rate) @ value
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.to(query.dtype), dropout_p=dropout_rate
    )


def dropout(values: Tensor, rate: float) -> Tensor:
    """Zero each element with probability `rate`, and scale the others by 1 / (1 - rate)."""
    if not rate or values.device.type != "cpu":
        return functional.dropout(values, rate)
    # On a CPU torch draws Bernoulli numbers several times slower than uniform ones.
    kept = torch.rand(values.shape) >= rate
    return values * kept.to(values.dtype).mul_(1 / (1 - rate))
