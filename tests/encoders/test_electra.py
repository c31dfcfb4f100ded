"""What ELECTRA does otherwise than BERT: embeddings of a width of their own, and folders of two networks."""

from __future__ import annotations

import dataclasses

import pytest
import torch
import transformers

from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.electra.config import ElectraConfig
from domainbert.encoders.families import build_model
from domainbert.encoders.layers import Dropout
from domainbert.encoders.packed import Packed
from domainbert.models.loading import load_model
from tests.encoders.conftest import BERT_SIZES, electra, reference_of

CONFIG = ElectraConfig(24, 2, 3, 40, embedding_size=8, max_position_embeddings=20)


def tokens() -> Packed:
    ids = torch.randint(5, 101, (2, 17), generator=torch.Generator().manual_seed(0))
    return Packed(ids, torch.arange(17).expand(2, 17), torch.ones_like(ids))


@pytest.mark.parametrize("head", ["masked_lm", "sequence"])
def test_embeddings_as_wide_as_the_hidden_states_need_no_linear_layer(head, tmp_path):
    both = reference_of("Electra", "electra", BERT_SIZES | {"embedding_size": 48})
    theirs = both.theirs(head)
    theirs.save_pretrained(tmp_path)
    model, _, made = load_model(tmp_path, head)
    assert made == [] and model.encoder.embeddings.project is None
    read = torch.tensor([0, 17]) if head == "sequence" else torch.arange(34)
    with torch.inference_mode():
        wanted = theirs(tokens().input_ids).logits.reshape(len(read), -1)
        torch.testing.assert_close(model.eval()(tokens(), read), wanted, atol=2e-5, rtol=0)


def test_a_discriminator_is_an_encoder_with_a_head_of_its_own(tmp_path, capsys):
    both = electra("gelu")
    theirs = transformers.ElectraForPreTraining(both.their_config).eval()
    theirs.save_pretrained(tmp_path)
    model, folder, made = load_model(tmp_path, "masked_lm")
    assert folder.head == "replaced" and folder.config == both.config
    own = [f"generator_predictions.{one}.{kind}" for one in ("LayerNorm", "dense") for kind in ("bias", "weight")]
    assert sorted(made) == ["generator_lm_head.bias", *own]
    assert "unused weights: discriminator_predictions.dense.bias" in capsys.readouterr().out
    with torch.inference_mode():
        wanted = theirs.electra(tokens().input_ids).last_hidden_state
        torch.testing.assert_close(model.eval().encoder(tokens()), wanted, atol=2e-5, rtol=0)
    model, _, made = load_model(tmp_path, "replaced")
    assert made == []
    with torch.inference_mode():
        wanted = theirs(tokens().input_ids).logits.reshape(-1, 1)
        torch.testing.assert_close(model.eval()(tokens(), torch.arange(34)), wanted, atol=2e-5, rtol=0)


@pytest.mark.parametrize(("given", "rate"), [(None, 0.3), (0.5, 0.5)])
def test_heads_have_the_dropout_of_classifiers_and_gelu(given, rate):
    config = dataclasses.replace(CONFIG, hidden_act="relu", hidden_dropout_prob=0.3, classifier_dropout=given)
    for kind, count in (("tokens", 1), ("sequence", 2)):
        head = build_model(config, VocabularyFacts(40, 0), kind, 3).head
        assert [part.rate for part in head.modules() if isinstance(part, Dropout)] == [rate] * count
    for kind in ("sequence", "masked_lm"):
        head = build_model(config, VocabularyFacts(40, 0), kind, 3).head
        assert head.activation is torch.nn.functional.gelu


def test_only_embeddings_as_wide_as_the_hidden_states_follow_them():
    def width(config: ElectraConfig) -> int:
        return config.resized(dataclasses.replace(config.sizes, hidden_size=12)).embedding_size

    assert (width(CONFIG), width(dataclasses.replace(CONFIG, embedding_size=24))) == (8, 12)
