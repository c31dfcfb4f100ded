"""Configurations of encoders. Free of torch, so that checks of a recipe are fast."""

from __future__ import annotations

import dataclasses
from abc import ABC
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from typing_extensions import override

from domainbert.base.errors import DomainbertError, Facts
from domainbert.base.fields import Dropout, Length, PositiveFraction, Range, check_fields

if TYPE_CHECKING:
    from typing_extensions import Self, Unpack

Width = Annotated[int, Range(1, 1_000_000)]
Layers = Annotated[int, Range(1, 1000)]
Heads = Annotated[int, Range(1, 1000)]
Deviation = Annotated[float, Range(0, 100)]

Activation = Literal["gelu", "gelu_new", "relu", "silu"]
Architectures = Mapping[str | None, tuple[str, ...]]

_NOT_ENCODER = {  # keys of config.json on head, labels and files, which are written again when a model is saved
    *("architectures", "id2label", "label2id", "num_labels", "problem_type", "tie_word_embeddings"),
    *("dtype", "torch_dtype", "quantization_config", "vocab_size", "model_type"),
    *("_name_or_path", "auto_map", "transformers_version"),
}
PREFIX = "domainbert_"
"""Prefix of keys of config.json that only domainbert reads."""


class _RequiredName(str):
    """A class attribute that concrete subclasses must override: Python counts it as an abstract method."""

    __isabstractmethod__ = True


class VocabularyFacts(NamedTuple):
    """Properties of the tokenizer that an encoder depends on."""

    size: int
    pad_id: int


@dataclass(frozen=True)
class Sizes:
    """Sizes that all families have, under common names; see `EncoderConfig.resized`."""

    num_layers: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    activation: str
    dropout: float
    attention_dropout: float
    max_length: int
    """Longest sequence in tokens, special tokens included."""

    initializer_range: float
    layer_norm_eps: float


def standard_classes(name: str) -> Architectures:
    """Return the `architectures` of a family whose classes in transformers have the usual names, from their prefix."""
    return {
        None: (f"{name}Model",),
        "masked_lm": (f"{name}ForMaskedLM",),
        "tokens": (f"{name}ForTokenClassification",),
        "sequence": (f"{name}ForSequenceClassification",),
        "span": (f"{name}ForQuestionAnswering",),
    }


@dataclass(frozen=True)
class EncoderConfig(ABC):
    """Architecture of an encoder, with the keys of the family's Hugging Face `config.json`.

    The defaults are the defaults of the class in transformers, because a `config.json` may leave out keys; recommended
    sizes are in sizes/. The vocabulary is no field: it comes from the tokenizer when the encoder is built.
    """

    entry_point_group = "domainbert.families"  # where installed packages register families

    model_type: ClassVar[str] = _RequiredName()
    """`model_type` of `config.json`; also the name of the family's folder, with _ for - (see `families`)."""

    architectures: ClassVar[Architectures]
    """Classes of transformers for each kind of head, and under None for the encoder alone; the first one is written,
    all are read."""

    special_ids: ClassVar[Mapping[str, int]] = {"pad_token_id": 0}
    """Ids of special tokens in the family's `config.json`, with the defaults of transformers."""

    supports_causal: ClassVar[bool] = False
    """Whether `Encoder.causal` can hide the tokens after a token: attention alone mixes tokens, without a bias."""

    size_fields: ClassVar[Mapping[str, str]] = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "max_length": "max_position_embeddings",
    }
    """Fields for the sizes that have another name in this family; a field may also have the name of the size. A fixed
    size is a class attribute."""

    files = Path(__file__).parent / "sizes"
    # no annotation, so no field; `encoder: small` is small.yaml in this folder

    extra_fields = MappingProxyType[str, Any]({})
    # no field either: further keys of the config.json that the encoder was read from, kept for `to_json`

    def __post_init__(self) -> None:
        check_fields(self)
        width, heads = self.sizes.hidden_size, self.sizes.num_heads
        expected = f"a multiple of {self._field('num_heads')}={heads}"
        require(width % heads == 0, where=self._field("hidden_size"), found=width, expected=expected)

    def _field(self, size: str) -> str:
        field = self.size_fields.get(size, size)
        return field if hasattr(self, field) else size

    @property
    def max_length(self) -> int:
        """Longest sequence that the encoder supports, special tokens included."""
        positions: int = getattr(self, self.size_fields.get("max_length", "max_position_embeddings"))
        return positions - self.position_offset

    @property
    def default_pooling(self) -> Literal["cls", "mean"]:
        """Input of a sequence head whose `HeadConfig` has no `pooling`."""
        return "cls"

    @property
    def sizes(self) -> Sizes:
        """Sizes under common names."""
        values = {size.name: getattr(self, self._field(size.name)) for size in dataclasses.fields(Sizes)}
        return Sizes(**values | {"max_length": self.max_length})

    def resized(self, sizes: Sizes) -> Self:
        """Return a copy with other sizes; `config.resized(config.sizes)` equals `config`."""
        values = dataclasses.asdict(sizes) | {"max_length": sizes.max_length + self.position_offset}
        values_by_attribute = {self._field(size): value for size, value in values.items()}
        names = {field.name for field in dataclasses.fields(self)}  # without the sizes that this family fixes
        return self.replaced(**{name: value for name, value in values_by_attribute.items() if name in names})

    def with_layers(self, layers: Sequence[int]) -> Self:
        """Return a copy with a selection of layers, by index.

        Raises:
            DomainbertError: the family has no such architecture.
        """
        return self.resized(dataclasses.replace(self.sizes, num_layers=len(layers)))

    def narrowed(self, share: float) -> Self:
        """Return a copy with this share of the hidden size, of the heads and of the feed-forward size, rounded.

        The width of the word embeddings stays the same in families with the field `embedding_size`.
        """
        sizes = self.sizes
        width = max(1, round(share * sizes.hidden_size))
        max_heads = max(1, round(share * sizes.num_heads))
        # the hidden size must be a multiple of the number of heads
        heads = next(count for count in range(max_heads, 0, -1) if width % count == 0)
        intermediate_size = max(1, round(share * sizes.intermediate_size))
        narrowed = self.resized(
            dataclasses.replace(sizes, hidden_size=width, num_heads=heads, intermediate_size=intermediate_size)
        )
        return narrowed.replaced(embedding_size=self.word_width) if hasattr(self, "embedding_size") else narrowed

    def with_dropout(self, rate: float | None) -> Self:
        """Return a copy with all fields whose name contains `dropout` set to `rate`; unchanged for None."""
        if rate is None:
            return self
        names = [field.name for field in dataclasses.fields(self) if "dropout" in field.name]
        return self.replaced(**dict.fromkeys(names, rate))

    @property
    def layer_weights(self) -> tuple[int, ...]:
        """Index of the weights of each layer; layers with shared weights have the same index."""
        return tuple(range(self.sizes.num_layers))

    @property
    def word_width(self) -> int:
        """Width E of the word embeddings: `embedding_size` in families with this field, unless it is None; otherwise
        the hidden size."""
        width: int | None = getattr(self, "embedding_size", None)
        return self.sizes.hidden_size if width is None else width

    @property
    def factor_width(self) -> int | None:
        """Width E of factorised embeddings, which a linear layer projects to the hidden states; None without them."""
        return None

    @property
    def position_offset(self) -> int:
        """Row of the position table for the first token of a text."""
        return 0

    @property
    def num_token_types(self) -> int:
        """Number of token types (text A and B of a pair); 0 if the encoder ignores them."""
        types: int = getattr(self, "type_vocab_size", 0)
        return types

    @property
    def head_dropout(self) -> float:
        """Dropout in a task's head: `classifier_dropout` in families with this field, unless it is None; otherwise the
        dropout on hidden states."""
        rate: float | None = getattr(self, "classifier_dropout", None)
        return self.sizes.dropout if rate is None else rate

    @property
    def pad_token_id(self) -> int:
        """Id of the padding in the `config.json` that was read; otherwise the default of transformers."""
        pad_id = self.extra_fields.get("pad_token_id")
        return pad_id if type(pad_id) is int else self.special_ids["pad_token_id"]

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with changed fields and the same `extra_fields`, which `dataclasses.replace` does not copy."""
        changed = dataclasses.replace(self, **changes)
        object.__setattr__(changed, "extra_fields", self.extra_fields)
        return changed

    def to_json(self) -> dict[str, Any]:
        """Return the fields for `config.json`, with the `extra_fields` of the file that was read."""
        return {**self.extra_fields, "model_type": self.model_type, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the configuration in a `config.json`; unknown keys are kept for `to_json`.

        Keys on the head, the labels and the files are ignored. Raises `DomainbertError` for an unsupported value.
        """
        is_decoder = fields.get("is_decoder")
        require(
            not is_decoder, where="is_decoder", found=repr(is_decoder), expected="false: decoders are not supported"
        )
        names = {field.name for field in dataclasses.fields(cls)}
        config = cls(**{name: fields[name] for name in names & fields.keys()})
        ignored = names | _NOT_ENCODER
        extra = {k: v for k, v in fields.items() if k not in ignored and not k.startswith(PREFIX)}
        object.__setattr__(config, "extra_fields", extra)
        return config


@dataclass(frozen=True)
class PostNormConfig(EncoderConfig):
    """Base of BERT, ALBERT, ELECTRA, RoBERTa, MPNet and DeBERTa; the defaults are BERT-base."""

    hidden_size: Width = 768
    """Width of the hidden states."""

    num_hidden_layers: Layers = 12
    """Number of transformer layers."""

    num_attention_heads: Heads = 12
    """Heads per layer; must divide `hidden_size`."""

    intermediate_size: Width = 3072
    """Width of the feed-forward layers."""

    hidden_act: Activation = "gelu"
    """Activation of the feed-forward layers."""

    hidden_dropout_prob: Dropout = 0.1
    """Dropout on hidden states."""

    attention_probs_dropout_prob: Dropout = 0.1
    """Dropout on attention probabilities."""

    max_position_embeddings: Length = 512
    """Longest sequence, special tokens included."""

    type_vocab_size: Annotated[int, Range(1, 1000)] = 2
    """Number of token types (sentence A and B of a pair)."""

    initializer_range: Deviation = 0.02
    """Standard deviation of the initial weights."""

    layer_norm_eps: PositiveFraction = 1e-12
    """Added to the variance in layer normalisation."""

    def __post_init__(self) -> None:
        super().__post_init__()
        rows, offset = self.max_position_embeddings, self.position_offset
        # a sequence has at least 3 tokens, as in `Length`
        require(
            not offset or rows >= offset + 3,
            where="max_position_embeddings",
            found=rows,
            expected=f"{offset + 3} or more, because the first {offset} positions are not used",
        )

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the configuration in a `config.json`. Raises `DomainbertError` for relative positions."""
        positions = fields.get("position_embedding_type", "absolute")
        require(positions == "absolute", where="position_embedding_type", found=repr(positions), expected="'absolute'")
        return super().from_json(fields)


def check_length(max_length: int | None, encoder: EncoderConfig | None) -> None:
    """Raise `DomainbertError` if `max_length` exceeds the positions of the encoder; no check if one of them is None."""
    if encoder is not None and max_length is not None and max_length > encoder.max_length:
        raise max_length_error(max_length, encoder.max_length)


def max_length_error(
    max_length: int, num_positions: int, model: str = "the encoder", hint: str = ""
) -> DomainbertError:
    """Return the error that `max_length` exceeds the number of positions of `model`."""
    expected = f"at most {num_positions}, the number of positions of {model}"
    return DomainbertError(where="max_length", found=max_length, expected=expected, hint=hint)


def frozen_layers_error(frozen_layers: int, num_layers: int) -> DomainbertError:
    """Return the error that `frozen_layers` exceeds the number of layers."""
    expected = f"at most {num_layers}, the number of layers of the encoder"
    return DomainbertError(where="frozen_layers", found=frozen_layers, expected=expected)


def require(condition: bool, **facts: Unpack[Facts]) -> None:
    """Raise a `DomainbertError` with these facts unless `condition` holds."""
    if not condition:
        raise DomainbertError(**facts)
