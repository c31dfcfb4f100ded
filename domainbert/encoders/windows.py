"""Attention within a window, in blocks: what lies outside all windows is not computed.

The rows of a batch are put end to end and cut into blocks of `b` queries. A block sees its own tokens and a window on
either side, `k = b + 2 * window` keys; a mask keeps texts, and rows, apart. So the work grows with the number of
tokens, and not with that times the length of a row.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from domainbert.encoders.packed import text_numbers

_SMALLEST = 32  # queries of a block: products of fewer rows are slow


def gains(length: int, window: int) -> bool:
    """Whether blocks are faster than whole rows of so many tokens: where they see half of a row, or less."""
    return length >= 2 * (_queries(window) + 2 * window)


def _queries(window: int) -> int:
    return max(window, _SMALLEST)


def block_mask(segment_ids: Tensor, window: int) -> Tensor:
    """Mask by which a token sees those of its own segment within its window: (B, S) -> (n, b, k), 0 or -inf.

    Padding sees padding, and what fills up the last block sees itself.
    """
    rows, length = segment_ids.shape
    size = _queries(window)
    texts = functional.pad(text_numbers(segment_ids).flatten(), (0, -rows * length % size), value=-1)
    keys = functional.pad(texts, (window, window), value=-2).unfold(0, size + 2 * window, size)  # (n, k)
    places = torch.arange(size + 2 * window, device=segment_ids.device)
    near = (places - window - places[:size].unsqueeze(-1)).abs() <= window
    seen = near & (texts.view(-1, size, 1) == keys.unsqueeze(-2))
    return torch.zeros(seen.shape, device=seen.device).masked_fill(~seen, float("-inf"))


def attend_in_blocks(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    """Attention with a window, (B, heads, S, D) each -> (B, heads, S, D); `mask` is from `block_mask`."""
    rows, heads, length, width = query.shape
    count, size, _ = mask.shape
    window = (mask.shape[-1] - size) // 2
    scaled = query / math.sqrt(width) if scale is None else query * scale
    query, key, value = (_end_to_end(one, count * size) for one in (scaled, key, value))
    scores = query.reshape(-1, size, width) @ _Around.apply(key, size, window)  # (heads * n, b, k)
    scores = scores.unflatten(0, (heads, count))
    scores += mask.to(scores.dtype)
    mixed = scores.softmax(dim=-1).flatten(0, 1) @ _Around.apply(value, size, window).transpose(-1, -2)
    return mixed.view(heads, -1, width)[:, : rows * length].unflatten(1, (rows, length)).transpose(0, 1)


def _end_to_end(rows: Tensor, length: int) -> Tensor:
    """(B, heads, S, D) -> (heads, length, D): the rows of each head one behind the other, and 0 to the end."""
    joined = rows.transpose(0, 1).flatten(1, 2)
    return functional.pad(joined, (0, 0, 0, length - joined.shape[1]))


class _Around(torch.autograd.Function):
    """(heads, length, D) -> (heads * n, D, k): each block with a window on either side, without a copy of its own.

    The last block of a head looks into the next head, where the mask lets it see nothing. The gradient is summed by
    whole blocks; that of `Tensor.unfold` goes element by element, and takes longer than the products.
    """

    @staticmethod
    def forward(ctx: Any, joined: Tensor, size: int, window: int) -> Tensor:
        ctx.shape, ctx.size, ctx.window = joined.shape, size, window
        return functional.pad(joined.flatten(0, 1), (0, 0, window, window)).unfold(0, size + 2 * window, size)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        length, width = ctx.shape[0] * ctx.shape[1], ctx.shape[2]
        parts = gradient.transpose(1, 2).split(ctx.size, dim=1)  # each (heads * n, b or less, D)
        summed = gradient.new_zeros(length + (len(parts) - 1) * ctx.size, width)
        for number, part in enumerate(parts):
            blocks = summed[number * ctx.size :][:length].view(-1, ctx.size, width)
            blocks[:, : part.shape[1]] += part
        return summed[ctx.window :][:length].view(ctx.shape), None, None
