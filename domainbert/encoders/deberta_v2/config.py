"""Architecture of a DeBERTa encoder, versions 2 and 3."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import override

from domainbert.base.fields import Dropout, PositiveFraction, Range
from domainbert.encoders.config import Heads, Layers, PostNormConfig, Width, require, standard_classes

if TYPE_CHECKING:
    from typing_extensions import Self

_TERMS = "c2p", "p2c"  # terms of `pos_att_type`


@dataclass(frozen=True)
class DebertaV2Config(PostNormConfig):
    """A DeBERTa encoder, version 2 or 3 (He et al. 2021), whose attention depends on relative positions.

    The defaults come from the configuration class in transformers, or from its model for other keys: only absolute
    positions. deberta-v3-base has only relative positions (`encoder: deberta-v3-base`).

    >>> from domainbert import DebertaV2Config
    >>> DebertaV2Config(num_hidden_layers=6).model_type
    'deberta-v2'
    """

    model_type = "deberta-v2"
    architectures = standard_classes("DebertaV2")

    hidden_size: Width = 1536
    num_hidden_layers: Layers = 24
    num_attention_heads: Heads = 24
    intermediate_size: Width = 6144

    type_vocab_size: Annotated[int, Range(0, 1000)] = 0
    """Number of token types (sentence A and B of a pair); 0 ignores them."""

    layer_norm_eps: PositiveFraction = 1e-7

    relative_attention: bool = False
    """Add relative positions to the attention scores."""

    pos_att_type: str | None = None
    """Terms of relative attention, joined by `|`: `c2p` (content to position) and `p2c` (position to content)."""

    max_relative_positions: Annotated[int, Range(-1, 1_000_000)] = -1
    """Distance from which on all distances share one embedding; below 1 it is `max_position_embeddings`."""

    position_buckets: Annotated[int, Range(-1, 1_000_000)] = -1
    """Number of distance buckets; distances above half of it share logarithmic buckets. Below 1 disables buckets."""

    norm_rel_ebd: Literal["none", "layer_norm"] = "none"
    """Normalisation of the distance embeddings."""

    share_att_key: bool = False
    """Project distance embeddings with the weights of queries and keys."""

    position_biased_input: bool = True
    """Add embeddings of absolute positions to the word embeddings."""

    embedding_size: Width | None = None
    """Width of the word embeddings; None is `hidden_size`."""

    conv_kernel_size: Annotated[int, Range(0, 1001)] = 0
    """Kernel size in tokens, an odd number, of a convolution parallel to the first layer; 0 disables it."""

    conv_act: Literal["gelu", "gelu_new", "relu", "silu", "tanh"] = "tanh"
    """Activation of the convolution."""

    pooler_hidden_act: Literal["gelu", "gelu_new", "relu", "silu", "tanh"] = "gelu"
    """Activation of the pooler of a sequence head."""

    pooler_dropout: Dropout = 0.0
    """Dropout before the pooler of a sequence head."""

    cls_dropout: Dropout | None = None
    """Dropout after the pooler of a sequence head; None is `hidden_dropout_prob`."""

    legacy: bool = True
    """Save a masked-LM head under BERT's parameter names; false uses the names of Microsoft's checkpoints."""

    def __post_init__(self) -> None:
        super().__post_init__()
        terms = [] if self.pos_att_type is None else self.pos_att_type.split("|")
        require(
            set(terms) <= set(_TERMS) and len(set(terms)) == len(terms),
            where="pos_att_type",
            found=repr(self.pos_att_type),
            expected="c2p, p2c or c2p|p2c",
        )
        if self.relative_attention:
            self._check_relative()
        else:
            self._check_absolute()
        require(
            self.conv_kernel_size == 0 or self.conv_kernel_size % 2 == 1,
            where="conv_kernel_size",
            found=self.conv_kernel_size,
            expected="an odd number, or 0 for none",
        )
        require(
            self.word_width == self.hidden_size or (self.legacy and not self.position_biased_input),
            where="embedding_size",
            found=self.embedding_size,
            expected=f"{self.hidden_size}, as hidden_size",
            hint="any other size needs legacy: true and position_biased_input: false",
        )

    def _check_relative(self) -> None:
        require(
            bool(self.terms),
            where="pos_att_type",
            found="null next to relative_attention: true",
            expected="c2p, p2c or c2p|p2c",
        )
        require(self.position_buckets != 1, where="position_buckets", found="1", expected="2 or more, or -1 for none")
        half = self.position_buckets // 2  # buckets of a single distance; larger distances share logarithmic buckets
        has_logarithmic_buckets = self.position_buckets > 1 and self.max_length > half + 1
        if has_logarithmic_buckets:
            require(
                self.max_distance > half + 1,  # their scale, from `half` to `max_distance` - 1, must not be empty
                where="max_relative_positions",
                found=f"{self.max_distance} with position_buckets={self.position_buckets}",
                expected=f"{half + 2} or more (or set max_position_embeddings to {half + 1} or less)",
            )

    def _check_absolute(self) -> None:
        for name in ("pos_att_type", "norm_rel_ebd", "conv_kernel_size", "position_biased_input"):
            value, default = getattr(self, name), getattr(type(self), name)
            found, expected = f"{value!r} without relative_attention", f"relative_attention: true, or no {name}"
            require(value == default, where=name, found=found, expected=expected)

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the configuration in a `config.json`; widths that follow from other values are only checked."""
        values, terms = dict(fields), fields.get("pos_att_type")
        if isinstance(terms, str | list):  # such as "P2C | c2p" or ["p2c", "c2p"]
            parts = terms.split("|") if isinstance(terms, str) else map(str, terms)
            values["pos_att_type"] = "|".join(part.strip().lower() for part in parts) or None
        groups = values.get("conv_groups", 1)
        require(groups == 1, where="conv_groups", found=repr(groups), hint="only 1 is supported")

        widths = {name: values.pop(name) for name in ("attention_head_size", "pooler_hidden_size") if name in values}
        config = super().from_json(values)
        supported = {
            "attention_head_size": config.hidden_size // config.num_attention_heads,
            "pooler_hidden_size": config.hidden_size,
        }
        for name, width in widths.items():
            require(
                width == supported[name], where=name, found=repr(width), hint=f"only {supported[name]} is supported"
            )
        return config

    @override
    def to_json(self) -> dict[str, Any]:
        """Return the fields of `config.json`; no `embedding_size` if None, which `transformers` cannot read."""
        fields = super().to_json()
        if self.embedding_size is None:
            del fields["embedding_size"]
        return fields

    @override
    def with_layers(self, layers: Sequence[int]) -> Self:
        """Return a copy with a selection of layers. Raises `DomainbertError` if layer 0, with a convolution, moves."""
        require(
            self.conv_kernel_size == 0 or (layers[0] == 0 and 0 not in layers[1:]),
            where="student.layers",
            found=", ".join(map(str, layers)),
            expected="layer 0 first, and only once: in the teacher, only layer 0 has a convolution",
        )
        return super().with_layers(layers)

    @property
    def terms(self) -> tuple[str, ...]:
        """Terms of relative attention, `c2p` before `p2c`."""
        terms = (self.pos_att_type or "").split("|")
        return tuple(term for term in _TERMS if term in terms)

    @property
    def max_distance(self) -> int:
        """Distance from which on all distances share one embedding."""
        return self.max_relative_positions if self.max_relative_positions >= 1 else self.max_position_embeddings

    @property
    def num_distances(self) -> int:
        """Number of embeddings for negative distances; the other distances have as many."""
        return self.position_buckets if self.position_buckets >= 1 else self.max_distance
