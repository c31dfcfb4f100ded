"""What the encoder tests need of each family; a new family adds one function to `REFERENCES`."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers

from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.families import build_model, family_names, name_map
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.names import from_hugging_face
from domainbert.encoders.roberta.config import RobertaConfig

VOCAB_SIZE = 101
NUM_LABELS = 5


@dataclass(frozen=True)
class Reference:
    """A tiny architecture, ours and as `transformers` knows it.

    `classes` are the `transformers` models for each kind of head, and for the encoder alone under None;
    `unlisted` are the defaults of keys that their model reads, though their configuration does not have them; `double`
    is how close the two are in double precision, in which theirs may not compute everything; `biased` says whether
    attention adds a bias to the scores.
    """

    config: EncoderConfig
    their_config: transformers.PretrainedConfig
    classes: Mapping[str | None, type[transformers.PreTrainedModel]]
    unlisted: Mapping[str, Any] = dataclasses.field(default_factory=dict)
    double: float = 1e-10
    biased: bool = False

    def theirs(self, head: str | None) -> transformers.PreTrainedModel:
        """A random model in eval mode, in which no bias is 0, no norm 1 and attention is far from uniform."""
        torch.manual_seed(1)
        model = self.classes[head](self.their_config).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.15)
        return model

    def ours(self, head: str, theirs: transformers.PreTrainedModel) -> EncoderWithHead:
        """Our model with the weights of theirs."""
        model = build_model(self.config, VocabularyFacts(VOCAB_SIZE, self.their_config.pad_token_id), head, NUM_LABELS)
        state, missing = from_hugging_face(theirs.state_dict(), name_map(self.config, head))
        assert missing == []
        model.load_state_dict(state)
        return model.eval()


def bert(activation: str) -> Reference:
    sizes: dict[str, Any] = {
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 80,
        "hidden_act": activation,
        "max_position_embeddings": 40,
        "type_vocab_size": 3,
        "layer_norm_eps": 1e-6,
    }
    classes = {
        None: transformers.BertModel,
        "masked_lm": transformers.BertForMaskedLM,
        "tokens": transformers.BertForTokenClassification,
        "sequence": transformers.BertForSequenceClassification,
    }
    theirs = transformers.BertConfig(vocab_size=VOCAB_SIZE, num_labels=NUM_LABELS, **sizes)
    return Reference(BertConfig(**sizes), theirs, classes)


def distilbert(activation: str) -> Reference:
    sizes: dict[str, Any] = {
        "dim": 48,
        "n_layers": 3,
        "n_heads": 3,
        "hidden_dim": 80,
        "activation": activation,
        "max_position_embeddings": 40,
    }
    classes = {
        None: transformers.DistilBertModel,
        "masked_lm": transformers.DistilBertForMaskedLM,
        "tokens": transformers.DistilBertForTokenClassification,
        "sequence": transformers.DistilBertForSequenceClassification,
    }
    theirs = transformers.DistilBertConfig(vocab_size=VOCAB_SIZE, num_labels=NUM_LABELS, **sizes)
    return Reference(DistilBertConfig(**sizes), theirs, classes)


def roberta(activation: str) -> Reference:
    """With positions for texts of 40 tokens, as the others have."""
    sizes: dict[str, Any] = {
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 80,
        "hidden_act": activation,
        "max_position_embeddings": 42,
        "type_vocab_size": 1,
        "layer_norm_eps": 1e-5,
    }
    classes = {
        None: transformers.RobertaModel,
        "masked_lm": transformers.RobertaForMaskedLM,
        "tokens": transformers.RobertaForTokenClassification,
        "sequence": transformers.RobertaForSequenceClassification,
    }
    theirs = transformers.RobertaConfig(vocab_size=VOCAB_SIZE, num_labels=NUM_LABELS, **sizes)
    return Reference(RobertaConfig(**sizes), theirs, classes)


def deberta_v2(activation: str) -> Reference:
    """As version 3 is published, but for buckets of more than one distance from 5 tokens on."""
    sizes: dict[str, Any] = {
        "hidden_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "intermediate_size": 80,
        "hidden_act": activation,
        "max_position_embeddings": 40,
        "relative_attention": True,
        "pos_att_type": "p2c|c2p",
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    }
    classes = {
        None: transformers.DebertaV2Model,
        "masked_lm": transformers.DebertaV2ForMaskedLM,
        "tokens": transformers.DebertaV2ForTokenClassification,
        "sequence": transformers.DebertaV2ForSequenceClassification,
    }
    theirs = transformers.DebertaV2Config(vocab_size=VOCAB_SIZE, num_labels=NUM_LABELS, **sizes)
    unlisted = {
        "position_buckets": -1,
        "norm_rel_ebd": "none",
        "share_att_key": False,
        "embedding_size": None,
        "conv_kernel_size": 0,
        "conv_act": "tanh",
        "cls_dropout": None,
    }
    double = 1e-7  # there is a root in single precision
    return Reference(DebertaV2Config(**sizes), theirs, classes, unlisted, double, biased=True)


REFERENCES: dict[str, Callable[[str], Reference]] = {
    "bert": bert,
    "deberta-v2": deberta_v2,
    "distilbert": distilbert,
    "roberta": roberta,
}


@pytest.fixture(autouse=True)
def on_one_thread(one_thread: None) -> None:
    """Every test here."""


@pytest.fixture(params=family_names())
def make_reference(request: pytest.FixtureRequest) -> Callable[[str], Reference]:
    """Makes the reference of each family, with a given activation."""
    return REFERENCES[request.param]


@pytest.fixture
def reference(make_reference: Callable[[str], Reference]) -> Reference:
    """The reference of each family."""
    return make_reference("gelu")
