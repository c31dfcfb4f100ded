"""The one place that chooses an attention kernel.

| where | kernel |
|---|---|
| CPU, window, no dropout, no bias, rows of twice the keys of a block | spelt out, in blocks (`windows.py`) |
| CPU, training, rows up to 256 tokens (bf16: 768), with dropout or with a bias | spelt out |
| CPU, prediction in bf16, several rows with up to 8 MiB of scores | spelt out |
| CPU, a bias in fp32 beside scores in bf16 | spelt out |
| CPU, else | `scaled_dot_product_attention` with a mask |
| GPU (Ampere or newer), bf16 or fp16, no bias, heads of 8, 16, ... 256 | flash attention, text by text |
| GPU, else | `scaled_dot_product_attention` with a mask |

Flash attention is called as an operator of torch because `torch.nn.attention.varlen.varlen_attn` has no dropout. On an
H100, BERT-base's 12 layers on 64 rows of 512 tokens, a few with several texts, take 12.8 ms forward and backward with
dropout, with a mask 15.5, and without a mask, were each row one text, 11.5; the rows of one text without a mask and the
others text by text take 16.8, since both results have to be joined.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from domainbert.encoders.packed import Packed, segment_starts
from domainbert.encoders.torch_internals import flash_attention
from domainbert.encoders.windows import attend_in_blocks, block_mask, gains

# Rows up to this length, by the bytes of a number: S x S scores are small, and torch's fused backward on a CPU is slow.
# In bf16 it takes 2.7 times as long at 512 tokens, and 1.3 times at 1024, where the scores take much memory.
_EXPLICIT_LENGTH = {2: 768, 4: 256, 8: 256}

# Bytes of scores up to which prediction in bf16 takes two thirds of the time of torch's fused kernel on a CPU. More of
# them are handed back to the system and asked for again, at each layer.
_FEW_SCORES = 8 << 20


def segment_mask(segment_ids: Tensor, window: int | None = None) -> Tensor:
    """Mask by which a token sees those of its own segment: (B, S) -> (B, 1, S, S), 0 where it may and -inf elsewhere.

    With a window, a token sees the tokens at most `window` places before or after it.
    Padding (segment 0) sees padding, so that no row of the softmax is empty; nothing reads its output.
    """
    same = segment_ids.unsqueeze(-1) == segment_ids.unsqueeze(-2)
    if window is not None:
        places = torch.arange(segment_ids.shape[-1], device=same.device)  # a text stands in one piece: places will do
        same = same & ((places - places.unsqueeze(-1)).abs() <= window)
    return torch.zeros(same.shape, device=same.device).masked_fill(~same, float("-inf")).unsqueeze(1)


class Segments(NamedTuple):
    """The texts in the rows of a batch, as the kernel chosen for it reads them: by masks or by boundaries."""

    mask: Tensor | None
    """From `segment_mask`, (B, 1, S, S); with the bias of all layers, if they share one, (B, heads, S, S)."""
    boundaries: Tensor | None = None
    """From `segment_boundaries`, (N + 1,)."""
    near: Tensor | None = None
    """The mask of layers with a window: from `segment_mask`, (B, 1, S, S), or from `windows.block_mask`, (n, b, k)."""
    bias: Tensor | None = None
    """That bias alone, for whoever looks at the scores."""

    def with_bias(self, bias: Tensor) -> Segments:
        """The same for layers that share a bias of the scores, (1 or B, heads, S, S): it is added to the mask once for
        all. `choose_kernel` was told of it."""
        assert self.mask is not None
        near = None if self.near is None else self.near + bias
        return self._replace(mask=self.mask + bias, near=near, bias=bias)


def segment_boundaries(segment_ids: Tensor, least: int = 0) -> Tensor:
    """The `segment_starts`, then the end of the tokens: (B, S) -> (N + 1,), int32.

    N is a power of two, of at least `least` segments, so that few shapes occur and nothing is compiled for each batch;
    behind the last segment come empty ones. It is not simply the number of tokens: the backward kernel sets 128 tokens
    aside for each segment, empty or not. To be called while a batch is on the CPU: a GPU would have to be waited for.
    """
    firsts = segment_starts(segment_ids)
    room = 1 << (max(len(firsts), least) - 1).bit_length()
    boundaries = torch.full((room + 1,), segment_ids.numel(), dtype=torch.int32, device=segment_ids.device)
    boundaries[: len(firsts)] = firsts.int()
    return boundaries


def choose_kernel(
    tokens: Packed, head_size: int, dropout_rate: float, *, biased: bool = False, window: int | None = None
) -> Segments:
    """The texts in a batch as all layers need them; `biased` says whether their scores have a bias, `window` with which
    window some call `attend`, and dropout is that on the attention probabilities."""
    segment_ids, boundaries = tokens.segment_ids, tokens.boundaries
    fits = boundaries is not None and head_size % 8 == 0 and head_size <= 256
    if fits and not biased and _has_flash(segment_ids.device):
        return Segments(None, boundaries)
    mask = segment_mask(segment_ids)
    if window is None:
        return Segments(mask)
    # what is exported serves any length, and a choice by length would be made for good
    plain = segment_ids.device.type == "cpu" and not dropout_rate and not biased and not torch.compiler.is_exporting()
    in_blocks = plain and gains(segment_ids.shape[-1], window)
    return Segments(mask, None, (block_mask if in_blocks else segment_mask)(segment_ids, window))


def _has_flash(device: torch.device) -> bool:
    """Whether torch's flash attention is built in, runs on this device, and has the precision it computes in."""
    if device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return False
    from domainbert.encoders.uncompiled import has_flash  # imports torch's compiler: a second that a CPU need not spend

    return torch.get_autocast_dtype("cuda") in (torch.bfloat16, torch.float16) and has_flash(device.index)


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segments: Segments,
    *,
    bias: Tensor | None = None,
    window: int | None = None,
    scale: float | None = None,
    dropout: float = 0.0,
) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), each segment by itself.

    On a CPU, short rows have their attention spelt out: the backward pass of torch's fused kernel takes five times as
    long there, and no fused CPU kernel has dropout.

    Args:
        query, key, value: (B, heads, S, D), and so is what is returned.
        segments: from `choose_kernel`, which was told of a bias and of the window.
        bias: added to the scaled scores: (B or 1, heads or 1, S, S); one that all layers share is in `segments`. If it
            is of a wider type than the scores, a CPU sums and takes the softmax in that one: large scores have large
            errors in bf16.
        window: a token sees those of its text at most this many tokens before or behind it; None is all.
        scale: factor of the scores; None is 1 / sqrt(D).
        dropout: rate on the attention probabilities; 0 where `choose_kernel` chose to go in blocks.
    """
    if segments.mask is None:
        assert bias is None
        return _text_by_text(query, key, value, segments, window, scale, dropout)
    mask = segments.mask if window is None else segments.near
    assert mask is not None
    if mask.ndim == 3:
        assert bias is None and not dropout
        return attend_in_blocks(query, key, value, mask, scale)
    wide = bias is not None and bias.dtype != query.dtype
    biased = bias is not None or segments.bias is not None
    if query.device.type == "cpu" and (dropout or wide or _is_short(query, biased)):
        scaled = query / math.sqrt(query.shape[-1]) if scale is None else query * scale
        scores = scaled @ key.transpose(-1, -2)  # (B, heads, S, S)
        scores = scores if bias is None else scores + bias  # of the wider type
        scores += mask.to(scores.dtype)
        return drop(scores.softmax(dim=-1).to(value.dtype), dropout) @ value
    mask = mask if bias is None else mask + bias
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.to(query.dtype), dropout_p=dropout, scale=scale
    )


def _is_short(query: Tensor, biased: bool) -> bool:
    """Whether rows are short enough for a CPU to spell their attention out."""
    rows, heads, length, _ = query.shape
    if torch.is_grad_enabled():
        return biased or length <= _EXPLICIT_LENGTH[query.itemsize]
    return query.itemsize == 2 and rows > 1 and rows * heads * length * length * query.itemsize <= _FEW_SCORES


def _text_by_text(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    segments: Segments,
    window: int | None,
    scale: float | None,
    dropout: float,
) -> Tensor:
    batch, heads, length, width = query.shape
    query, key, value = (part.transpose(1, 2).flatten(0, 1) for part in (query, key, value))  # each (B * S, heads, D)
    assert segments.boundaries is not None
    mixed = flash_attention(query, key, value, segments.boundaries, length, (window, window), scale, dropout)
    return mixed.view(batch, length, heads, width).transpose(1, 2)


def drop(values: Tensor, rate: float, *, by_text: bool = True, positions: Tensor | None = None) -> Tensor:
    """Zero each element with probability `rate`, and scale the others by 1 / (1 - rate).

    On a CPU the probability is `rate` to the nearest 1 / 65536. `by_text` is off for what belongs to no text, such as
    embeddings of distances, and has the same shape in all micro-batches; `positions` (N,) in the flattened tokens are
    those of values (N, W).
    """
    if not rate or values.device.type != "cpu":
        return functional.dropout(values, rate)
    from domainbert.encoders.uncompiled import dropout_on_cpu  # imports torch's compiler: prediction goes without

    return dropout_on_cpu(values, rate, by_text, positions)
