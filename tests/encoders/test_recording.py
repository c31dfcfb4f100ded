from __future__ import annotations

import math

import pytest
import torch

from domainbert.encoders.layers import Attention
from domainbert.encoders.packed import Packed
from domainbert.encoders.recording import record

SEGMENTS = torch.tensor([[1, 1, 1, 1, 2, 2, 2, 0], [1, 1, 1, 1, 1, 1, 1, 1]])
POSITIONS = torch.tensor([[0, 1, 2, 3, 0, 1, 2, 0], list(range(8))])


def test_projections_are_what_attention_was_made_of(reference):
    """Mixing the values by the softmax of the recorded scores, as far as a token sees, gives its output."""
    encoder = reference.ours("masked_lm", reference.theirs("masked_lm")).encoder
    ids = torch.randint(5, 101, (2, 8), generator=torch.Generator().manual_seed(0))
    apart = SEGMENTS[:, None, :, None] != SEGMENTS[:, None, None, :]
    distances = (torch.arange(8).unsqueeze(-1) - torch.arange(8)).abs()
    with torch.no_grad():
        tokens = Packed(ids, POSITIONS, SEGMENTS)
        recording = record(encoder, tokens, {2, 3})
        assert set(recording.projections) == {2, 3} and len(recording.hidden) == 4
        for number, heads in recording.projections.items():
            assert heads.queries.shape == (2, 3, 8, 16)
            attention = next(part for part in encoder.blocks()[number - 1].modules() if isinstance(part, Attention))
            seen: list[torch.Tensor] = []
            with attention.register_forward_hook(lambda _, inputs, output, to=seen: to.append(output)):
                encoder(tokens)
            *_, wanted = seen  # layers may share one
            scores = heads.queries @ heads.keys.transpose(-1, -2) * (attention.scale or 1 / math.sqrt(16))
            assert (heads.bias is not None) == reference.biased
            torch.testing.assert_close(heads.scores, scores if heads.bias is None else scores + heads.bias)
            hidden = apart if heads.window is None else apart | (distances > heads.window)
            mixed = heads.scores.masked_fill(hidden, float("-inf")).softmax(-1) @ heads.values
            torch.testing.assert_close(mixed, wanted, atol=1e-5, rtol=0)
        assert torch.equal(recording.hidden[-1], encoder(tokens))


def test_gradients_reach_what_scores_are_made_of(reference):
    """Relative positions, too: a loss between scores teaches all that attention is computed with."""
    encoder = reference.ours("masked_lm", reference.theirs("masked_lm")).encoder
    tokens = Packed(torch.full((2, 8), 7), POSITIONS, SEGMENTS)
    record(encoder, tokens, {1}).projections[1].scores.square().sum().backward()
    relative = [one for name, one in encoder.named_parameters() if "relative" in name or "distances" in name]
    assert bool(relative) == reference.biased
    assert all(one.grad is not None and one.grad.any() for one in relative)


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
