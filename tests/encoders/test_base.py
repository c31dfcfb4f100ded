"""The loop over blocks, on an encoder whose first two blocks are one module."""

from __future__ import annotations

import torch
from torch import nn

from domainbert.distillation.module import frozen_parameters
from domainbert.encoders.base import Encoder
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead, TokenHead
from domainbert.encoders.layers import PostNormLayer, SelfAttention, choose_kernel
from domainbert.encoders.packed import Packed
from domainbert.encoders.recording import record
from domainbert.training.config import OptimConfig
from domainbert.training.optimisers import build_optimizer
from domainbert.training.throughput import flops_per_token

TOKENS = Packed(torch.tensor([[1, 2, 3, 4]]), torch.tensor([[0, 1, 0, 1]]), torch.tensor([[1, 1, 2, 2]]))


class Shared(Encoder):
    """Embeddings of width 4 with a projection to 8, three uses of two layers, and a last norm."""

    hidden_size, num_heads = 8, 2

    def __init__(self) -> None:
        super().__init__()
        self.words, self.project = nn.Embedding(10, 4), nn.Linear(4, 8)
        sizes = BertConfig(8, 2, 2, 16, hidden_dropout_prob=0.0).sizes
        self.groups = nn.ModuleList(PostNormLayer(SelfAttention(8, 2, 0.0), sizes) for _ in range(2))
        self.norm = nn.LayerNorm(8)

    @property
    def input_embeddings(self) -> nn.Embedding:
        return self.words

    def embed(self, tokens):
        return self.project(self.words(tokens.input_ids))

    def context(self, tokens):
        return choose_kernel(tokens, 4, 0.0)

    def blocks(self):
        return [self.groups[0], self.groups[0], self.groups[1]]

    def finish(self, hidden, tokens):
        return self.norm(hidden)


def make() -> Shared:
    torch.manual_seed(0)
    return Shared()


def test_blocks_run_in_order_however_often_one_stands_there():
    encoder = make()
    context = encoder.context(TOKENS)
    states = [encoder.embed(TOKENS)]
    for block in encoder.blocks():
        states.append(block(states[-1], context))
    found = encoder.hidden_states(TOKENS)
    assert len(found) == 4 == encoder.num_hidden_layers + 1
    assert all(map(torch.equal, found[:3], states[:3])) and torch.equal(found[3], encoder.norm(states[3]))
    assert torch.equal(encoder(TOKENS), found[3])


def test_each_use_of_a_block_is_recorded_by_itself():
    encoder = make()
    recording = record(encoder, TOKENS, {1, 2, 3})
    for number, hidden in enumerate(recording.hidden[:3], start=1):
        layer = encoder.blocks()[number - 1].attention
        wanted = layer.query_key_value(hidden).view(1, 4, 3, 2, 4).permute(2, 0, 3, 1, 4)
        found = recording.projections[number]
        assert torch.equal(torch.stack([found.queries, found.keys, found.values]), wanted)


def test_depth():
    encoder = make()
    depths = {name: encoder.depth_of(name) for name, _ in encoder.named_parameters()}
    assert {name.split(".")[0]: depth for name, depth in depths.items() if "groups" not in name} == {
        "words": 0,
        "project": 0,
        "norm": 0,
    }
    assert {depth for name, depth in depths.items() if "groups.0." in name} == {2}
    assert {depth for name, depth in depths.items() if "groups.1." in name} == {3}
    assert {id(p) for p in frozen_parameters(encoder, 1, 1)} == {
        id(p) for n, p in encoder.named_parameters() if "groups.1." not in n
    }


def test_weights_decay_unless_they_are_looked_up_and_learn_by_their_depth():
    model = EncoderWithHead(make(), TokenHead(8, 3, 0.0))
    optimizer = build_optimizer([model], OptimConfig(lr=1.0, weight_decay=0.1, layer_decay=0.5), fused=False)
    of = {id(p): (group["lr"], group["weight_decay"]) for group in optimizer.param_groups for p in group["params"]}
    encoder = model.encoder
    assert of[id(encoder.words.weight)] == (0.125, 0.0) and of[id(encoder.project.weight)] == (0.125, 0.1)
    assert of[id(encoder.groups[0].feed_forward.expand.weight)] == (0.5, 0.1)
    assert of[id(encoder.groups[1].feed_forward.expand.weight)] == (1.0, 0.1)


def test_a_block_that_is_used_twice_costs_twice():
    model = EncoderWithHead(make(), nn.Identity())
    layer = 4 * 8 * 8 + 2 * 8 * 16
    assert flops_per_token(model, 32, 0.0) == 6 * (4 * 8 + 2 * layer + 3 * 8 * 8) + 12 * 3 * 8 * 32


def test_an_encoder_with_one_token_type_is_blind_to_what_the_tokenizer_says():
    encoders = [build_encoder(BertConfig(8, 1, 2, 16, max_position_embeddings=4, type_vocab_size=n)) for n in (1, 2)]
    typed = TOKENS._replace(token_type_ids=torch.tensor([[0, 1, 0, 1]]))
    assert [torch.equal(one(TOKENS), one(typed)) for one in encoders] == [True, False]


def build_encoder(config: BertConfig) -> Encoder:
    return build_model(config, VocabularyFacts(10, 0), "masked_lm").encoder.eval()
