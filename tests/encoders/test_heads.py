"""Heads."""

import pytest
import torch
from torch.nn import functional

from domainbert.encoders.heads import TokenHead
from domainbert.encoders.layers import initialise


@pytest.mark.parametrize("num_tokens", [1, 127, 128, 130])
def test_a_token_head_in_training_gives_logits_and_gradients_of_its_tokens_alone(num_tokens):
    """It computes a multiple of 128 tokens."""
    torch.manual_seed(0)
    head = TokenHead(16, 5, 0.0).train()
    hidden = torch.randn(num_tokens, 16, requires_grad=True)
    weights = [hidden, head.classifier.weight, head.classifier.bias]
    wanted = functional.linear(*weights)
    logits = head(hidden)
    torch.testing.assert_close(logits, wanted)
    direction = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad((logits * direction).sum(), weights),
        torch.autograd.grad((wanted * direction).sum(), weights),
    )


def test_weights_begin_normal_and_biases_at_zero():
    torch.manual_seed(0)
    made = torch.nn.ModuleList([torch.nn.Linear(300, 200), torch.nn.Embedding(50, 300), torch.nn.LayerNorm(8)])
    initialise(made, 0.02)
    assert not made[0].bias.any() and (made[2].weight == 1).all()
    for part in made[:2]:
        assert float(part.weight.std()) == pytest.approx(0.02, rel=0.03)
        assert float(part.weight.mean()) == pytest.approx(0.0, abs=1e-3)
