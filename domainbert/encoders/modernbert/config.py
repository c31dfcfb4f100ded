"""Architecture of a ModernBERT encoder, with the keys of two versions of transformers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typing_extensions import override

from domainbert.base.fields import Dropout, Length, Range
from domainbert.encoders.config import (
    Activation,
    Deviation,
    EncoderConfig,
    Heads,
    Layers,
    Width,
    require,
    standard_classes,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Theta = Annotated[float, Range(1, 1e12)]

GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""Types of layers in transformers 5: attention to the whole text, or within a window."""


@dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """A ModernBERT encoder (Warner et al. 2024): pre-norm, gated layers, rotary positions, and windows in most layers.

    The fields are the keys of transformers 4. Transformers 5 has `layer_types` and `rope_parameters` instead of three
    of them; both are read, and both are written.

    >>> from domainbert import ModernBertConfig
    >>> ModernBertConfig(num_hidden_layers=6, local_attention=64).max_length
    8192
    """

    model_type = "modernbert"
    supports_causal: ClassVar[bool] = True
    architectures = standard_classes("ModernBert")
    special_ids: ClassVar[Mapping[str, int]] = {
        "pad_token_id": 50283,
        "bos_token_id": 50281,
        "eos_token_id": 50282,
        "cls_token_id": 50281,
        "sep_token_id": 50282,
    }
    size_fields: ClassVar[Mapping[str, str]] = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "activation": "hidden_activation",
        "dropout": "mlp_dropout",
        "max_length": "max_position_embeddings",
        "layer_norm_eps": "norm_eps",
    }

    hidden_size: Width = 768
    """Width of the hidden states."""

    num_hidden_layers: Layers = 22
    """Number of layers."""

    num_attention_heads: Heads = 12
    """Heads per layer; `hidden_size` / `num_attention_heads` must be an even integer."""

    intermediate_size: Width = 1152
    """Width of the gated feed-forward layers, which have two input matrices of this width."""

    hidden_activation: Activation = "gelu"
    """Activation of the gates."""

    max_position_embeddings: Length = 8192
    """Longest sequence, special tokens included; positions have no weights."""

    initializer_range: Deviation = 0.02
    """Standard deviation of the initial weights; smaller in layers whose output is added to the hidden states."""

    initializer_cutoff_factor: Annotated[float, Range(0, 100, exclude_low=True)] = 2.0
    """Largest absolute value of an initial weight, in standard deviations."""

    norm_eps: Annotated[float, Range(0, 1, exclude_low=True)] = 1e-5
    """Epsilon of the layer norms."""

    norm_bias: bool = False
    """Add a bias to layer norms."""

    attention_bias: bool = False
    """Add a bias to the linear layers of attention."""

    mlp_bias: bool = False
    """Add a bias to the linear layers of the feed-forward part."""

    attention_dropout: Dropout = 0.0
    """Dropout on attention probabilities and on the output of attention."""

    embedding_dropout: Dropout = 0.0
    """Dropout on the normalised embeddings."""

    mlp_dropout: Dropout = 0.0
    """Dropout on the gated states."""

    global_attn_every_n_layers: Layers = 3
    """Distance between layers with global attention, from the first layer on; the others use a window."""

    local_attention: Annotated[int, Range(1, 1_000_000)] = 128
    """Tokens in a window, half of them before a token and half after it."""

    global_rope_theta: Theta = 160_000.0
    """Base of the rotary positions in layers with global attention."""

    local_rope_theta: Theta = 10_000.0
    """Base of the rotary positions in layers with a window."""

    classifier_pooling: Literal["cls", "mean"] = "cls"
    """Input of a sequence head: [CLS], or the mean of all tokens."""

    classifier_dropout: Dropout = 0.0
    """Dropout before a classifier."""

    classifier_bias: bool = False
    """Add a bias to the dense layer of the heads."""

    classifier_activation: Activation = "gelu"
    """Activation in the heads."""

    def __post_init__(self) -> None:
        super().__post_init__()
        head_width = self.hidden_size // self.num_attention_heads
        require(
            head_width % 2 == 0,
            where="num_attention_heads",
            found=f"{self.num_attention_heads}, so that heads have width {head_width} with "
            f"hidden_size={self.hidden_size}",
            expected="an even width, which rotary positions need",
        )

    @property
    @override
    def default_pooling(self) -> Literal["cls", "mean"]:
        return self.classifier_pooling

    @property
    def layer_types(self) -> list[str]:
        """Type of each layer, `GLOBAL` or `LOCAL`."""
        return _layer_types(self.num_hidden_layers, self.global_attn_every_n_layers)

    @property
    def window(self) -> int:
        """Visible tokens before and after a token in a layer with a window."""
        return self.local_attention // 2

    @override
    def with_layers(self, layers: Sequence[int]) -> Self:
        """Return a copy with a selection of layers, each with its type.

        Raises `DomainbertError` in two cases: layer 0, which alone has no norm before its attention, does not stay the
        first one; or the types do not repeat regularly, and keys of transformers 4 cannot express such types.
        """
        require(
            layers[0] == 0 and 0 not in layers[1:],
            where="student.layers",
            found=", ".join(map(str, layers)),
            expected="layer 0 first, and only once: in the teacher, only layer 0 has no norm before its attention",
        )
        types = [self.layer_types[layer] for layer in layers]
        interval = _global_interval(types, self.global_attn_every_n_layers)
        require(
            interval is not None,
            where="student",
            found=f"layers {', '.join(map(str, layers))} of types {', '.join(types)}",
            expected=f"{GLOBAL} in every n-th layer and {LOCAL} in all others, as in layers 0 to {len(layers) - 1}",
        )
        return self.replaced(num_hidden_layers=len(layers), global_attn_every_n_layers=interval)

    @override
    def to_json(self) -> dict[str, Any]:
        """Return the fields of `config.json`, with the keys of transformers 4 and 5."""
        thetas = {GLOBAL: self.global_rope_theta, LOCAL: self.local_rope_theta}
        rope = {layer_type: {"rope_type": "default", "rope_theta": theta} for layer_type, theta in thetas.items()}
        return {**super().to_json(), "layer_types": self.layer_types, "rope_parameters": rope}

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Return the configuration in a `config.json`; keys of transformers 5 override keys of transformers 4.

        Raises `DomainbertError` for values that transformers 4 cannot express, and for keys of another architecture.
        """
        values = {key: value for key, value in fields.items() if key not in ("layer_types", "rope_parameters")}
        for key, supported, json_text in (("rope_scaling", None, "null"), ("decoder_bias", True, "true")):
            value = fields.get(key, supported)
            require(value == supported, where=key, found=f"{value!r:.80}", expected=f"{json_text}, or no such key")
        if fields.get("layer_types") is not None:
            values["global_attn_every_n_layers"] = _read_global_interval(fields, cls.global_attn_every_n_layers)
        values |= _thetas(fields.get("rope_parameters"))
        # what null means in transformers 4; transformers 5 does not accept null
        meanings = {
            "local_rope_theta": values.get("global_rope_theta", cls.global_rope_theta),
            "initializer_cutoff_factor": 3.0,
        }
        for key, meaning in meanings.items():
            if key in values and values[key] is None:
                values[key] = meaning
        return super().from_json(values)


def _layer_types(num_layers: int, interval: int) -> list[str]:
    return [LOCAL if layer % interval else GLOBAL for layer in range(num_layers)]


def _global_interval(types: Sequence[str], preferred: int) -> int | None:
    """Return the distance between global layers: `preferred` if it gives these types, otherwise the smallest distance
    that does; None if there is none."""
    candidates = (preferred, *range(1, len(types) + 1))
    return next((n for n in candidates if _layer_types(len(types), n) == list(types)), None)


def _read_global_interval(fields: Mapping[str, Any], default: int) -> int:
    """Return the distance between global layers in a file; if several fit, the one that it names (or `default`)."""
    types, preferred = fields["layer_types"], fields.get("global_attn_every_n_layers", default)
    count = fields.get("num_hidden_layers", ModernBertConfig.num_hidden_layers)
    valid = isinstance(types, list) and len(types) == count and type(preferred) is int and preferred > 0
    interval = _global_interval(types, preferred) if valid else None
    require(
        interval is not None,
        where="layer_types",
        found=f"{types!r:.80}",
        expected=f"a type for each of {count!r:.80} layers: {GLOBAL} for the first of every n layers, "
        f"{LOCAL} for the others",
    )
    assert interval is not None
    return interval


def _thetas(rope: Any) -> dict[str, Any]:
    """Return the bases of the rotary positions, under the keys of transformers 4."""
    keys = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}
    if rope is None:
        return {}
    require(
        isinstance(rope, Mapping)
        and rope.keys() <= keys.keys()
        and all(_is_unscaled(values or {}) for values in rope.values()),
        where="rope_parameters",
        found=f"{rope!r:.200}",
        expected=f"rope_type 'default' and a rope_theta under {GLOBAL} and under {LOCAL}",
    )
    return {keys[name]: values["rope_theta"] for name, values in rope.items() if values and "rope_theta" in values}


def _is_unscaled(values: Any) -> bool:
    """Return whether rotary positions are the published ones: without scaling, on the full width of a head."""
    return (
        isinstance(values, Mapping)
        and values.keys() <= {"rope_type", "rope_theta"}
        and values.get("rope_type", "default") == "default"
    )
