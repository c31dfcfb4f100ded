"""Packed rows, the input of every encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

_MULTIPLE = 64  # of positions that the head reads, see `pad_positions`


class Packed(NamedTuple):
    """Rows of several concatenated texts; all tensors except `boundaries` are (B, S).

    >>> from domainbert import Packed, load_encoder, load_tokenizer, packed_loader
    >>> encoder = load_encoder("model")[0].encoder
    >>> (batch,) = packed_loader(["The court of law."], load_tokenizer("model"))
    >>> encoder(Packed.of(batch)).shape[-1] == encoder.hidden_size
    True

    Attributes:
        input_ids: ids of vocabulary entries.
        position_ids: position of a token in its text, from 0.
        segment_ids: number of the text in its row, from 1; 0 is padding. Attention does not cross segments.
        token_type_ids: index of the text in a pair; None is 0 for every token.
        boundaries: (N + 1,) from `layers.segment_boundaries`, optional; they allow faster attention on a GPU.
    """

    input_ids: Tensor
    position_ids: Tensor
    segment_ids: Tensor
    token_type_ids: Tensor | None = None
    boundaries: Tensor | None = None

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> Packed:
        """Return the fields of a batch, which may have further keys; optional fields may be missing."""
        return cls(**{name: batch[name] for name in cls._fields if name in batch})


def select(states: Tensor, positions: Tensor | None) -> Tensor:
    """Return the states at `positions` (N,) of the flattened tokens: (B, S, W) -> (N, W); unchanged for None."""
    return states if positions is None else states.flatten(0, 1).index_select(0, positions)


def pad_positions(positions: Tensor) -> Tensor:
    """Return positions (N,), padded with 0, the first token, to a multiple of 64, for training on a CPU.

    N varies between steps, and oneDNN compiles matrix products for each shape: a dozen per step, which takes
    milliseconds and fragments the heap, so that memory grows for hundreds of steps.
    """
    return functional.pad(positions, (0, -len(positions) % _MULTIPLE))


def segment_starts(segment_ids: Tensor) -> Tensor:
    """Return the index of the first token of each segment in the flattened (B * S) tokens: (segments,).

    Padding is a segment of its row.
    """
    begins = torch.ones_like(segment_ids, dtype=torch.bool)
    begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    return begins.flatten().nonzero().flatten()


def text_ids(segment_ids: Tensor) -> Tensor:
    """Return the id of the text of each token, unique in the batch: (B, S) -> (B, S).

    Ids are below B * (S + 1); padding is a text of its row.
    """
    rows, length = segment_ids.shape
    return segment_ids + torch.arange(rows, device=segment_ids.device).unsqueeze(-1) * (length + 1)
