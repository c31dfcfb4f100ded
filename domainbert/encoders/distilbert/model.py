"""The DistilBERT encoder and its names in Hugging Face checkpoints."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from domainbert.encoders.base import CRF_NAMES, NameMap
from domainbert.encoders.bert.model import BertEncoder, build_layers
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.distilbert.config import DistilBertConfig
from domainbert.encoders.layers import Dropout, initialise
from domainbert.encoders.packed import Packed


class DistilBertEmbeddings(nn.Module):
    """Word and position embeddings, summed and normalised."""

    def __init__(
        self, vocab_size: int, max_positions: int, hidden_size: int, layer_norm_eps: float, dropout: float
    ) -> None:
        super().__init__()
        self.word = nn.Embedding(vocab_size, hidden_size)
        self.position = nn.Embedding(max_positions, hidden_size)
        self.norm = nn.LayerNorm(hidden_size, eps=layer_norm_eps)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Packed) -> Tensor:
        """(B, S) -> (B, S, H)."""
        return self.dropout(self.norm(self.word(tokens.input_ids) + self.position(tokens.position_ids)))


def build_encoder(config: EncoderConfig, vocab_size: int) -> BertEncoder:
    """A freshly initialised DistilBERT encoder: BERT's layers on embeddings without token types."""
    assert isinstance(config, DistilBertConfig)
    sizes = config.as_bert
    embeddings = DistilBertEmbeddings(
        vocab_size, config.max_position_embeddings, config.dim, sizes.layer_norm_eps, config.dropout
    )
    encoder = BertEncoder(embeddings, build_layers(sizes), sizes)
    encoder.pooler_act, encoder.sequence_dropout_prob = "relu", config.seq_classif_dropout
    initialise(encoder, config.initializer_range)
    with torch.no_grad():
        embeddings.word.weight[0].zero_()  # [PAD], as in transformers
    return encoder


_LAYER = {
    "attention.query_key_value": ("attention.q_lin", "attention.k_lin", "attention.v_lin"),
    "attention.output": ("attention.out_lin",),
    "attention_norm": ("sa_layer_norm",),
    "feed_forward.expand": ("ffn.lin1",),
    "feed_forward.contract": ("ffn.lin2",),
    "feed_forward_norm": ("output_layer_norm",),
}
_HEADS = {
    None: {},
    "masked_lm": {"head.dense": "vocab_transform", "head.norm": "vocab_layer_norm"},
    "tokens": {"head.classifier": "classifier"},
    "crf": {"head.classifier": "classifier"},
    "sequence": {"head.pooler": "pre_classifier", "head.classifier": "classifier"},
}


def name_map(config: EncoderConfig, head: str | None) -> NameMap:
    """Our parameter names to those of Hugging Face; see `domainbert.encoders.families.Family`."""
    assert isinstance(config, DistilBertConfig)
    names: NameMap = {
        f"encoder.embeddings.{part}.weight": (f"distilbert.embeddings.{part}_embeddings.weight",)
        for part in ("word", "position")
    }
    pairs: dict[str, tuple[str, ...]] = {"encoder.embeddings.norm": ("distilbert.embeddings.LayerNorm",)}
    for index in range(config.n_layers):
        for ours, theirs in _LAYER.items():
            whole = tuple(f"distilbert.transformer.layer.{index}.{name}" for name in theirs)
            pairs[f"encoder.layers.{index}.{ours}"] = whole
    pairs.update({ours: (theirs,) for ours, theirs in _HEADS[head].items()})
    for kind in ("weight", "bias"):
        names.update({f"{ours}.{kind}": tuple(f"{name}.{kind}" for name in theirs) for ours, theirs in pairs.items()})
    if head == "masked_lm":
        names["head.bias"] = ("vocab_projector.bias",)
    if head == "crf":
        names |= CRF_NAMES
    return names


def architecture(head: str | None) -> str:
    """The `transformers` class that loads the folder."""
    return {
        None: "DistilBertModel",
        "masked_lm": "DistilBertForMaskedLM",
        "tokens": "DistilBertForTokenClassification",
        "crf": "DistilBertForTokenClassification",
        "sequence": "DistilBertForSequenceClassification",
    }[head]
