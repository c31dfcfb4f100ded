"""Heads, and the positions they read."""

import pytest
import torch

from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import PretrainingHead
from domainbert.encoders.layers import initialise
from domainbert.encoders.packed import Packed


@pytest.mark.parametrize("kind", ["tokens", "span", "sequence", "masked_lm"])
@pytest.mark.parametrize("num_reads", [1, 63, 64, 65])
def test_training_gives_logits_and_gradients_of_what_is_read_alone(kind, num_reads):
    """It computes a multiple of 64 positions."""
    torch.manual_seed(0)
    config = BertConfig(16, 2, 2, 24, max_position_embeddings=40).with_dropout(0.0)
    model = build_model(config, VocabularyFacts(50, 0), kind, 5).train()
    ids = torch.randint(5, 50, (3, 30))
    tokens = Packed(ids, torch.arange(30).expand(3, 30), torch.ones_like(ids))
    positions = torch.randperm(90)[:num_reads]
    weights = list(model.parameters())
    wanted = model.logits(model.encoder(tokens).flatten(0, 1)[positions])
    logits = model(tokens, positions)
    torch.testing.assert_close(logits, wanted)
    direction = torch.randn_like(wanted)
    torch.testing.assert_close(
        torch.autograd.grad((logits * direction).sum(), weights, materialize_grads=True),
        torch.autograd.grad((wanted * direction).sum(), weights, materialize_grads=True),
        atol=1e-5,
        rtol=1e-5,
    )


def test_weights_begin_normal_and_biases_at_zero():
    torch.manual_seed(0)
    made = torch.nn.ModuleList([torch.nn.Linear(300, 200), torch.nn.Embedding(50, 300), torch.nn.LayerNorm(8)])
    initialise(made, 0.02)
    assert not made[0].bias.any() and (made[2].weight == 1).all()
    for part in made[:2]:
        assert float(part.weight.std()) == pytest.approx(0.02, rel=0.03)
        assert float(part.weight.mean()) == pytest.approx(0.0, abs=1e-3)


def test_pairs_are_judged_by_the_pooled_states_as_in_bert():
    torch.manual_seed(0)
    head = PretrainingHead(torch.nn.Embedding(9, 6), 6, "gelu", 1e-12, pair_dropout=0.5).eval()
    hidden = torch.randn(4, 6)
    pooled = (hidden @ head.pooler.weight.T + head.pooler.bias).tanh()
    expected = pooled @ head.classifier.weight.T + head.classifier.bias
    torch.testing.assert_close(head.pair_logits(hidden), expected)
    head.classifier = torch.nn.Identity()
    dropped = head.train().pair_logits(hidden)
    assert 0 < int((dropped == 0).sum()) < dropped.numel()
    torch.testing.assert_close(dropped[dropped != 0], 2 * pooled[dropped != 0])
