"""Operators of torch that have no public name.

Looked up in torch 2.13, and run on a GPU with torch 2.11. With another version, look here first.
"""

from __future__ import annotations

import torch
from torch import Tensor


def flash_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    boundaries: Tensor,
    longest: int,
    window: tuple[int | None, int | None],
    scale: float | None,
    dropout: float,
) -> Tensor:
    """Flash attention (Dao 2023, arXiv:2307.08691) of several texts back to back.

    `torch.nn.attention.varlen.varlen_attn` calls the same operator, without dropout.

    Args:
        query, key, value: (T, heads, D) in bf16 or fp16, on a GPU; the result is like them.
        boundaries: (N + 1,) int32, where each text begins, and T.
        longest: tokens of the longest text at most.
        window: a token attends to as many tokens before and behind it; None is all.
        scale: factor of the scores; None is 1 / sqrt(D).
        dropout: rate on the attention probabilities.
    """
    before, behind = window
    ends = (boundaries, boundaries, longest, longest)
    options = {"scale": scale, "window_size_left": before, "window_size_right": behind}
    mixed: Tensor = torch.ops.aten._flash_attention_forward(query, key, value, *ends, dropout, False, False, **options)[
        0
    ]
    return mixed
