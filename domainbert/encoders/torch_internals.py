"""Private operators of torch.

Checked with the source of torch 2.13, and run on a GPU with torch 2.11. Check them again for other versions.
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
    """Return the result of flash attention (Dao 2023, arXiv:2307.08691) within concatenated texts, (T, heads, D).

    `torch.nn.attention.varlen.varlen_attn` calls the same operator, without dropout.

    Args:
        query, key, value: (T, heads, D) in bf16 or fp16, on a GPU.
        boundaries: (N + 1,) int32, the start of each text, and T.
        longest: upper limit of the tokens of a text.
        window: visible tokens before and after a token; None is unlimited.
        scale: factor of the scores; None is 1 / sqrt(D).
        dropout: rate on the attention probabilities.
    """
    before, after = window
    ends = (boundaries, boundaries, longest, longest)
    options = {"scale": scale, "window_size_left": before, "window_size_right": after}
    mixed: Tensor = torch.ops.aten._flash_attention_forward(query, key, value, *ends, dropout, False, False, **options)[
        0
    ]
    return mixed
