"""Attention of every head for one text, as the model computes it."""

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
from domainbert.models.folder import load_encoder
from domainbert.tasks.predictor import Predictor
from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class AttentionMaps:
    """Attention between the S pieces of a text, special tokens included."""

    pieces: tuple[str, ...]
    """(S,) entries of the vocabulary, to read."""
    special: tuple[bool, ...]
    """(S,) whether a piece is a special token, and none of the text."""
    probabilities: NDArray[np.float32]
    """(layers, heads, S, S): row i says where piece i looks, and adds up to 1."""
    windows: tuple[int | None, ...]
    """(layers,) the distance that pieces see in a layer; None is the whole text."""


def attention_maps(model: Predictor[Any] | Path | str, text: str, longest: int | None = None) -> AttentionMaps:
    """The attention of a text that is read alone, in full precision.

    >>> from domainbert import attention_maps
    >>> maps = attention_maps("model", "The court of law.")
    >>> maps.probabilities.shape[:2], len(maps.pieces) == maps.probabilities.shape[-1]  # layers and heads
    ((2, 2), True)

    Args:
        model: a folder of any model, as `load_predictor` takes it, with a head or without; or a predictor.
        text: what is read.
        longest: pieces, special tokens included, that it may have; None is as many as the model has positions for.

    Raises:
        DomainbertError: no model folder, or an exported one; a predictor in 16 bits; a text that is too long.
    """
    encoder, tokenizer, positions = _parts(model)
    of_text = tokenizer.encode([text])[0]
    ids, _ = tokenizer.template.frame(of_text)
    longest = positions if longest is None else min(longest, positions)
    if len(ids) > longest:
        raise DomainbertError(f"attention: the text has {len(ids):,} pieces; expected at most {longest:,}")
    device = encoder.input_embeddings.weight.device
    row = torch.from_numpy(ids).unsqueeze(0).to(device)
    tokens = Packed(row, torch.arange(len(ids), device=device).unsqueeze(0), torch.ones_like(row))
    layers = range(1, encoder.num_hidden_layers + 1)
    with torch.inference_mode():
        found = record(encoder, tokens, layers).projections
        maps = [found[layer].probabilities(tokens.segment_ids)[0].float().cpu().numpy() for layer in layers]
    pieces = tuple(tokenizer.pieces.shown(tokenizer.tokens[number]) for number in ids.tolist())
    special = tuple(not 1 <= place <= len(of_text) for place in range(len(ids)))  # one comes before a text
    return AttentionMaps(pieces, special, np.stack(maps), tuple(found[layer].window for layer in layers))


def _parts(model: Predictor[Any] | Path | str) -> tuple[Encoder, DomainTokenizer, int]:
    """The encoder, its tokenizer, and how many positions it has."""
    if isinstance(model, Predictor):
        model.runtime.need_gradients()
        return model.model.encoder, model.tokenizer, model.runtime.config.max_length
    loaded, folder = load_encoder(Path(model))
    return loaded.encoder.eval(), folder.tokenizer(), folder.config.max_length
