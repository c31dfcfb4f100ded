"""The one place that chooses an attention kernel."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional


def segment_mask(segment_ids: Tensor) -> Tensor:
    """Which token may see which: those of its own segment. (B, S) -> bool (B, 1, S, S).

    Padding (segment 0) sees padding, so that no row of the softmax is empty; nothing reads its output.
    """
    return (segment_ids.unsqueeze(-1) == segment_ids.unsqueeze(-2)).unsqueeze(1)


def attend(query: Tensor, key: Tensor, value: Tensor, mask: Tensor, dropout: float = 0.0) -> Tensor:
    """Scaled dot-product attention (Vaswani et al. 2017, section 3.2.1), each segment by itself.

    Args:
        query: (B, heads, S, D), as are `key` and `value`.
        key: see `query`.
        value: see `query`.
        mask: from `segment_mask`, (B, 1, S, S).
        dropout: rate on the attention probabilities.

    Returns:
        (B, heads, S, D).
    """
    return functional.scaled_dot_product_attention(query, key, value, attn_mask=mask, dropout_p=dropout)
