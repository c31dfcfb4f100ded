from __future__ import annotations

import pytest
import torch

from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.families import config_class, family, family_names
from domainbert.encoders.heads import EncoderWithHead, build_head
from domainbert.errors import DomainbertError


def test_every_family_has_what_the_protocol_asks_for():
    for name in family_names():
        config = config_class(name)()
        assert config.model_type == name and config.max_length > 0
        assert config_class(name).from_json(config.to_json() | {"id2label": {}, "new_in_2030": 1}) == config
        assert all(callable(getattr(family(config), part)) for part in ("build_encoder", "name_map", "architecture"))
    with pytest.raises(DomainbertError, match="model_type: found 'brt'; supported families are bert"):
        config_class("brt")


def test_fresh_weights(reference):
    torch.manual_seed(0)
    encoder = family(reference.config).build_encoder(reference.config, 5_000)
    model = EncoderWithHead(encoder, build_head("masked_lm", encoder))
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2:
            assert parameter.std().item() == pytest.approx(0.02, rel=0.15 if parameter.numel() < 1_000 else 0.05), name
        else:
            assert torch.equal(parameter, torch.full_like(parameter, float("norm.weight" in name))), name
    assert not encoder.input_embeddings.weight[0].any() and encoder.input_embeddings.weight[1].any()


def test_dropout_is_only_the_rate():
    config = BertConfig(num_hidden_layers=4, layer_norm_eps=1e-5).with_dropout(0.3)
    assert config == BertConfig(
        num_hidden_layers=4, layer_norm_eps=1e-5, hidden_dropout_prob=0.3, attention_probs_dropout_prob=0.3
    )


def test_dropout_is_on_in_training_only(reference):
    torch.manual_seed(0)
    config = reference.config.with_dropout(0.4)
    encoder = family(config).build_encoder(config, 101)
    inputs = torch.arange(5, 25)[None], torch.arange(20)[None], torch.ones(1, 20, dtype=torch.int64)
    with torch.inference_mode():
        assert not torch.equal(encoder(*inputs), encoder(*inputs))
        encoder.eval()
        assert torch.equal(encoder(*inputs), encoder(*inputs))
