"""What ALBERT does otherwise than BERT: layers that are used several times, and narrow embeddings."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import transformers

from domainbert.encoders.albert.config import AlbertConfig
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.families import build_model, family, name_map
from domainbert.encoders.layers import Dropout
from domainbert.encoders.names import to_hugging_face
from domainbert.encoders.packed import Packed
from domainbert.models.loading import load_model
from domainbert.training.config import OptimConfig
from domainbert.training.optimisers import build_optimizer
from tests.encoders.conftest import BERT_SIZES, Reference, reference_of
from tests.refusals import refused

CONFIG = AlbertConfig(24, 6, 3, 40, embedding_size=8, max_position_embeddings=20, num_hidden_groups=2)


def reference(layers: int, groups: int, inner: int = 1, width: int = 20) -> Reference:
    shape = {"num_hidden_layers": layers, "num_hidden_groups": groups, "inner_group_num": inner}
    return reference_of("Albert", "albert", BERT_SIZES | shape | {"embedding_size": width})


def tokens() -> Packed:
    ids = torch.randint(5, 101, (2, 17), generator=torch.Generator().manual_seed(0))
    return Packed(ids, torch.arange(17).expand(2, 17), torch.ones_like(ids))


@pytest.mark.parametrize(("layers", "groups", "inner", "width"), [(4, 1, 1, 48), (5, 3, 1, 20), (2, 2, 2, 20)])
def test_states_of_each_use_and_gradients_summed_over_all(layers, groups, inner, width):
    """Embeddings are projected by a linear layer even if they are as wide as the hidden states."""
    both = reference(layers, groups, inner, width)
    theirs = both.theirs("masked_lm")
    model, given = both.ours("masked_lm", theirs), tokens()
    wanted = theirs(given.input_ids, output_hidden_states=True)
    found = model.encoder.hidden_states(given)
    assert len(found) == len(wanted.hidden_states) == layers * inner + 1 == both.config.sizes.num_layers + 1
    for one, other in zip(found, wanted.hidden_states, strict=True):
        torch.testing.assert_close(one, other, atol=2e-5, rtol=0)
    weights = torch.linspace(-1, 1, 101)
    (model(given, torch.arange(34)) * weights).mean().backward()
    (wanted.logits * weights).mean().backward()
    gradients = {name: parameter.grad for name, parameter in model.named_parameters()}
    flat = to_hugging_face(gradients, name_map(both.config, "masked_lm"))
    for name, parameter in theirs.named_parameters():
        torch.testing.assert_close(flat[name], parameter.grad, atol=2e-5, rtol=1e-3, msg=name)


@pytest.mark.parametrize(
    ("layers", "groups", "inner", "weights"),
    [
        (4, 1, 1, (0, 0, 0, 0)),
        (4, 2, 1, (0, 0, 1, 1)),
        (5, 3, 1, (0, 0, 1, 1, 2)),
        (3, 3, 1, (0, 1, 2)),
        (4, 2, 2, (0, 1, 0, 1, 2, 3, 2, 3)),
    ],
)
def test_weights_of_each_layer(layers, groups, inner, weights):
    config = dataclasses.replace(CONFIG, num_hidden_layers=layers, num_hidden_groups=groups, inner_group_num=inner)
    encoder = family(config).encoder(config, VocabularyFacts(40, 0))
    assert config.layer_weights == weights and len(encoder.layers) == max(weights) + 1
    assert [list(encoder.layers).index(block) for block in encoder.blocks()] == list(weights)
    assert config.resized(config.sizes) == config


def test_the_optimiser_sees_shared_weights_once_at_the_depth_of_their_last_use():
    model = build_model(CONFIG, VocabularyFacts(40, 0), "masked_lm")
    optimizer = build_optimizer([model], OptimConfig(lr=1.0, layer_decay=0.5), fused=False)
    rates = {parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]}
    assert sum(len(group["params"]) for group in optimizer.param_groups) == len(rates) == len(list(model.parameters()))
    assert [rates[layer.attention.output.weight] for layer in model.encoder.layers] == [0.5**3, 1.0]
    assert rates[model.encoder.embeddings.project.weight] == 0.5**6


def test_other_sizes_keep_groups_where_there_are_layers_for_them():
    def groups(layers: int, config: AlbertConfig = CONFIG) -> tuple[int, int]:
        other = config.resized(dataclasses.replace(config.sizes, num_layers=layers))
        return other.num_hidden_layers, other.num_hidden_groups

    assert (groups(8), groups(2), groups(1)) == ((8, 2), (2, 2), (1, 1))
    inner = dataclasses.replace(CONFIG, inner_group_num=2)
    assert groups(4, inner) == (2, 2)
    with refused(found="3 layers for an ALBERT encoder with inner_group_num=2", expected="a multiple of 2"):
        groups(3, inner)
    with refused(where="num_hidden_groups", found="2", expected="at most num_hidden_layers=1"):
        dataclasses.replace(CONFIG, num_hidden_layers=1)


def test_heads_have_the_dropout_of_classifiers():
    for kind in ("tokens", "sequence"):
        head = build_model(CONFIG, VocabularyFacts(40, 0), kind, 3).head
        assert [part.rate for part in head.modules() if isinstance(part, Dropout) and part.rate] == [0.1]


def test_a_folder_with_both_heads_of_pretraining(tmp_path, capsys):
    """That for the order of segments is said to be of no use here; keys that nothing reads stay."""
    theirs = transformers.AlbertForPreTraining(reference(3, 1).their_config)
    theirs.config.net_structure_type, theirs.config.gap_size = 0, 0
    theirs.save_pretrained(tmp_path)
    model, folder, made = load_model(tmp_path, "masked_lm")
    assert made == [] and folder.head == "pretraining" and folder.config.extra_fields["gap_size"] == 0
    printed = capsys.readouterr().out
    assert "unused weights: albert.pooler.bias, albert.pooler.weight, sop_classifier.classifier.bias" in printed
    with torch.inference_mode():
        wanted = theirs.eval()(tokens().input_ids).prediction_logits.flatten(0, 1)
        torch.testing.assert_close(model.eval()(tokens(), torch.arange(34)), wanted, atol=2e-5, rtol=0)
