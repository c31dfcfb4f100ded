"""Packed rows, the input of every encoder."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

_MULTIPLE = 64


class Packed(NamedTuple):
    """Rows that hold several texts back to back, each tensor (B, S) but for `boundaries`.

    >>> from domainbert import Packed, load_encoder, load_tokenizer, packed_loader
    >>> encoder = load_encoder("model")[0].encoder
    >>> (batch,) = packed_loader(["The court of law."], load_tokenizer("model"))
    >>> encoder(Packed.of(batch)).shape[-1] == encoder.hidden_size
    True

    Attributes:
        input_ids: numbers of vocabulary entries.
        position_ids: the place of a token in its text, from 0.
        segment_ids: the number of its text in the row, from 1; 0 is padding. No token sees another segment.
        token_type_ids: which text of a pair it belongs to; None is 0 for every token.
        boundaries: (N + 1,) from `attention.segment_boundaries`. With them attention may be faster on a GPU; they
            change nothing else.
    """

    input_ids: Tensor
    position_ids: Tensor
    segment_ids: Tensor
    token_type_ids: Tensor | None = None
    boundaries: Tensor | None = None

    @classmethod
    def of(cls, batch: Mapping[str, Any]) -> Packed:
        """Those of a batch, which may hold more; what has a default may be missing."""
        return cls(**{name: batch[name] for name in cls._fields if name in batch})


def select(states: Tensor, positions: Tensor | None) -> Tensor:
    """The states (N, W) at `positions` (N,) of the flattened tokens, of (B, S, W); all of them as they are for None."""
    return states if positions is None else states.flatten(0, 1).index_select(0, positions)


def filled_up(positions: Tensor) -> Tensor:
    """Positions (N,) and so many times the first token that a multiple of 64 are read, for training on a CPU.

    N differs from step to step, and oneDNN builds a matrix product for each shape: a dozen a step, which takes
    milliseconds, and what it keeps of them lies scattered in the heap, which then grows for hundreds of steps.
    """
    return functional.pad(positions, (0, -len(positions) % _MULTIPLE))


def segment_starts(segment_ids: Tensor) -> Tensor:
    """First place of each segment in the flattened (B * S) tokens; padding is one, of each row for itself."""
    begins = torch.ones_like(segment_ids, dtype=torch.bool)
    begins[:, 1:] = segment_ids[:, 1:] != segment_ids[:, :-1]
    return begins.flatten().nonzero().flatten()


def text_numbers(segment_ids: Tensor) -> Tensor:
    """A number for the text of each token, of one row or of another: (B, S) -> (B, S); padding is one text of a row."""
    rows, length = segment_ids.shape
    return segment_ids + torch.arange(rows, device=segment_ids.device).unsqueeze(-1) * (length + 1)
