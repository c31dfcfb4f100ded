"""Layer-wise decay of the learning rate: the rate of every parameter, and an optimiser step by hand."""

from __future__ import annotations

import dataclasses
import re

import numpy as np
import pytest
import torch

from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.families import build_model
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.modernbert.config import ModernBertConfig
from domainbert.encoders.mpnet.config import MPNetConfig
from domainbert.training.config import OptimConfig
from domainbert.training.optimisers import build_optimizer

SIZES = {"hidden_size": 16, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 32}
LR, HEAD_LR, DECAY = 1e-2, 5e-2, 0.8
OPTIM = OptimConfig(lr=LR, head_lr=HEAD_LR, layer_decay=DECAY, weight_decay=0.1, betas=(0.9, 0.95), eps=1e-6)

FAMILIES: dict[str, tuple[EncoderConfig, tuple[int, ...]]] = {
    "bert": (BertConfig(**SIZES, max_position_embeddings=16), (1, 2, 3)),
    "deberta": (
        DebertaV2Config(
            **SIZES,
            max_position_embeddings=16,
            relative_attention=True,
            pos_att_type="c2p|p2c",
            norm_rel_ebd="layer_norm",
            conv_kernel_size=3,
        ),
        (1, 2, 3),
    ),
    "albert": (AlbertConfig(**SIZES, max_position_embeddings=16, embedding_size=8), (3,)),
    "albert of two groups": (
        AlbertConfig(**SIZES | {"num_hidden_layers": 4}, max_position_embeddings=16, num_hidden_groups=2),
        (2, 4),
    ),
}
"""An encoder, and for each of its sets of layer weights the number of the layer that is the last to use it."""


def model_of(config: EncoderConfig) -> EncoderWithHead:
    torch.manual_seed(0)
    return build_model(dataclasses.replace(config, initializer_range=0.1), VocabularyFacts(20, 0), "tokens", 3)


def wanted_rate(name: str, last_uses: tuple[int, ...]) -> float:
    """lr * decay^(N - depth), embeddings at depth 0; by the parameter's name alone."""
    if name.startswith("head."):
        return HEAD_LR
    layer = re.match(r"encoder\.layers\.(\d+)\.", name)
    return LR * DECAY ** (last_uses[-1] - (last_uses[int(layer[1])] if layer else 0))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_step_by_hand_moves_every_parameter_at_its_own_rate(family: str) -> None:
    """Two steps of AdamW (Loshchilov and Hutter 2019, algorithm 2) in NumPy, in double precision."""
    config, last_uses = FAMILIES[family]
    model = model_of(config)
    optimizer = build_optimizer([model], OPTIM)
    tables = {id(part.weight) for part in model.modules() if isinstance(part, torch.nn.Embedding)}
    before = {name: one.detach().double().numpy().copy() for name, one in model.named_parameters()}
    generator, (first, second), gradients = np.random.default_rng(0), OPTIM.betas, []
    for _ in range(2):
        gradients.append({name: generator.normal(size=one.shape) for name, one in model.named_parameters()})
        for name, parameter in model.named_parameters():
            parameter.grad = torch.tensor(gradients[-1][name], dtype=torch.float32)
        optimizer.step()
    rates = {wanted_rate(name, last_uses) for name in before}
    assert len(rates) == len(last_uses) + 2, "embeddings, layers, head"
    for name, parameter in model.named_parameters():
        rate, weight = wanted_rate(name, last_uses), before[name]
        decay = 0.1 if parameter.ndim >= 2 and id(parameter) not in tables else 0.0
        mean = square = np.zeros(())
        for step, gradient in enumerate((one[name] for one in gradients), start=1):
            mean, square = first * mean + (1 - first) * gradient, second * square + (1 - second) * gradient**2
            moved = mean / (1 - first**step) / (np.sqrt(square / (1 - second**step)) + OPTIM.eps)
            weight = weight * (1 - rate * decay) - rate * moved
        np.testing.assert_allclose(parameter.detach().numpy(), weight, rtol=2e-5, atol=2e-6, err_msg=name)


@pytest.mark.parametrize("family", [*FAMILIES, "modernbert", "mpnet"])
def test_what_reads_embeddings_is_all_but_them(family: str) -> None:
    """Distances, a convolution and a last norm, too; a projection of the embeddings is one of them."""
    others = {
        "modernbert": ModernBertConfig(**SIZES, max_position_embeddings=16),
        "mpnet": MPNetConfig(**SIZES, max_position_embeddings=16),
    }
    config = others[family] if family in others else FAMILIES[family][0]
    encoder = build_model(config, VocabularyFacts(20, int(family == "mpnet")), "tokens", 3).encoder
    reading = {id(parameter) for parameter in encoder.non_embedding_parameters()}
    embedding = {name.split(".")[0] for name, one in encoder.named_parameters() if id(one) not in reading}
    assert embedding == ({"word", "word_norm"} if family == "modernbert" else {"embeddings"})
    assert {id(one) for block in encoder.blocks() for one in block.parameters()} <= reading
