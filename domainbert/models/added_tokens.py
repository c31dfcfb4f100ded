"""Adds a task's special tokens to the vocabulary of the model it starts from."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from domainbert.encoders.heads import EncoderWithHead
from domainbert.tokenization.extend import with_tokens
from domainbert.tokenization.load import DomainTokenizer


def add_tokens(model: EncoderWithHead, tokenizer: DomainTokenizer, tokens: Sequence[str]) -> DomainTokenizer:
    """Add the missing `tokens` to the tokenizer, and word embeddings for them to `model`; return the new tokenizer.
    Return `tokenizer` itself if it has all tokens.

    New embeddings are drawn by torch's generator from the normal distribution with the mean and standard deviation of
    each column of the existing ones. Unused rows at the end of the table are filled first.
    """
    if set(tokens) <= set(tokenizer.tokens):
        return tokenizer
    extended = with_tokens(tokenizer, tokens)
    embeddings = model.encoder.input_embeddings
    old = embeddings.weight.detach()
    new_ids = range(tokenizer.vocab_size, extended.vocab_size)
    table = old.new_zeros(max(len(old), extended.vocab_size), old.shape[1])
    table[: len(old)] = old
    deviation, mean = torch.std_mean(old[: tokenizer.vocab_size], dim=0, correction=0)
    table[new_ids.start : new_ids.stop] = mean + deviation * torch.randn(len(new_ids), old.shape[1])
    embeddings.weight = nn.Parameter(table, embeddings.weight.requires_grad)
    embeddings.num_embeddings = len(table)
    return extended
