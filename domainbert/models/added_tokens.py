"""Entries that a task adds to the vocabulary of the model it starts from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from domainbert.encoders.heads import EncoderWithHead
from domainbert.tokenization.extend import with_tokens
from domainbert.tokenization.load import DomainTokenizer


def add_tokens(model: EncoderWithHead, tokenizer: DomainTokenizer, tokens: Sequence[str]) -> DomainTokenizer:
    """The tokenizer with those of `tokens` that it lacks, which get word embeddings in the model, with a task's head.

    They are drawn by torch's generator from the normal distribution with the mean and standard deviation of each column
    of the others. A table that has rows to spare grows no more than it has to.
    """
    if set(tokens) <= set(tokenizer.tokens):
        return tokenizer
    wider, embeddings = with_tokens(tokenizer, tokens), model.encoder.input_embeddings
    old = embeddings.weight.detach()
    rows = range(tokenizer.vocab_size, wider.vocab_size)
    grown = old.new_zeros(max(len(old), wider.vocab_size), old.shape[1])
    grown[: len(old)] = old
    deviation, mean = torch.std_mean(old[: tokenizer.vocab_size], dim=0, correction=0)
    grown[rows.start : rows.stop] = mean + deviation * torch.randn(len(rows), old.shape[1])
    embeddings.weight = nn.Parameter(grown, embeddings.weight.requires_grad)
    embeddings.num_embeddings = len(grown)
    return wider
