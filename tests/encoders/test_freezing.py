"""Layers that do not learn: which parameters they are, and that nothing is computed for them."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.families import build_model
from domainbert.encoders.modernbert.config import ModernBertConfig
from domainbert.encoders.packed import Packed
from domainbert.training.config import OptimConfig
from domainbert.training.optimisers import build_optimizer
from tests.refusals import refused

SIZES = {"hidden_size": 16, "num_hidden_layers": 4, "num_attention_heads": 2, "intermediate_size": 32}
RELATIVE = {"relative_attention": True, "pos_att_type": "c2p|p2c", "norm_rel_ebd": "layer_norm"}
FAMILIES: dict[str, tuple[EncoderConfig, tuple[str, ...]]] = {
    "bert": (BertConfig(**SIZES, max_position_embeddings=16), ("embeddings.",)),
    "deberta": (DebertaV2Config(**SIZES, **RELATIVE, max_position_embeddings=16), ("embeddings.", "distances.")),
    "modernbert": (ModernBertConfig(**SIZES, max_position_embeddings=16), ("word.", "word_norm.")),
}
"""An encoder of four layers, and what its embeddings are called."""
TOKENS = Packed(torch.arange(8).view(1, 8) + 2, torch.arange(8).view(1, 8), torch.ones(1, 8, dtype=torch.int64))


def model_of(config: EncoderConfig):
    torch.manual_seed(0)
    return build_model(config, VocabularyFacts(20, 0), "tokens", 3)


@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
@pytest.mark.parametrize("frozen", [0, 2, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_embeddings_and_the_first_layers_have_neither_gradient_nor_state_nor_decay(family, frozen, optimiser):
    config, embeddings = FAMILIES[family]
    model = model_of(config)
    still = tuple(f"encoder.{name}" for name in embeddings) + tuple(f"encoder.layers.{n}." for n in range(frozen))
    if frozen == 4:
        still += ("encoder.last_norm.",)  # as high as the last layer
    model.encoder.freeze(frozen)
    optimizer = build_optimizer([model], OptimConfig(optimiser, lr=0.1, weight_decay=0.5))
    before = {name: one.detach().clone() for name, one in model.named_parameters()}
    for _ in range(2):
        optimizer.zero_grad()
        model(TOKENS, torch.arange(8)).square().sum().backward()
        optimizer.step()
    parts = getattr(optimizer, "optimizers", [optimizer])
    states = {parameter for one in parts for parameter in one.state}
    for name, parameter in model.named_parameters():
        learns = not name.startswith(still)
        assert parameter.requires_grad == learns == (parameter.grad is not None) == (parameter in states), name
        assert torch.equal(parameter, before[name]) != learns, name


@pytest.mark.parametrize("family", FAMILIES)
def test_the_backward_pass_ends_above_them(family):
    """What goes into the first layer that learns needs no gradient, also where layers are computed again."""
    model = model_of(FAMILIES[family][0]).train()
    model.encoder.freeze(2)
    inputs = []
    for block in model.encoder.blocks():
        block.register_forward_pre_hook(lambda _, given: inputs.append(given[0].requires_grad))
    model(TOKENS, torch.arange(8))
    assert inputs == [False, False, False, True]
    model.encoder.activation_checkpointing = True
    model(TOKENS, torch.arange(8)).square().sum().backward()
    assert model.encoder.blocks()[1].attention.output.weight.grad is None
    assert float(model.encoder.blocks()[2].attention.output.weight.grad.norm()) > 0


def test_layers_that_share_weights_are_frozen_together():
    config = AlbertConfig(**SIZES, max_position_embeddings=16, num_hidden_groups=2)  # layers 1 and 2, 3 and 4
    model = model_of(config)
    model.encoder.freeze(2)
    still = {name.split(".")[2] for name, one in model.encoder.named_parameters(prefix="e") if not one.requires_grad}
    assert {"0"} <= still and "1" not in still
    for number, layer in ((1, 1), (3, 3)):
        with refused(
            where="frozen_layers", found=f"{number}, but layer {layer} shares its weights with a higher layer"
        ):
            model_of(config).encoder.freeze(number)
    whole = model_of(dataclasses.replace(config, num_hidden_groups=1))
    with refused(where="frozen_layers", found="3, but layer 1 shares its weights..."):
        whole.encoder.freeze(3)
    assert all(one.requires_grad for one in whole.parameters()), "nothing happens where it is refused"
    whole.encoder.freeze(4)
    assert not any(one.requires_grad for one in whole.encoder.parameters())


def test_more_layers_than_there_are():
    with refused(where="frozen_layers", found="5"):
        model_of(FAMILIES["bert"][0]).encoder.freeze(5)
