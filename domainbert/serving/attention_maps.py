"""Attention probabilities of every head for one text."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.encoders.base import Encoder
from domainbert.encoders.packed import Packed
from domainbert.encoders.recording import record
from domainbert.models.loading import load_encoder
from domainbert.tasks.predictor import Predictor
from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class AttentionMaps:
    """Attention between the S pieces of a text, including special tokens."""

    pieces: tuple[str, ...]
    """(S,) readable vocabulary entries."""
    special: tuple[bool, ...]
    """(S,) whether a piece is a special token."""
    probabilities: NDArray[np.float32]
    """(layers, heads, S, S): row i is the distribution of piece i over all pieces, with sum 1."""
    windows: tuple[int | None, ...]
    """(layers,) attention distance of each layer; None is the whole text."""


def attention_maps(model: Predictor[Any] | Path | str, text: str, longest: int | None = None) -> AttentionMaps:
    """Compute and return the attention probabilities of a model for a single text, in full precision.

    >>> from domainbert import attention_maps
    >>> maps = attention_maps("model", "The court of law.")
    >>> maps.probabilities.shape[:2], len(maps.pieces) == maps.probabilities.shape[-1]  # layers and heads
    ((2, 2), True)

    Args:
        model: a model folder, as for `load_predictor`, with or without a head; or a predictor.
        text: the text.
        longest: maximum number of pieces, including special tokens; None is the maximum length of the model.

    Raises:
        DomainbertError: the folder has no model, or an exported one; the predictor uses 16 bits; the text is too long.
    """
    encoder, tokenizer, max_length = _encoder_parts(model)
    text_ids = tokenizer.encode([text])[0]
    ids, _ = tokenizer.template.frame(text_ids)
    longest = max_length if longest is None else min(longest, max_length)
    if len(ids) > longest:
        raise DomainbertError(f"attention maps: the text has {len(ids):,} tokens", expected=f"at most {longest:,}")
    device = encoder.input_embeddings.weight.device
    row = torch.from_numpy(ids).unsqueeze(0).to(device)  # (1, S)
    positions = torch.arange(len(ids), device=device).unsqueeze(0)
    tokens = Packed(row, positions, torch.ones_like(row))  # all tokens in segment 1
    layers = range(1, encoder.num_hidden_layers + 1)
    was_training = encoder.training
    encoder.eval()
    try:
        with torch.inference_mode():
            projections = record(encoder, tokens, layers).projections
            maps = [projections[layer].probabilities(tokens.segment_ids)[0].float().cpu().numpy() for layer in layers]
    finally:
        encoder.train(was_training)
    pieces = tuple(tokenizer.pieces.readable(tokenizer.tokens[token_id]) for token_id in ids.tolist())
    special = tuple(not 1 <= position <= len(text_ids) for position in range(len(ids)))  # [CLS] precedes the text
    return AttentionMaps(pieces, special, np.stack(maps), tuple(projections[layer].window for layer in layers))


def _encoder_parts(model: Predictor[Any] | Path | str) -> tuple[Encoder, DomainTokenizer, int]:
    if isinstance(model, Predictor):
        model.runtime.need_full_precision()
        return model.model.encoder, model.tokenizer, model.runtime.config.max_length
    loaded, folder = load_encoder(Path(model))
    return loaded.encoder, folder.tokenizer(), folder.config.max_length
