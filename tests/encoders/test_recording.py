from __future__ import annotations

import math

import pytest
import torch

from domainbert.encoders.layers import SelfAttention
from domainbert.encoders.packed import Packed
from domainbert.encoders.recording import record

SEGMENTS = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0], list(range(8))])


def test_projections_are_what_attention_was_made_of(reference):
    """Mixing the values by the softmax of the recorded scores gives the attention's own output."""
    encoder = reference.ours("masked_lm", reference.theirs("masked_lm")).encoder
    ids = torch.randint(5, 101, (2, 8), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        tokens = Packed(ids, POSITIONS, SEGMENTS)
        recording = record(encoder, tokens, {1, 3})
        assert set(recording.projections) == {1, 3} and len(recording.hidden) == 4
        for number, heads in recording.projections.items():
            assert heads.queries.shape == (2, 3, 8, 16)
            segments = encoder.context(tokens)  # whose mask may hold a bias, too
            scores = heads.queries @ heads.keys.transpose(-1, -2) / math.sqrt(16) + segments.mask
            apart = SEGMENTS[:, None, :, None] != SEGMENTS[:, None, None, :]
            mixed = scores.masked_fill(apart, float("-inf")).softmax(-1) @ heads.values
            attention = next(part for part in encoder.blocks()[number - 1].modules() if isinstance(part, SelfAttention))
            wanted = attention(recording.hidden[number - 1], segments)
            found = attention.output(mixed.transpose(1, 2).reshape(2, 8, 48))
            torch.testing.assert_close(found, wanted, atol=1e-5, rtol=0)
        assert torch.equal(recording.hidden[-1], encoder(tokens))


def test_nothing_stays_behind(reference):
    encoder = reference.ours("masked_lm", reference.theirs("masked_lm")).encoder
    ids = torch.full((2, 8), 7)
    record(encoder, Packed(ids, POSITIONS, SEGMENTS), {2})
    with pytest.raises(IndexError):
        record(encoder, Packed(torch.full((2, 8), 1000), POSITIONS, SEGMENTS), {2})
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())


def test_regrouped_heads_divide_the_width(reference):
    encoder = reference.ours("masked_lm", reference.theirs("masked_lm")).encoder
    with torch.no_grad():
        heads = record(encoder, Packed(torch.full((2, 8), 7), POSITIONS, SEGMENTS), {1}).projections[1]
    other = heads.regrouped(12)
    assert other.values.shape == (2, 12, 8, 4)
    joined = [part.transpose(1, 2).flatten(2) for part in (heads.values, other.values)]
    assert torch.equal(*joined)
