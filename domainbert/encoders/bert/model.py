"""The BERT encoder and its names in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from domainbert.encoders.attention import Segments, choose_kernel
from domainbert.encoders.base import CRF_NAMES, Encoder, NameMap
from domainbert.encoders.bert.config import BertConfig
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.layers import Dropout, FeedForward, PostNormLayer, SelfAttention, initialise
from domainbert.encoders.packed import Packed


class BertEmbeddings(nn.Module):
    """Word, position and token-type embeddings, summed and normalised."""

    def __init__(
        self,
        vocab_size: int,
        max_positions: int,
        token_types: int,
        hidden_size: int,
        layer_norm_eps: float,
        dropout: float,
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, hidden_size)
        self.position = nn.Embedding(max_positions, hidden_size)
        self.token_type = nn.Embedding(token_types, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Packed) -> Tensor:
        """(B, S) -> (B, S, H)."""
        given = tokens.token_type_ids
        types = self.token_type.weight[0] if given is None else self.token_type(given)
        summed = self.word(tokens.input_ids) + self.position(tokens.position_ids) + types
        return self.dropout(self.norm(summed))


class BertEncoder(Encoder):
    """Embeddings and a stack of post-norm layers (Devlin et al. 2019, section 3)."""

    def __init__(self, embeddings: nn.Module, layers: list[PostNormLayer], config: BertConfig) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)
        self.hidden_size, self.num_heads = config.hidden_size, config.num_attention_heads
        self.attention_dropout = config.attention_probs_dropout_prob
        self.hidden_act = config.hidden_act
        self.layer_norm_eps = config.layer_norm_eps
        self.initializer_range = config.initializer_range
        self.dropout_prob = self.sequence_dropout_prob = config.hidden_dropout_prob

    def embed(self, tokens: Packed) -> Tensor:
        """See `Encoder.embed`."""
        embedded: Tensor = self.embeddings(tokens)
        return embedded

    def context(self, tokens: Packed) -> Segments:
        """See `Encoder.context`."""
        rate = self.attention_dropout if self.training else 0.0
        return choose_kernel(tokens, self.hidden_size // self.num_heads, rate)

    def blocks(self) -> Sequence[nn.Module]:
        """See `Encoder.blocks`."""
        return list(self.layers)

    @property
    def input_embeddings(self) -> nn.Embedding:
        """The word embeddings."""
        word = self.embeddings.word
        assert isinstance(word, nn.Embedding)
        return word


def build_encoder(config: EncoderConfig, vocab_size: int) -> BertEncoder:
    """A freshly initialised BERT encoder."""
    assert isinstance(config, BertConfig)
    width, eps, dropout = config.hidden_size, config.layer_norm_eps, config.hidden_dropout_prob
    embeddings = BertEmbeddings(vocab_size, config.max_position_embeddings, config.type_vocab_size, width, eps, dropout)
    encoder = BertEncoder(embeddings, build_layers(config), config)
    encoder.num_token_types = config.type_vocab_size
    initialise(encoder, config.initializer_range)
    with torch.no_grad():
        embeddings.word.weight[0].zero_()  # [PAD], as in transformers
    return encoder


def build_layers(config: BertConfig) -> list[PostNormLayer]:
    """The layers of an encoder, as torch initialises them."""
    width = config.hidden_size
    return [
        PostNormLayer(
            SelfAttention(width, config.num_attention_heads, config.attention_probs_dropout_prob),
            FeedForward(width, config.intermediate_size, config.hidden_act),
            width,
            config.layer_norm_eps,
            config.hidden_dropout_prob,
        )
        for _ in range(config.num_hidden_layers)
    ]


_EMBEDDINGS = {
    "embeddings.word": "embeddings.word_embeddings",
    "embeddings.position": "embeddings.position_embeddings",
    "embeddings.token_type": "embeddings.token_type_embeddings",
}
_LAYER = {
    "attention.query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.expand": ("intermediate.dense",),
    "feed_forward.contract": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}
_HEADS = {
    None: {},
    "masked_lm": {
        "head.dense": "cls.predictions.transform.dense",
        "head.norm": "cls.predictions.transform.LayerNorm",
    },
    "tokens": {"head.classifier": "classifier"},
    "crf": {"head.classifier": "classifier"},
    "sequence": {"head.pooler": "bert.pooler.dense", "head.classifier": "classifier"},
}


def name_map(config: EncoderConfig, head: str | None) -> NameMap:
    """Our parameter names to those of Hugging Face; see `domainbert.encoders.families.Family`."""
    assert isinstance(config, BertConfig)
    names: NameMap = {f"encoder.{ours}.weight": (f"bert.{theirs}.weight",) for ours, theirs in _EMBEDDINGS.items()}
    pairs: dict[str, tuple[str, ...]] = {"encoder.embeddings.norm": ("bert.embeddings.LayerNorm",)}
    for index in range(config.num_hidden_layers):
        for ours, theirs in _LAYER.items():
            pairs[f"encoder.layers.{index}.{ours}"] = tuple(f"bert.encoder.layer.{index}.{name}" for name in theirs)
    pairs.update({ours: (theirs,) for ours, theirs in _HEADS[head].items()})
    for kind in ("weight", "bias"):
        names.update({f"{ours}.{kind}": tuple(f"{name}.{kind}" for name in theirs) for ours, theirs in pairs.items()})
    if head == "masked_lm":
        names["head.bias"] = ("cls.predictions.bias",)
    if head == "crf":
        names |= CRF_NAMES
    return names


def architecture(head: str | None) -> str:
    """The `transformers` class that loads the folder."""
    return {
        None: "BertModel",
        "masked_lm": "BertForMaskedLM",
        "tokens": "BertForTokenClassification",
        "crf": "BertForTokenClassification",
        "sequence": "BertForSequenceClassification",
    }[head]
