"""The base of every encoder family's configuration. Free of torch, so that a recipe can be checked in milliseconds."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NamedTuple

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Range
from domainbert.base.validation import check_fields

if TYPE_CHECKING:
    from typing_extensions import Self

Width = Annotated[int, Range(1, 1_000_000)]
Layers = Annotated[int, Range(1, 1000)]
Heads = Annotated[int, Range(1, 1000)]
Deviation = Annotated[float, Range(0, 100)]

Activation = Literal["gelu", "gelu_new", "relu", "silu"]
Architectures = Mapping[str | None, tuple[str, ...]]

_ELSEWHERE = {  # what a config.json says of head, labels and files: whoever saves a model says it anew
    *("architectures", "id2label", "label2id", "num_labels", "problem_type", "tie_word_embeddings"),
    *("dtype", "torch_dtype", "quantization_config", "vocab_size", "model_type"),
    *("_name_or_path", "auto_map", "transformers_version"),
}
_OURS = "domainbert_"


class VocabularyFacts(NamedTuple):
    """Facts of a vocabulary that an encoder needs; the tokenizer says them."""

    size: int
    pad_id: int


@dataclass(frozen=True)
class Sizes:
    """The numbers that any family has, under names of no family; `EncoderConfig.resized` takes them to another."""

    num_layers: int
    hidden_size: int
    num_heads: int
    intermediate_size: int
    activation: str
    dropout: float
    attention_dropout: float
    max_length: int
    """Tokens of the longest sequence, special ones included."""

    initializer_range: float
    layer_norm_eps: float


def usual_classes(name: str) -> Architectures:
    """The `architectures` of a family whose classes are called as most are."""
    return {
        None: (f"{name}Model",),
        "masked_lm": (f"{name}ForMaskedLM",),
        "tokens": (f"{name}ForTokenClassification",),
        "sequence": (f"{name}ForSequenceClassification",),
        "span": (f"{name}ForQuestionAnswering",),
    }


@dataclass(frozen=True)
class EncoderConfig(ABC):
    """An encoder's architecture, under the names of the family's Hugging Face `config.json`.

    The defaults are those of the class in transformers, which are what a key means that a `config.json` leaves out;
    sensible sizes stand in sizes/. The vocabulary is not among the fields: it is a fact of the tokenizer, passed when
    the encoder is built.
    """

    entry_point_group = "domainbert.families"  # where installed packages register families of their own

    model_type: ClassVar[str]
    """That of `config.json`; also the name of the family's folder, with _ for - (see `families`)."""

    architectures: ClassVar[Architectures]
    """The classes of transformers for each kind of head, and under None for the encoder alone; the first is written,
    all are read."""

    special_ids: ClassVar[Mapping[str, int]] = {"pad_token_id": 0}
    """The ids of special tokens that its `config.json` holds, as the class in transformers has them by default."""

    size_fields: ClassVar[Mapping[str, str]] = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "activation": "hidden_act",
        "dropout": "hidden_dropout_prob",
        "attention_dropout": "attention_probs_dropout_prob",
        "max_length": "max_position_embeddings",
    }
    """Its fields for those of `Sizes` that are called otherwise; what is fixed is no field, but a class attribute."""

    files = Path(__file__).parent / "sizes"
    # no annotation, so no field; `encoder: small` means its small.yaml

    others = MappingProxyType[str, Any]({})
    # no field either: what else the config.json said of the encoder that it was read from, so that it is written again

    def __post_init__(self) -> None:
        """Check that the numbers fit together."""
        check_fields(self)
        sizes, (width, heads) = self.sizes, map(self._field, ("hidden_size", "num_heads"))
        require(
            sizes.hidden_size % sizes.num_heads == 0,
            f"{width}: {sizes.hidden_size} is not divisible by {heads}={sizes.num_heads}",
        )

    def _field(self, size: str) -> str:
        return self.size_fields.get(size, size)

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The longest sequence the encoder has positions for, special tokens included."""

    @property
    def sizes(self) -> Sizes:
        """Its numbers under names of no family."""
        own = {size.name: getattr(self, self._field(size.name)) for size in dataclasses.fields(Sizes)}
        return Sizes(**own | {"max_length": self.max_length})

    def resized(self, sizes: Sizes) -> Self:
        """The same architecture in other sizes; `config.resized(config.sizes)` is the same again."""
        wanted = dataclasses.asdict(sizes) | {"max_length": sizes.max_length + self.position_offset}
        own = {field.name for field in dataclasses.fields(self)}
        return self.replaced(**{self._field(size): n for size, n in wanted.items() if self._field(size) in own})

    def of_layers(self, layers: Sequence[int]) -> Self:
        """The same architecture with some of its layers, by their numbers; `DomainbertError` if they make none."""
        return self.resized(dataclasses.replace(self.sizes, num_layers=len(layers)))

    def narrowed(self, share: float) -> Self:
        """The same architecture with this share of the width, of the heads and of the feed-forward layers' width.

        Word embeddings stay as wide as they are where a linear layer can lead from them to the hidden states.
        """
        sizes = self.sizes
        width = max(1, round(share * sizes.hidden_size))
        most = max(1, round(share * sizes.num_heads))
        heads = next(number for number in range(most, 0, -1) if width % number == 0)
        inner = max(1, round(share * sizes.intermediate_size))
        return self.resized(dataclasses.replace(sizes, hidden_size=width, num_heads=heads, intermediate_size=inner))

    def as_trained(self, dropout: float | None) -> Self:
        """The architecture while it is trained: with that dropout, or with its own for None."""
        return self if dropout is None else self.with_dropout(dropout)

    def with_dropout(self, rate: float) -> Self:
        """The same architecture with every dropout, which is called so, set to `rate`."""
        names = [field.name for field in dataclasses.fields(self) if "dropout" in field.name]
        return self.replaced(**dict.fromkeys(names, rate))

    @property
    def layer_weights(self) -> tuple[int, ...]:
        """For each layer the number of the weights it computes with: its own, unless layers share some."""
        return tuple(range(self.sizes.num_layers))

    @property
    def word_width(self) -> int:
        """Width of the word embeddings."""
        return self.sizes.hidden_size

    @property
    def position_offset(self) -> int:
        """Rows of the position table before that of a text's first token."""
        return 0

    @property
    def num_token_types(self) -> int:
        """The kinds of token (text A and B of a pair) that it tells apart; 0 if it is blind to them."""
        types: int = getattr(self, "type_vocab_size", 0)
        return types

    @property
    def pad_token_id(self) -> int:
        """The padding's id in the `config.json` that it was read from; that of the class in transformers otherwise."""
        found = self.others.get("pad_token_id")
        return found if type(found) is int else self.special_ids["pad_token_id"]

    def replaced(self, **changes: Any) -> Self:
        """The same with other values of some fields."""
        changed = dataclasses.replace(self, **changes)
        object.__setattr__(changed, "others", self.others)
        return changed

    def to_json(self) -> dict[str, Any]:
        """The fields for `config.json`, with what else was in the one that it was read from."""
        return {**self.others, "model_type": self.model_type, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """The configuration in a `config.json`; what this class does not know is kept for `to_json`.

        Left out is what belongs to the head, the labels and the files, and not to the encoder.
        """
        causal = fields.get("is_decoder")
        require(
            not causal, f"is_decoder: found {causal!r}; expected an encoder, in which a token sees those behind it too"
        )
        own = {field.name for field in dataclasses.fields(cls)}
        config = cls(**{name: fields[name] for name in own & fields.keys()})
        left = {k: v for k, v in fields.items() if k not in own | _ELSEWHERE and not k.startswith(_OURS)}
        object.__setattr__(config, "others", left)
        return config


def check_length(max_length: int | None, encoder: EncoderConfig | None) -> None:
    """`DomainbertError` where sequences are longer than an encoder, as far as it is known, has positions for."""
    if encoder is not None and max_length is not None and max_length > encoder.max_length:
        raise DomainbertError(f"max_length: {max_length}; the encoder has positions for {encoder.max_length} tokens")


def require(condition: bool, message: str) -> None:
    """Raise a `DomainbertError` with `message` unless `condition` holds."""
    if not condition:
        raise DomainbertError(message)
