"""Layers that encoder families share. Their arguments are numbers, modules and `Sizes`, not a family's configuration.

`choose_kernel` and `attend` select the attention kernel; no other module does:

| condition | kernel |
|---|---|
| CPU, window, no dropout, no bias, rows of twice the keys of a block or more | explicit, in blocks (`windows.py`) |
| CPU, training, rows up to 256 tokens (bf16: 768), or dropout, or a bias | explicit |
| CPU, prediction in bf16, several rows with up to 8 MiB of scores | explicit |
| CPU, a bias in fp32 and scores in bf16 | explicit |
| CPU, otherwise | `scaled_dot_product_attention` with a mask |
| GPU (Ampere or newer), bf16 or fp16, no bias, heads of 8, 16, ... 256 | flash attention with variable lengths |
| GPU, otherwise | `scaled_dot_product_attention` with a mask |

Flash attention is called as an operator of torch because `torch.nn.attention.varlen.varlen_attn` has no dropout.
Measured on an H100 with BERT-base's 12 layers, 64 rows of 512 tokens, a few of them with several texts, forward and
backward with dropout: 12.8 ms; with a mask 15.5 ms; without a mask, if each row were one text, 11.5 ms. Rows of one
text without a mask and the other rows with variable lengths take 16.8 ms, because both results have to be joined.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from domainbert.encoders.config import Sizes
from domainbert.encoders.dropout import drop
from domainbert.encoders.packed import Packed, segment_starts, select
from domainbert.encoders.torch_internals import flash_attention, has_flash
from domainbert.encoders.windows import attend_in_blocks, block_mask, blocks_are_faster

ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "gelu": functional.gelu,
    "gelu_new": partial(functional.gelu, approximate="tanh"),
    "relu": functional.relu,
    "silu": functional.silu,
}

# Longest rows for explicit attention, in tokens, by the bytes of a number: S x S scores are small, and torch's fused
# backward on a CPU is slow. In bf16 it takes 2.7 times as long at 512 tokens, and 1.3 times at 1024, where the scores
# take much memory.
_EXPLICIT_LENGTH = {2: 768, 4: 256, 8: 256}

# Bytes of scores up to which prediction in bf16 takes two thirds of the time of torch's fused kernel on a CPU. A larger
# buffer is returned to the system and allocated again in each layer.
_EXPLICIT_BYTES = 8 << 20


class Dropout(nn.Module):
    """Dropout (Srivastava et al. 2014, section 4), see `drop`."""

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate

    def forward(self, hidden: Tensor) -> Tensor:
        """Return hidden states of any shape after dropout."""
        return drop(hidden, self.rate) if self.training else hidden


class Attention(nn.Module):
    """`attend` as a module without weights, so that a hook can record queries, keys and values in any family."""

    def __init__(self, dropout: float, window: int | None = None, scale: float | None = None) -> None:
        super().__init__()
        self.dropout, self.window, self.scale = dropout, window, scale

    def forward(
        self, query: Tensor, key: Tensor, value: Tensor, segments: Segments, bias: Tensor | None = None
    ) -> Tensor:
        """Return the result of `attend`: (B, heads, S, D) each -> (B, heads, S, D)."""
        rate = self.dropout if self.training else 0.0
        return attend(query, key, value, segments, bias=bias, window=self.window, scale=self.scale, dropout=rate)


class StackedLinear(nn.Linear):
    """Linear layer whose weight is several matrices of equal size, one below the other, such as query, key and value.
    An optimizer that treats a matrix as a whole, such as Muon, has to separate them.

    Args:
        in_features, out_features: of each matrix.
        num_matrices: number of matrices.
        bias: whether the layer has a bias.
    """

    def __init__(self, in_features: int, out_features: int, num_matrices: int, bias: bool = True) -> None:
        super().__init__(in_features, num_matrices * out_features, bias=bias)
        self.num_matrices = num_matrices


class MultiHead(nn.Module):
    """Base of self-attention layers: the linear layers of multi-head attention, and `attend`.

    Args:
        hidden_size, num_heads: H, and the number of heads of width D = H / heads.
        dropout, window, scale: see `attend`; dropout is applied in training.
        bias: whether the linear layers have a bias.
    """

    def __init__(
        self,
        hidden_size: int,
        num_heads: int,
        dropout: float,
        window: int | None = None,
        scale: float | None = None,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.attend = Attention(dropout, window, scale)
        self.query_key_value = StackedLinear(hidden_size, hidden_size, 3, bias=bias)
        self.output = nn.Linear(hidden_size, hidden_size, bias=bias)

    def project(self, hidden: Tensor) -> Tensor:
        """Return queries, keys and values by head: (B, S, H) -> (3, B, heads, S, D)."""
        return self.query_key_value(hidden).unflatten(-1, (3, self.num_heads, -1)).permute(2, 0, 3, 1, 4)

    def join_heads(self, mixed: Tensor, positions: Tensor | None) -> Tensor:
        """Join the heads and project them: (B, heads, S, D) -> (B, S, H), or (N, H) at `positions`."""
        return self.output(select(mixed.transpose(1, 2).flatten(2), positions))


class SelfAttention(MultiHead):
    """Multi-head self-attention."""

    def forward(self, hidden: Tensor, segments: Segments, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        query, key, value = self.project(hidden)
        return self.join_heads(self.attend(query, key, value, segments), positions)


class FeedForward(nn.Module):
    """Two linear layers with an activation between them."""

    def __init__(self, hidden_size: int, intermediate_size: int, activation: str) -> None:
        super().__init__()
        self.expand = nn.Linear(hidden_size, intermediate_size)
        self.contract = nn.Linear(intermediate_size, hidden_size)
        self.activation = ACTIVATIONS[activation]

    def forward(self, hidden: Tensor) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H)."""
        return self.contract(self.activation(self.expand(hidden)))


class PostNormLayer(nn.Module):
    """A transformer layer that normalises after each residual connection, as BERT does."""

    def __init__(self, attention: nn.Module, sizes: Sizes) -> None:
        super().__init__()
        self.attention = attention
        self.attention_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.feed_forward = FeedForward(sizes.hidden_size, sizes.intermediate_size, sizes.activation)
        self.feed_forward_norm = nn.LayerNorm(sizes.hidden_size, eps=sizes.layer_norm_eps)
        self.dropout = Dropout(sizes.dropout)

    def forward(self, hidden: Tensor, context: Any, positions: Tensor | None = None) -> Tensor:
        """Return new hidden states: (B, S, H) -> (B, S, H), or (N, H) at `positions`."""
        mixed = self.attention(hidden, context, positions)
        hidden = self.attention_norm(select(hidden, positions) + self.dropout(mixed))
        return self.feed_forward_norm(hidden + self.dropout(self.feed_forward(hidden)))


def initialise(module: nn.Module, initializer_range: float) -> None:
    """Initialise the parameters as BERT: normal weights and zero biases; norms keep torch's ones and zeros."""
    for part in module.modules():
        if isinstance(part, nn.Linear | nn.Embedding | nn.Conv1d):
            nn.init.normal_(part.weight, std=initializer_range)
        if isinstance(part, nn.Linear | nn.Conv1d) and part.bias is not None:
            nn.init.zeros_(part.bias)


def segment_mask(segment_ids: Tensor, window: int | None = None, causal: bool = False) -> Tensor:
    """Return an additive mask, 0 within a segment and -inf between segments: (B, S) -> (B, 1, S, S).

    With a window, tokens at most `window` positions before or after a token are visible; a causal mask hides all tokens
    after a token.
    Padding (segment 0) sees padding, so that no row of the softmax is empty; its output is not used.
    """
    visible = segment_ids.unsqueeze(-1) == segment_ids.unsqueeze(-2)
    if window is not None:
        columns = torch.arange(segment_ids.shape[-1], device=visible.device)  # a text is contiguous in its row
        visible = visible & ((columns - columns.unsqueeze(-1)).abs() <= window)
    visible = visible.tril() if causal else visible
    return torch.zeros(visible.shape, device=visible.device).masked_fill(~visible, float("-inf")).unsqueeze(1)


class Segments(NamedTuple):
    """Separates the texts in the rows of a batch: by masks, or by boundaries if the kernel is flash attention."""

    mask: Tensor | None
    """From `segment_mask`, (B, 1, S, S), or None for flash attention; (B, heads, S, S) with a bias of all layers."""
    boundaries: Tensor | None = None
    """From `segment_boundaries`, (N + 1,)."""
    window_mask: Tensor | None = None
    """Mask of layers with a window: from `segment_mask`, (B, 1, S, S), or from `windows.block_mask`, (n, b, k)."""
    bias: Tensor | None = None
    """The shared bias alone, for recording scores."""
    causal: bool = False
    """Whether flash attention hides the tokens after a token; the masks hide them already."""

    def with_bias(self, bias: Tensor) -> Segments:
        """Return a copy whose masks include a bias (1 or B, heads, S, S), the same for all layers; flash attention has
        no masks, so the segments must come from `choose_kernel(..., biased=True)`."""
        assert self.mask is not None
        window_mask = None if self.window_mask is None else self.window_mask + bias
        return self._replace(mask=self.mask + bias, window_mask=window_mask, bias=bias)


def segment_boundaries(segment_ids: Tensor, min_segments: int = 0) -> Tensor:
    """Return the starts of the segments in the flattened tokens, padded with their end: (B, S) -> (N + 1,).

    N is a power of two and at least `min_segments`, so that there are few shapes and few compilations. It is not the
    number of tokens, because the backward kernel allocates 128 tokens per segment, even for an empty one. Call it while
    a batch is on the CPU, because on a GPU it would synchronise. The result is int32.
    """
    starts = segment_starts(segment_ids)
    size = 1 << (max(len(starts), min_segments) - 1).bit_length()  # the next power of two
    boundaries = torch.full((size + 1,), segment_ids.numel(), dtype=torch.int32, device=segment_ids.device)
    boundaries[: len(starts)] = starts.int()
    return boundaries


def choose_kernel(
    tokens: Packed,
    head_size: int,
    dropout_rate: float,
    *,
    biased: bool = False,
    window: int | None = None,
    causal: bool = False,
) -> Segments:
    """Select a kernel for a batch, and return the masks or boundaries that all layers share.

    `dropout_rate` applies to attention probabilities. `biased`: the scores get a bias. `window`: window of the layers
    that have one; None if no layer has. `causal`: the tokens after a token are hidden.
    """
    segment_ids, boundaries = tokens.segment_ids, tokens.boundaries
    supported = boundaries is not None and head_size % 8 == 0 and head_size <= 256  # by flash attention
    if supported and not biased and _has_flash(segment_ids.device):
        return Segments(mask=None, boundaries=boundaries, causal=causal)
    mask = segment_mask(segment_ids, causal=causal)
    if window is None:
        return Segments(mask)
    # an exported graph is used for all lengths, so it must not depend on the length at export
    is_plain = not dropout_rate and not biased and not causal and not torch.compiler.is_exporting()
    in_blocks = segment_ids.device.type == "cpu" and is_plain and blocks_are_faster(segment_ids.shape[-1], window)
    window_mask = block_mask(segment_ids, window) if in_blocks else segment_mask(segment_ids, window, causal)
    return Segments(mask, window_mask=window_mask)


def _has_flash(device: torch.device) -> bool:
    # flash attention needs the 16 bits of autocast
    if device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return False
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
    """Return scaled dot-product attention within segments, (B, heads, S, D) (Vaswani et al. 2017, section 3.2.1).

    On a CPU, attention of short rows is computed explicitly: the backward pass of torch's fused kernel takes five times
    as long, and no fused CPU kernel has dropout.

    Args:
        query, key, value: (B, heads, S, D).
        segments: from `choose_kernel`, called with the same `window` if there is one, and `biased` if there is a bias.
        bias: added to the scaled scores, (B or 1, heads or 1, S, S); a bias that all layers share is part of the
            masks of `segments` instead. If its type is wider than the type of the scores, a CPU computes sum and
            softmax in the wider type, because large scores have large errors in bf16.
        window: a token sees tokens of its text up to this distance; None sees all.
        scale: factor of the scores; None is 1 / sqrt(D).
        dropout: rate on the attention probabilities; must be 0 if `choose_kernel` selected blocks.
    """
    if segments.mask is None:  # texts one after the other, without a bias
        assert bias is None
        return _variable_length_attention(query, key, value, segments, window, scale, dropout)
    mask = segments.mask if window is None else segments.window_mask
    assert mask is not None
    if mask.ndim == 3:  # from `block_mask`
        assert bias is None and not dropout
        return attend_in_blocks(query, key, value, mask, scale)
    bias_is_wider = bias is not None and bias.dtype != query.dtype
    has_bias = bias is not None or segments.bias is not None
    if query.device.type == "cpu" and (dropout or bias_is_wider or _is_short(query, has_bias)):
        scaled = query / math.sqrt(query.shape[-1]) if scale is None else query * scale
        scores = scaled @ key.transpose(-1, -2)  # (B, heads, S, S)
        scores = scores if bias is None else scores + bias  # of the wider type
        scores += mask.to(scores.dtype)
        return drop(scores.softmax(dim=-1).to(value.dtype), dropout) @ value
    mask = mask if bias is None else mask + bias
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.to(query.dtype), dropout_p=dropout, scale=scale
    )


def _is_short(query: Tensor, has_bias: bool) -> bool:
    """Return whether rows are short enough for explicit attention on a CPU. In training: rows up to a limit, or with a
    bias all rows. In prediction: several rows of 16 bits with few scores."""
    rows, heads, length, _ = query.shape
    if torch.is_grad_enabled():
        return has_bias or length <= _EXPLICIT_LENGTH[query.itemsize]
    return query.itemsize == 2 and rows > 1 and rows * heads * length * length * query.itemsize <= _EXPLICIT_BYTES


def _variable_length_attention(
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
    visible = window, (0 if segments.causal else window)  # tokens before and after a token
    mixed = flash_attention(query, key, value, segments.boundaries, length, visible, scale, dropout)
    return mixed.view(batch, length, heads, width).transpose(1, 2)
