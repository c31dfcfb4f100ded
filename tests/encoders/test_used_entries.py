from __future__ import annotations

import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.packed import Packed
from domainbert.encoders.used_entries import UsedEntries
from domainbert.training.config import OptimConfig
from domainbert.training.optimisers import build_optimizer

VOCAB_SIZE = 50
USED = torch.tensor([0, 2, 3, 11, 17, 40, 49])
CONFIG = BertConfig(
    hidden_size=16,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=32,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
    max_position_embeddings=8,
)


def make_model() -> EncoderWithHead:
    torch.manual_seed(0)
    return build_model(CONFIG, VocabularyFacts(VOCAB_SIZE, 0), "tokens", 3)


def train(model: EncoderWithHead, row: torch.Tensor, optim: OptimConfig) -> list[float]:
    """Gradient norms of six steps; not every step meets every entry."""
    optimizer = build_optimizer([model], optim)
    generator = torch.Generator().manual_seed(1)
    positions, segments, norms = torch.arange(8).expand(2, 8), torch.ones(2, 8, dtype=torch.int64), []
    for _ in range(6):
        ids = row[USED[torch.randint(len(USED), (2, 8), generator=generator)]]
        optimizer.zero_grad()
        model(Packed(ids, positions, segments), torch.arange(16)).square().sum().backward()
        norms.append(float(clip_grad_norm_(model.parameters(), 0.5)))
        optimizer.step()
    return norms


@pytest.mark.parametrize("name", ["adamw", "muon"])
def test_training_on_the_used_entries_is_training_on_all(name):
    optim = OptimConfig(name=name, lr=1e-2, weight_decay=0.1)
    everything, compact = make_model(), make_model()
    before = everything.encoder.input_embeddings.weight.detach().clone()
    norms = train(everything, torch.arange(VOCAB_SIZE), optim)
    entries = UsedEntries(compact, USED.repeat(3).flip(0).view(3, -1))
    assert compact.encoder.input_embeddings.weight.shape == (len(USED), 16)
    assert train(compact, entries.row, optim) == pytest.approx(norms, rel=1e-4)
    weights = entries.restore_weights(compact.state_dict())
    wanted = everything.state_dict()
    assert list(weights) == list(wanted)
    for parameter, tensor in wanted.items():
        torch.testing.assert_close(weights[parameter], tensor, atol=1e-4, rtol=0, msg=parameter)
    after = weights["encoder.embeddings.word.weight"]
    others = torch.ones(VOCAB_SIZE, dtype=torch.bool).index_fill(0, USED, False)
    assert torch.equal(after[others], before[others]) and (after[USED[1:]] != before[USED[1:]]).any(dim=1).all()


def test_rows_are_those_of_the_entries():
    model = make_model()
    whole = model.encoder.input_embeddings.weight.detach().clone()
    entries = UsedEntries(model, USED)
    assert torch.equal(model.encoder.input_embeddings(entries.row[USED]), whole[USED])
    assert sorted(set(range(VOCAB_SIZE)) - set(USED.tolist())) == (entries.row == -1).nonzero().flatten().tolist()
    assert torch.equal(entries.restore_weights(model.state_dict())["encoder.embeddings.word.weight"], whole)
    with pytest.raises(IndexError):
        model.encoder.input_embeddings(entries.row[torch.tensor([1])])
