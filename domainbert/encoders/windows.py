"""Attention with a window in blocks: scores outside all windows are not computed.

The rows of a batch are concatenated and split into blocks of `b` queries. A block sees its own tokens and a window on
either side, `k = b + 2 * window` keys; a mask separates texts and rows. The cost is linear in the number of tokens.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from domainbert.encoders.packed import text_ids

_MIN_BLOCK = 32  # least number of queries in a block: products of fewer rows are slow


def blocks_are_faster(length: int, window: int) -> bool:
    """Return whether blocks are faster than whole rows of `length` tokens: when a block sees at most half of a row."""
    return length >= 2 * (_block_size(window) + 2 * window)


def _block_size(window: int) -> int:
    return max(window, _MIN_BLOCK)


def block_mask(segment_ids: Tensor, window: int) -> Tensor:
    """Return an additive mask for windows within segments: (B, S) -> (n, b, k), 0 for visible pairs, else -inf.

    The B * S tokens are split into n blocks of b tokens; each block has k = b + 2 * window keys. Padding sees padding,
    and tokens appended to fill the last block see themselves.
    """
    size = _block_size(window)
    num_appended = -segment_ids.numel() % size
    texts = functional.pad(text_ids(segment_ids).flatten(), (0, num_appended), value=-1)  # appended tokens are text -1
    # (n, k) texts of the keys; -2 is no text, so nothing sees keys before the first token or after the last
    keys = functional.pad(texts, (window, window), value=-2).unfold(0, size + 2 * window, size)
    # places in the stream, relative to the first query of the block
    key_places = torch.arange(-window, size + window, device=segment_ids.device)
    query_places = torch.arange(size, device=segment_ids.device)
    in_window = (key_places - query_places.unsqueeze(-1)).abs() <= window
    visible = in_window & (texts.view(-1, size, 1) == keys.unsqueeze(-2))
    return torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, float("-inf"))


def attend_in_blocks(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float | None) -> Tensor:
    """Return attention within windows: (B, heads, S, D) each -> (B, heads, S, D); `mask`: from `block_mask`."""
    rows, heads, length, width = query.shape
    num_blocks, size, num_keys = mask.shape  # n, b and k
    window = (num_keys - size) // 2
    scaled = query / math.sqrt(width) if scale is None else query * scale
    query, key, value = (_concatenate_rows(part, num_blocks * size) for part in (scaled, key, value))
    keys, values = (_BlocksWithWindows.apply(part, size, window) for part in (key, value))  # (heads * n, D, k) each
    scores = (query.reshape(-1, size, width) @ keys).unflatten(0, (heads, num_blocks))  # (heads, n, b, k)
    scores += mask.to(scores.dtype)
    mixed = scores.softmax(dim=-1).flatten(0, 1) @ values.transpose(-1, -2)  # (heads * n, b, D)
    of_tokens = mixed.view(heads, -1, width)[:, : rows * length]  # without those appended to fill the last block
    return of_tokens.unflatten(1, (rows, length)).transpose(0, 1)


def _concatenate_rows(rows: Tensor, length: int) -> Tensor:
    """Return the rows of each head, concatenated and padded with 0: (B, heads, S, D) -> (heads, length, D)."""
    joined = rows.transpose(0, 1).flatten(1, 2)
    return functional.pad(joined, (0, 0, 0, length - joined.shape[1]))


class _BlocksWithWindows(torch.autograd.Function):
    """Each block with a window on either side, as a view: (heads, length, D) -> (heads * n, D, k).

    The window of the last block of a head overlaps the next head, which the mask hides. The gradient is summed by whole
    blocks; the gradient of `Tensor.unfold` is summed by elements, which takes longer than the products.
    """

    @staticmethod
    def forward(ctx: Any, joined: Tensor, size: int, window: int) -> Tensor:
        """Return the blocks of `size` states, each with a window: (heads, length, D) -> (heads * n, D, k)."""
        ctx.shape, ctx.size, ctx.window = joined.shape, size, window
        return functional.pad(joined.flatten(0, 1), (0, 0, window, window)).unfold(0, size + 2 * window, size)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        """Add the gradients of all copies of a state: (heads * n, D, k) -> (heads, length, D), with n blocks of b
        states per head (b is `ctx.size`) and k keys per block.

        `summed` has the states of all heads, after the window before the first block: block i has the keys from row
        i * b on. Keys beyond the end of a head have gradient 0, because the mask hides them.
        """
        total_length, width = ctx.shape[0] * ctx.shape[1], ctx.shape[2]
        # the k keys of each block, divided into parts of b keys
        parts = gradient.transpose(1, 2).split(ctx.size, dim=1)  # each (heads * n, b or less, D)
        summed = gradient.new_zeros(total_length + (len(parts) - 1) * ctx.size, width)
        for index, part in enumerate(parts):  # the part of block i has the rows of block i + index
            blocks = summed[index * ctx.size :][:total_length].view(-1, ctx.size, width)
            blocks[:, : part.shape[1]] += part
        return summed[ctx.window :][:total_length].view(ctx.shape), None, None
