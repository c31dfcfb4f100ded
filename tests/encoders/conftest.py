"""What the encoder tests need of each family; a new family adds one function to `REFERENCES`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import transformers

from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.families import build_model, config_class, family_names, name_map
from domainbert.encoders.heads import EncoderWithHead
from domainbert.encoders.names import from_hugging_face

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

    @property
    def vocabulary(self) -> VocabularyFacts:
        """Facts of the vocabulary that theirs has."""
        return VocabularyFacts(VOCAB_SIZE, self.their_config.pad_token_id)

    def config_with(self, **changes: Any) -> transformers.PretrainedConfig:
        """Their configuration with other values of some keys."""
        config = copy.deepcopy(self.their_config)
        for name, value in changes.items():
            setattr(config, name, value)
        return config

    def theirs(self, head: str | None) -> transformers.PreTrainedModel:
        """A random model in eval mode, in which no bias is 0, no norm 1 and attention is far from uniform."""
        torch.manual_seed(1)
        model = self.classes[head](self.config_with(num_labels=num_labels(head))).eval()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn_like(parameter) * 0.15)
        return model

    def ours(self, head: str, theirs: transformers.PreTrainedModel) -> EncoderWithHead:
        """Our model with the weights of theirs."""
        model = build_model(self.config, self.vocabulary, head, num_labels(head))
        state, missing = from_hugging_face(theirs.state_dict(), name_map(self.config, head))
        assert missing == []
        model.load_state_dict(state)
        return model.eval()


def num_labels(head: str | None) -> int:
    """Outputs of a head here; a span has a start and an end."""
    return 2 if head == "span" else NUM_LABELS


BERT_SIZES: dict[str, Any] = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 3,
    "intermediate_size": 80,
    "max_position_embeddings": 40,
}


def parameters_of(theirs: transformers.PreTrainedModel) -> dict[str, torch.nn.Parameter]:
    """The parameters by the names under which transformers saves them, tied ones once."""
    copies = theirs._tied_weights_keys or {}
    return {name: one for name, one in theirs.named_parameters(remove_duplicate=False) if name not in copies}


def logits_of(output: Any) -> torch.Tensor:
    """The logits of a model of transformers; (B, S, 2) of the starts and ends of spans."""
    found: torch.Tensor = output.logits if "logits" in output else torch.stack(tuple(output.values())[:2], dim=-1)
    return found


def reference_of(
    name: str,
    model_type: str,
    sizes: Mapping[str, Any],
    only_theirs: Mapping[str, Any] | None = None,
    **facts: Any,
) -> Reference:
    """Of a family whose classes begin with `name` and end as most do; `facts` are further ones of the `Reference`."""
    ends = {"masked_lm": "ForMaskedLM", "tokens": "ForTokenClassification", "sequence": "ForSequenceClassification"}
    ends |= {"span": "ForQuestionAnswering"}
    classes = {head: getattr(transformers, name + end) for head, end in {None: "Model", **ends}.items()}
    configuration = getattr(transformers, f"{name}Config")
    theirs = configuration(vocab_size=VOCAB_SIZE, num_labels=NUM_LABELS, **sizes, **(only_theirs or {}))
    return Reference(config_class(model_type)(**sizes), theirs, classes, **facts)


def bert(activation: str) -> Reference:
    more = {"hidden_act": activation, "type_vocab_size": 3, "layer_norm_eps": 1e-6}
    return reference_of("Bert", "bert", BERT_SIZES | more)


def distilbert(activation: str) -> Reference:
    sizes: dict[str, Any] = {
        "dim": 48,
        "n_layers": 3,
        "n_heads": 3,
        "hidden_dim": 80,
        "activation": activation,
        "max_position_embeddings": 40,
    }
    return reference_of("DistilBert", "distilbert", sizes)


def roberta(activation: str) -> Reference:
    """With positions for texts of 40 tokens, as the others have."""
    more = {"hidden_act": activation, "max_position_embeddings": 42, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return reference_of("Roberta", "roberta", BERT_SIZES | more)


def xlm_roberta(activation: str) -> Reference:
    more = {"hidden_act": activation, "max_position_embeddings": 42, "type_vocab_size": 1, "layer_norm_eps": 1e-5}
    return reference_of("XLMRoberta", "xlm-roberta", BERT_SIZES | more)


def electra(activation: str) -> Reference:
    """With embeddings narrower than the hidden states."""
    more = {"hidden_act": activation, "embedding_size": 20, "layer_norm_eps": 1e-6}
    return reference_of("Electra", "electra", BERT_SIZES | more)


def albert(activation: str) -> Reference:
    """Three layers in two groups: the first two share their weights."""
    more = {"hidden_act": activation, "embedding_size": 20, "num_hidden_groups": 2, "layer_norm_eps": 1e-6}
    return reference_of("Albert", "albert", BERT_SIZES | more)


def mpnet(activation: str) -> Reference:
    more = {"hidden_act": activation, "max_position_embeddings": 42, "layer_norm_eps": 1e-5}
    return reference_of("MPNet", "mpnet", BERT_SIZES | more, biased=True)


def modernbert(activation: str) -> Reference:
    """The second of three layers has a window of 4 tokens on either side; theirs turns by positions in fp32."""
    own: dict[str, Any] = {
        "hidden_activation": activation,
        "norm_eps": 1e-6,
        "local_attention": 8,
        "classifier_activation": activation,
        "classifier_pooling": "mean",
    }
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    older = {"global_attn_every_n_layers": 2, "global_rope_theta": 500.0, "local_rope_theta": 50.0}
    unlisted = {"global_attn_every_n_layers": 3, "global_rope_theta": 160_000.0, "local_rope_theta": 10_000.0}
    return reference_of("ModernBert", "modernbert", BERT_SIZES | own | older, ids, unlisted=unlisted, double=1e-6)


def deberta_v2(activation: str) -> Reference:
    """As version 3 is published, but for buckets of more than one distance from 5 tokens on."""
    own: dict[str, Any] = {
        "hidden_act": activation,
        "relative_attention": True,
        "pos_att_type": "p2c|c2p",
        "position_buckets": 8,
        "norm_rel_ebd": "layer_norm",
        "share_att_key": True,
        "position_biased_input": False,
    }
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
    return reference_of("DebertaV2", "deberta-v2", BERT_SIZES | own, unlisted=unlisted, double=double, biased=True)


REFERENCES: dict[str, Callable[[str], Reference]] = {
    "albert": albert,
    "bert": bert,
    "deberta-v2": deberta_v2,
    "distilbert": distilbert,
    "electra": electra,
    "modernbert": modernbert,
    "mpnet": mpnet,
    "roberta": roberta,
    "xlm-roberta": xlm_roberta,
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
