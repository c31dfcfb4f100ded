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
        scores = query / math.sqrt(query.shape[-1]) @ key.transpose(-1, -2)  # (B, heads, S, S)
        scores += mask.to(scores.dtype)
        return dropout(scores.softmax(dim=-1), dropout_rate) @ value
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.to(query.dtype), dropout_p=dropout_rate
    )


def dropout(values: Tensor, rate: float) -> Tensor:
    """Zero each element with probability `rate`, and scale the others by 1 / (1 - rate).

    On a CPU the probability is `rate` to the nearest 1 / 65536.
    """
    if not rate or values.device.type != "cpu":
        return functional.dropout(values, rate)
    return values * _kept(values.shape, rate).to(values.dtype).mul_(1 / (1 - rate))


def _kept(shape: torch.Size, rate: float) -> Tensor:
    """1 where an element is kept, else 0, as int16.

    A random number of 64 bits serves four elements: on a CPU, torch draws numbers one after the other in one thread.
    Clamping stands for a comparison because booleans are slow to convert, and slower yet in what torch.compile makes.
    """
    count = math.prod(shape)
    bits = torch.empty(-(-count // 4), dtype=torch.int64).random_(-(2**63), None).view(torch.int16)
    dropped = min(round(rate * 2**16), 2**16 - 1)  # of the 65,536 numbers, so many, the lowest
    if not dropped:
        return torch.ones(shape, dtype=torch.int16)
    last = dropped - 1 - 2**15
    return bits[:count].view(shape).clamp_(last, last + 1).sub_(last)
