"""DeBERTa encoder, heads, and parameter names in Hugging Face checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from torch import nn
from typing_extensions import override

from domainbert.encoders.base import Embeddings, Encoder, StackedEncoder
from domainbert.encoders.config import VocabularyFacts
from domainbert.encoders.deberta_v2.config import DebertaV2Config
from domainbert.encoders.deberta_v2.layers import (
    Context,
    ConvolvedLayer,
    DisentangledSelfAttention,
    DistanceEmbeddings,
    WordEmbeddings,
)
from domainbert.encoders.family import BERT_LAYER, LABEL_HEADS, Family
from domainbert.encoders.heads import build_head
from domainbert.encoders.layers import PostNormLayer, choose_kernel
from domainbert.encoders.names import NameMap, map_layers, with_weight_and_bias
from domainbert.encoders.packed import Packed

_PROJECTIONS = tuple(f"attention.self.{name}_proj" for name in ("query", "key", "value"))
_DISTANCES = {"c2p": "attention.self.pos_key_proj", "p2c": "attention.self.pos_query_proj"}
_HEADS = {
    **LABEL_HEADS,
    "masked_lm": {"head.dense": "cls.predictions.transform.dense", "head.norm": "cls.predictions.transform.LayerNorm"},
    "sequence": {"head.pooler": "pooler.dense", "head.classifier": "classifier"},
}
_MICROSOFT, _TRANSFORMERS = "lm_predictions.lm_head.", "cls.predictions."


class DebertaEncoder(StackedEncoder):
    """Embeddings and a stack of post-norm layers with relative attention (He et al. 2021, DeBERTa, section 3)."""

    distances: DistanceEmbeddings

    def __init__(self, config: DebertaV2Config, vocabulary: VocabularyFacts) -> None:
        super().__init__(
            _embeddings(config, vocabulary),
            # a generator, so that the layers draw their initial weights after `distances`
            (_layer(config, index) for index in range(config.num_hidden_layers)),
            config.sizes,
            vocabulary.pad_id,
            config.type_vocab_size,
            distances=DistanceEmbeddings(config),
        )
        self.num_terms = len(config.terms)

    @override
    def context(self, tokens: Packed) -> Context:
        rate = self.attention_dropout if self.training else 0.0
        segments = choose_kernel(tokens, self.hidden_size // self.num_heads, rate, biased=True)
        return Context(segments, tokens.segment_ids, *self.distances(tokens.input_ids.shape[1]))

    @override
    def attention_flops(self, length: int) -> float:
        """Return the FLOPs of attention per token, with one more product for each term with distances.

        Distances are projected once per batch, so the weights of their projections, counted in blocks, are subtracted.
        """
        layers = (part.distances for part in self.modules() if isinstance(part, DisentangledSelfAttention))
        shared = sum(layer.weight.numel() for layer in layers if layer is not None)
        products = 2 + self.num_terms  # of a block; the base class counts 2
        return products / 2 * super().attention_flops(length) - 6 * shared  # 6 per weight, forward and backward


def _embeddings(config: DebertaV2Config, vocabulary: VocabularyFacts) -> Embeddings | WordEmbeddings:
    if config.position_biased_input:
        return Embeddings(vocabulary.size, config.max_position_embeddings, config.type_vocab_size, config.sizes)
    return WordEmbeddings(vocabulary.size, config.word_width, config.type_vocab_size, config.sizes)


def _layer(config: DebertaV2Config, index: int) -> PostNormLayer:
    attention = DisentangledSelfAttention(config)
    if config.conv_kernel_size and index == 0:
        return ConvolvedLayer(attention, config.sizes, config.conv_kernel_size, config.conv_act)
    return PostNormLayer(attention, config.sizes)


class DebertaV2Family(Family[DebertaV2Config]):
    """DeBERTa, versions 2 and 3 (He et al. 2021), without the enhanced mask decoder.

    A masked-LM head reads the last hidden states, as in transformers. Microsoft's head reads the states after two more
    passes through the last layer (section 3.2), which are not implemented: the head of Microsoft's checkpoints must be
    trained further before it predicts well.
    """

    prefix = "deberta."
    layer: ClassVar[Mapping[str, tuple[str, ...]]] = {**BERT_LAYER, "attention.query_key_value": _PROJECTIONS}
    ignored_tensors = ("deberta.embeddings.position_embeddings.weight",)  # of the enhanced mask decoder
    heads = _HEADS
    output_bias = f"{_TRANSFORMERS}bias"
    output_copies = (f"{_TRANSFORMERS}decoder.weight", f"{_TRANSFORMERS}decoder.bias")

    @override
    def encoder(self, config: DebertaV2Config, vocabulary: VocabularyFacts) -> Encoder:
        return DebertaEncoder(config, vocabulary) if config.relative_attention else super().encoder(config, vocabulary)

    @override
    def head(self, kind: str, config: DebertaV2Config, encoder: Encoder, num_labels: int) -> nn.Module:
        rate = config.hidden_dropout_prob
        if kind == "sequence" and config.cls_dropout is not None:
            rate = config.cls_dropout
        return build_head(
            kind,
            encoder,
            config.sizes,
            num_labels,
            dropout=rate,
            pooler=config.pooler_hidden_act,
            pooler_dropout=config.pooler_dropout,
        )

    @override
    def names(self, config: DebertaV2Config, kind: str | None) -> NameMap:
        """Return the Hugging Face names by parameter; Microsoft's names for a masked-LM head if not `legacy`."""
        names = super().names(config, kind)
        return {name: tuple(_saved_name(hf_name, config) for hf_name in hf_names) for name, hf_names in names.items()}

    @override
    def encoder_names(self, config: DebertaV2Config) -> NameMap:
        """Return the Hugging Face names by parameter of the encoder; many parts exist only in some configurations."""
        names = super().encoder_names(config)
        if not config.position_biased_input:
            del names["encoder.embeddings.position.weight"]
        if not config.type_vocab_size:
            del names["encoder.embeddings.token_type.weight"]
        if config.word_width != config.hidden_size:
            names["encoder.embeddings.project.weight"] = ("deberta.embeddings.embed_proj.weight",)
        modules: dict[str, str | tuple[str, ...]] = {}
        if config.relative_attention:
            names["encoder.distances.embeddings.weight"] = ("deberta.encoder.rel_embeddings.weight",)
            if not config.share_att_key:
                part = {"attention.distances": tuple(_DISTANCES[term] for term in config.terms)}
                modules |= map_layers(self.layer_names(config), part)
        if config.norm_rel_ebd == "layer_norm":
            modules["encoder.distances.norm"] = "deberta.encoder.LayerNorm"
        if config.conv_kernel_size:
            modules["encoder.layers.0.conv"] = "deberta.encoder.conv.conv"
            modules["encoder.layers.0.conv_norm"] = "deberta.encoder.conv.LayerNorm"
        return names | with_weight_and_bias(modules)

    @override
    def tied(self, config: DebertaV2Config) -> Mapping[str, str]:
        """Return the names of originals by the names of their copies; {} if not `legacy`: that head has no copies."""
        return super().tied(config) if config.legacy else {}

    @override
    def vocabulary_tensors(self, config: DebertaV2Config) -> Sequence[str]:
        """Return the names of the word embeddings and the output bias in a model folder, where the bias has Microsoft's
        name if `config.legacy` is false."""
        return [_saved_name(name, config) for name in super().vocabulary_tensors(config)]

    @override
    def canonical_name(self, name: str, config: DebertaV2Config) -> str:
        """Return the name in transformers of a parameter of Microsoft's checkpoints. Their `config.json` has no
        `legacy`, which is true by default. Other names are unchanged."""
        if not config.legacy or not name.startswith(_MICROSOFT):
            return name
        rest = name.removeprefix(_MICROSOFT)
        return f"{_TRANSFORMERS}bias" if rest == "bias" else f"{_TRANSFORMERS}transform.{rest}"


def _saved_name(name: str, config: DebertaV2Config) -> str:
    """Return the name of a tensor in a model folder, from its name in a model with `legacy: true`.

    With `legacy: false`, tensors of the masked-LM head have the names of Microsoft's checkpoints; other tensors have
    the same names.
    """
    if config.legacy or not name.startswith(_TRANSFORMERS):
        return name
    return _MICROSOFT + name.removeprefix(_TRANSFORMERS).removeprefix("transform.")


FAMILY = DebertaV2Family()
