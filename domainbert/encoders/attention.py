"""The one place that chooses an attention kernel.

| where | kernel |
|---|---|
| CPU, training, rows up to 256 tokens or with dropout | spelt out |
| CPU, else | `scaled_dot_product_attention` with a mask |
| GPU (Ampere or newer), bf16 or fp16, no attention dropout, heads of 8, 16, ... 256 | `varlen_attn`, text by text |
| GPU, else | `scaled_dot_product_attention` with a mask |

`varlen_attn` has no dropout. So BERT's `attention_probs_dropout_prob` of 0.1 trains with the mask; a model without it
(`dropout: 0`, as in configs/econ/), a teacher and a validation go text by text, unless `precision` is 32-true.
"""

from __future__ import annotations

import math
from typing import NamedTuple

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


class Segments(NamedTuple):
    """The texts in the rows of a batch, as the kernel chosen for it reads them; one of the two is there.

    Attributes:
        mask: from `segment_mask`, (B, 1, S, S).
        boundaries: from `segment_boundaries`, (N + 1,).
    """

    mask: Tensor | None
    boundaries: Tensor | None = None


def segment_boundaries(segment_ids: Tensor) -> Tensor:
    """Where in the flattened (B * S) tokens each segment begins: (B, S) -> (N + 1,), int32, with the end at the end.

    Padding is a segment, of each row for itself. N is a power of two, so that few shapes occur and nothing is compiled
    for each batch; behind the last segment come empty ones. It is not simply the number of tokens: the backward kernel
    sets 128 tokens aside for each segment, empty or not.

    To be called while a batch is on the CPU: a GPU would have to be waited for.
    """
    begins = torch.ones_like(segment_ids, dtype=torch.bool)
    begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    firsts = begins.flatten().nonzero().flatten()
    room = 1 << (len(firsts) - 1).bit_length()
    boundaries = torch.full((room + 1,), segment_ids.numel(), dtype=torch.int32, device=segment_ids.device)
    boundaries[: len(firsts)] = firsts.int()
    return boundaries


def choose_kernel(segment_ids: Tensor, boundaries: Tensor | None, head_size: int, dropout_rate: float) -> Segments:
    """What the layers need to know of the texts in a batch, made once for all of them.

    Args:
        segment_ids: (B, S), 0 for padding.
        boundaries: from `segment_boundaries`; None where nobody has counted the segments.
        head_size: width D of a head.
        dropout_rate: on the attention probabilities.
    """
    fits = boundaries is not None and not dropout_rate and head_size % 8 == 0 and head_size <= 256
    if fits and _has_varlen(segment_ids.device):
        return Segments(None, boundaries)
    return Segments(segment_mask(segment_ids))


def _has_varlen(device: torch.device) -> bool:
    """Whether torch's flash attention is built in, runs on this device, and has the precision it computes in."""
    if device.type != "cuda" or not torch.is_autocast_enabled("cuda"):
        return False
    from domainbert.encoders.uncompiled import has_flash  # imports torch's compiler: a second that a CPU need not spend

    return torch.get_autocast_dtype("cuda") in (torch.bfloat16, torch.float16) and has_flash(device.index)


def attend(query: Tensor, key: Tensor, value: Tensor, segments: Segments, dropout_rate: float = 0.0) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), each segment by itself.

    On a CPU, training at short lengths spells the attention out: the backward pass of torch's fused kernel takes five
    times as long there, and no fused CPU kernel has dropout.

    Args:
        query: (B, heads, S, D), as are `key` and `value`.
        key: see `query`.
        value: see `query`.
        segments: from `choose_kernel`.
        dropout_rate: on the attention probabilities; 0 where it chose to go by boundaries.

    Returns:
        (B, heads, S, D).
    """
    if segments.mask is None:
        assert segments.boundaries is not None
        return _text_by_text(query, key, value, segments.boundaries)
    mask = segments.mask
    short = torch.is_grad_enabled() and query.shape[-2] <= _EXPLICIT_LENGTH
    if query.device.type == "cpu" and (dropout_rate or short):
        scores = query / math.sqrt(query.shape[-1]) @ key.transpose(-1, -2)  # (B, heads, S, S)
        scores += mask.to(scores.dtype)
        return dropout(scores.softmax(dim=-1), dropout_rate) @ value
    return functional.scaled_dot_product_attention(
        query, key, value, attn_mask=mask.to(query.dtype), dropout_p=dropout_rate
    )


def _text_by_text(query: Tensor, key: Tensor, value: Tensor, boundaries: Tensor) -> Tensor:
    from torch.nn.attention.varlen import varlen_attn  # imports torch's compiler too

    batch, heads, length, width = query.shape
    query, key, value = (part.transpose(1, 2).flatten(0, 1) for part in (query, key, value))  # each (B * S, heads, D)
    mixed = varlen_attn(query, key, value, boundaries, boundaries, length, length)
    assert isinstance(mixed, Tensor)
    return mixed.view(batch, length, heads, width).transpose(1, 2)


def dropout(values: Tensor, rate: float) -> Tensor:
    """Zero each element with probability `rate`, and scale the others by 1 / (1 - rate).

    On a CPU the probability is `rate` to the nearest 1 / 65536.
    """
    if not rate or values.device.type != "cpu":
        return functional.dropout(values, rate)
    from domainbert.encoders.uncompiled import dropout_on_cpu  # imports torch's compiler: prediction goes without

    return dropout_on_cpu(values, rate)
