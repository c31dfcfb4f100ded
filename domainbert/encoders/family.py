"""The interface of a family of encoders."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import ClassVar, Generic, TypeVar

from torch import Tensor, nn

from domainbert.encoders.base import Encoder
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.names import NameMap, numbered, with_weight_and_bias

C = TypeVar("C", bound=EncoderConfig)

_BERT_LAYER = {
    "attention.query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.expand": ("intermediate.dense",),
    "feed_forward.contract": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}


class Family(ABC, Generic[C]):
    """A family, which its `model.py` holds as `FAMILY`; what needs no torch stands in its configuration.

    `names`, `tied` and `per_entry` follow from the attributes, which are names in Hugging Face's models; a family whose
    encoder is no `PostNormEncoder` has its own `encoder_names`, or its own of all three.

    Attributes:
        prefix: what the base model is called in a model with a head: `bert.`.
        unread: tensors of the base model that no head here reads, such as a pooler.
        tables: embeddings that are summed.
        layers: where the layers are numbered, in the base model.
        layer: our modules of a layer to theirs.
        heads: our modules of each kind of head to theirs, `masked_lm` among them.
        of_any_head: how the names of tensors outside the base model begin that are the same in all kinds of head: a new
            head starts from those of the old one, whatever it predicted.
        output_bias: the bias of a head that predicts entries.
        output_copies: its output weights, which are the word embeddings, and where there is one a copy of that bias.
    """

    prefix: ClassVar[str]
    unread: ClassVar[Sequence[str]] = ()
    tables: ClassVar[Sequence[str]] = ("word", "position", "token_type")
    layers: ClassVar[str] = "encoder.layer"
    layer: ClassVar[Mapping[str, tuple[str, ...]]] = _BERT_LAYER
    heads: ClassVar[Mapping[str, Mapping[str, str]]]
    of_any_head: ClassVar[tuple[str, ...]] = ()
    output_bias: ClassVar[str]
    output_copies: ClassVar[Sequence[str]]

    @abstractmethod
    def encoder(self, config: C, vocabulary: VocabularyFacts) -> Encoder:
        """A freshly initialised encoder."""

    @abstractmethod
    def head(self, kind: str, config: C, encoder: Encoder, num_labels: int) -> nn.Module:
        """A freshly initialised head of one of the kinds in `config.architectures`."""

    def names(self, config: C, kind: str | None) -> NameMap:
        """Our parameters to the tensors of Hugging Face, for the encoder with a head of this kind, or without one.

        A shared one is named once.
        """
        names = self.encoder_names(config) | with_weight_and_bias({} if kind is None else self.heads[kind])
        return names | {"head.bias": (self.output_bias,)} if kind in ("masked_lm", "pretraining") else names

    def encoder_names(self, config: C) -> NameMap:
        """Those of the encoder alone."""
        ours, theirs = "encoder.embeddings", f"{self.prefix}embeddings"
        tables = {f"{ours}.{name}.weight": (f"{theirs}.{name}_embeddings.weight",) for name in self.tables}
        layers = numbered("encoder.layers", self.layer_names(config), self.layer)
        return tables | with_weight_and_bias({f"{ours}.norm": f"{theirs}.LayerNorm", **layers})

    def layer_names(self, config: C) -> Sequence[str]:
        """Hugging Face names of the layers; one whose weights are shared stands there once."""
        return [f"{self.prefix}{self.layers}.{number}" for number in range(config.sizes.num_layers)]

    def tied(self, config: C) -> Mapping[str, str]:
        """Tensors of Hugging Face that are copies, to what they are copies of: not written, and read where they are."""
        return dict(zip(self.output_copies, self.per_entry(config), strict=False))

    def per_entry(self, config: C) -> Sequence[str]:
        """The tensors of Hugging Face with a row for each vocabulary entry, the word embeddings first."""
        return f"{self.prefix}embeddings.word_embeddings.weight", self.output_bias

    def renamed(self, name: str, config: C) -> str:
        """Name in transformers of a tensor: the same, unless checkpoints from elsewhere call it otherwise."""
        return name

    def with_padding(self, tensors: Mapping[str, Tensor], config: C, pad_id: int) -> dict[str, Tensor]:
        """The tensors of a model for another id of the padding: the same, unless positions are counted from it."""
        return dict(tensors)
