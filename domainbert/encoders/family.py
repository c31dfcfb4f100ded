"""Interface of an encoder family."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from typing_extensions import override

from domainbert.encoders.base import Encoder, PostNormEncoder
from domainbert.encoders.config import EncoderConfig, VocabularyFacts
from domainbert.encoders.heads import build_head
from domainbert.encoders.names import NameMap, map_layers, with_weight_and_bias

C = TypeVar("C", bound=EncoderConfig)

BERT_LAYER = {
    "attention.query_key_value": ("attention.self.query", "attention.self.key", "attention.self.value"),
    "attention.output": ("attention.output.dense",),
    "attention_norm": ("attention.output.LayerNorm",),
    "feed_forward.expand": ("intermediate.dense",),
    "feed_forward.contract": ("output.dense",),
    "feed_forward_norm": ("output.LayerNorm",),
}
"""Modules of a layer to the Hugging Face names that most families have."""

LABEL_HEADS = {"tokens": {"head.classifier": "classifier"}, "span": {"head.classifier": "qa_outputs"}}
"""Modules of the heads for tokens and spans to the Hugging Face names that most families have."""


class Family(Generic[C]):
    """An encoder family; its `model.py` defines an instance `FAMILY`. Parts without torch are in its configuration.

    `names`, `tied` and `vocabulary_tensors` use the attributes, which are names in Hugging Face's models. A family
    whose encoder is no `PostNormEncoder` overrides `encoder_names`, or all three.

    Attributes:
        prefix: prefix of the base model in a model with a head, such as `bert.`.
        ignored_tensors: tensors of the base model that no head uses, such as a pooler.
        tables: names of the embeddings that are summed.
        projection: linear layer after factorised embeddings (see `factor_width`) in the base model, if there is one.
        layers: name of the list of layers in the base model.
        layer: modules of a layer to Hugging Face names.
        heads: modules of each kind of head to Hugging Face names, `masked_lm` included.
        shared_head_prefixes: prefixes of tensors outside the base model that all kinds of head share; a new head starts
            with their values from the old head.
        output_bias: bias of a masked-LM head.
        output_copies: output weights of a masked-LM head, which are the word embeddings, and a copy of its bias if
            there is one.
    """

    prefix: ClassVar[str]
    ignored_tensors: ClassVar[Sequence[str]] = ()
    tables: ClassVar[Sequence[str]] = ("word", "position", "token_type")
    projection: ClassVar[str | None] = None
    layers: ClassVar[str] = "encoder.layer"
    layer: ClassVar[Mapping[str, tuple[str, ...]]] = BERT_LAYER
    heads: ClassVar[Mapping[str, Mapping[str, str]]]
    shared_head_prefixes: ClassVar[tuple[str, ...]] = ()
    output_bias: ClassVar[str]
    output_copies: ClassVar[Sequence[str]]

    def encoder(self, config: C, vocabulary: VocabularyFacts) -> Encoder:
        """Return a newly initialised encoder, by default with BERT's layers."""
        return PostNormEncoder(config, vocabulary)

    def head(self, kind: str, config: C, encoder: Encoder, num_labels: int) -> nn.Module:
        """Return a newly initialised head of one of the kinds in `config.architectures`, by default as in BERT."""
        return build_head(kind, encoder, config.sizes, num_labels, dropout=config.head_dropout)

    def names(self, config: C, kind: str | None) -> NameMap:
        """Return the Hugging Face names by parameter, for the encoder with a head of this kind (None: no head).

        Shared parameters are listed once.
        """
        names = self.encoder_names(config)
        if kind is not None:
            names |= with_weight_and_bias(self.heads[kind])
        if kind in ("masked_lm", "pretraining"):
            names["head.bias"] = (self.output_bias,)  # a parameter of the head itself, not of a module in it
        return names

    def encoder_names(self, config: C) -> NameMap:
        """Return the Hugging Face names by parameter of the encoder."""
        module, hf_module = "encoder.embeddings", f"{self.prefix}embeddings"
        tables = {f"{module}.{name}.weight": (f"{hf_module}.{name}_embeddings.weight",) for name in self.tables}
        layers = map_layers(self.layer_names(config), self.layer)
        names = tables | with_weight_and_bias({f"{module}.norm": f"{hf_module}.LayerNorm", **layers})
        if self.projection is not None and config.factor_width is not None:
            names |= with_weight_and_bias({f"{module}.project": f"{self.prefix}{self.projection}"})
        return names

    def layer_names(self, config: C) -> Sequence[str]:
        """Return the Hugging Face names of the layers; a family whose layers share weights overrides it to list each
        distinct layer once."""
        return [f"{self.prefix}{self.layers}.{number}" for number in range(config.sizes.num_layers)]

    def tied(self, config: C) -> Mapping[str, str]:
        """Return the Hugging Face names of originals by the names of their copies, which are read but not written."""
        # not strict: some families have no copy of the bias
        return dict(zip(self.output_copies, self.vocabulary_tensors(config), strict=False))

    def vocabulary_tensors(self, config: C) -> Sequence[str]:
        """Return the Hugging Face names of the tensors with a row per vocabulary entry, the word embeddings first."""
        return f"{self.prefix}embeddings.word_embeddings.weight", self.output_bias

    def canonical_name(self, name: str, config: C) -> str:
        """Return the name in transformers of a tensor of a checkpoint, by default the same name. Another program may
        have written the checkpoint with other names."""
        return name

    def with_pad_id(self, tensors: Mapping[str, Tensor], config: C, pad_id: int) -> dict[str, Tensor]:
        """Return the tensors for another padding id, by default unchanged. A family that counts positions from the
        padding's id on changes them."""
        return dict(tensors)


class NativeFamily(Family[C]):
    """A family without classes in transformers: tensors in model folders have the names of the parameters here.

    Args:
        encoder_class: class of the encoder, called with a configuration and `VocabularyFacts`.
    """

    prefix = "encoder."

    def __init__(self, encoder_class: Callable[[C, VocabularyFacts], Encoder]) -> None:
        self.encoder_class = encoder_class

    @override
    def encoder(self, config: C, vocabulary: VocabularyFacts) -> Encoder:
        return self.encoder_class(config, vocabulary)

    @override
    def names(self, config: C, kind: str | None) -> NameMap:
        """Return each parameter's own name as its name in a model folder; see `Family.names` for `kind`."""
        encoder = self._without_weights(config)
        names = [f"encoder.{name}" for name, _ in encoder.named_parameters()]
        if kind is not None:
            with shapes_only():
                head = self.head(kind, config, encoder, num_labels=1)  # the names do not depend on the number
            names += [f"head.{name}" for name, _ in head.named_parameters()]
        return {name: (name,) for name in names}

    @override
    def tied(self, config: C) -> Mapping[str, str]:
        """Return {}: the output weights of masked LM are the word embeddings and have no name of their own."""
        return {}

    @override
    def vocabulary_tensors(self, config: C) -> Sequence[str]:
        """Return the names of the word embeddings and of the bias of a masked-LM head."""
        encoder = self._without_weights(config)
        words = encoder.input_embeddings.weight
        (name,) = (name for name, parameter in encoder.named_parameters() if parameter is words)
        return f"encoder.{name}", "head.bias"

    def _without_weights(self, config: C) -> Encoder:
        # the names of parameters do not depend on the vocabulary
        with shapes_only():
            return self.encoder(config, VocabularyFacts(size=1, pad_id=0))


@contextmanager
def shapes_only() -> Iterator[None]:
    """Within this context, build modules on torch's meta device: without memory and initialisation."""
    with torch.device("meta"), _NoInitialisation():
        yield


class _NoInitialisation(TorchFunctionMode):
    """Skips `torch.nn.init`, because `normal_` on the meta device imports torch's compiler, which takes a second."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            # such a function returns the tensor, its first argument
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)
