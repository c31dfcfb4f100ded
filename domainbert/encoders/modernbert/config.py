"""The architecture of a ModernBERT encoder, and what two versions of transformers call its keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from typing_extensions import override

from domainbert.base.ranges import Dropout, Length, Range
from domainbert.encoders.config import (
    Activation,
    Deviation,
    EncoderConfig,
    Heads,
    Layers,
    Width,
    require,
    usual_classes,
)

if TYPE_CHECKING:
    from typing_extensions import Self

Theta = Annotated[float, Range(1, 1e12)]

GLOBAL, LOCAL = "full_attention", "sliding_attention"
"""The kinds of layer, as transformers 5 calls them: every token of the text is seen, or those in a window."""


@dataclass(frozen=True)
class ModernBertConfig(EncoderConfig):
    """A ModernBERT encoder (Warner et al. 2024): pre-norm, gated layers, rotary positions, and windows in most layers.

    The fields are the keys of transformers 4. Transformers 5 has `layer_types` and `rope_parameters` for three of them;
    a `config.json` may have either, and gets both.

    >>> from domainbert import ModernBertConfig
    >>> ModernBertConfig(num_hidden_layers=6, local_attention=64).max_length
    8192
    """

    model_type = "modernbert"
    architectures = usual_classes("ModernBert")
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
    """Heads per layer; `hidden_size` divided by them must be even."""

    intermediate_size: Width = 1152
    """Width of the gated layers, which have two matrices of it where BERT's feed-forward has one."""

    hidden_activation: Activation = "gelu"
    """Activation of the gates."""

    max_position_embeddings: Length = 8192
    """Longest sequence, special tokens included; positions take no weights."""

    initializer_range: Deviation = 0.02
    """Standard deviation of the initial weights; less in the layers that write into the hidden states."""

    initializer_cutoff_factor: Annotated[float, Range(0, 100, above=True)] = 2.0
    """No initial weight is further from 0 than this many standard deviations."""

    norm_eps: Annotated[float, Range(0, 1, above=True)] = 1e-5
    """Epsilon of the layer norms."""

    norm_bias: bool = False
    """Whether layer norms have a bias."""

    attention_bias: bool = False
    """Whether the linear layers of attention have a bias."""

    mlp_bias: bool = False
    """Whether the linear layers of the gated layers have a bias."""

    attention_dropout: Dropout = 0.0
    """Dropout on attention probabilities, and on what attention gives."""

    embedding_dropout: Dropout = 0.0
    """Dropout on the normalised embeddings."""

    mlp_dropout: Dropout = 0.0
    """Dropout on the gated states."""

    global_attn_every_n_layers: Layers = 3
    """The first of every so many layers sees the whole text, the others their window."""

    local_attention: Annotated[int, Range(1, 1_000_000)] = 128
    """Tokens in a window: half of them before a token, half behind it."""

    global_rope_theta: Theta = 160_000.0
    """Base of the rotary positions in layers that see the whole text."""

    local_rope_theta: Theta = 10_000.0
    """Base of the rotary positions in the other layers."""

    classifier_pooling: Literal["cls", "mean"] = "cls"
    """Input of a head for whole texts: the [CLS], or the mean of all tokens."""

    classifier_dropout: Dropout = 0.0
    """Dropout before a classifier."""

    classifier_bias: bool = False
    """Whether the dense layer of the heads has a bias."""

    classifier_activation: Activation = "gelu"
    """Activation in the heads."""

    def __post_init__(self) -> None:
        """Check that the numbers fit together."""
        super().__post_init__()
        require(
            self.hidden_size // self.num_attention_heads % 2 == 0,
            f"num_attention_heads: found {self.num_attention_heads}; expected heads of an even width, as positions "
            f"turn pairs, and hidden_size is {self.hidden_size}",
        )

    @property
    @override
    def max_length(self) -> int:
        return self.max_position_embeddings

    @property
    def layer_types(self) -> list[str]:
        """The kind of each layer."""
        return _types(self.num_hidden_layers, self.global_attn_every_n_layers)

    @property
    def window(self) -> int:
        """Tokens before and behind it that a token sees in a layer with a window."""
        return self.local_attention // 2

    @override
    def of_layers(self, layers: Sequence[int]) -> Self:
        """Each layer stays of its kind, as far as that can be said.

        `DomainbertError` where a first layer is not the first, which alone has no norm before its attention, or where
        the kinds do not recur: transformers 4 could not be told, and would load another network.
        """
        require(
            layers[0] == 0 and 0 not in layers[1:],
            f"layers: found {', '.join(map(str, layers))}; expected layer 0 first, and only there: no other goes "
            "without a norm before its attention",
        )
        kinds = [self.layer_types[number] for number in layers]
        every = _every(kinds, self.global_attn_every_n_layers)
        require(
            every is not None,
            f"layers: {', '.join(map(str, layers))} are {', '.join(kinds)}; expected every n-th of them to be "
            f"{GLOBAL}, and no other",
        )
        return self.replaced(num_hidden_layers=len(layers), global_attn_every_n_layers=every)

    @override
    def to_json(self) -> dict[str, Any]:
        """Fields of `config.json`, also under the keys of transformers 5."""
        thetas = {GLOBAL: self.global_rope_theta, LOCAL: self.local_rope_theta}
        rope = {kind: {"rope_type": "default", "rope_theta": theta} for kind, theta in thetas.items()}
        return {**super().to_json(), "layer_types": self.layer_types, "rope_parameters": rope}

    @classmethod
    @override
    def from_json(cls, fields: Mapping[str, Any]) -> Self:
        """Read `config.json`; keys of transformers 5 count where there are some.

        `DomainbertError` for what no key of transformers 4 says, and for a key that makes another network.
        """
        own = {key: value for key, value in fields.items() if key not in ("layer_types", "rope_parameters")}
        for key, usual in (("rope_scaling", None), ("decoder_bias", True)):
            found = fields.get(key, usual)
            require(found == usual, f"{key}: found {found!r:.80}; expected {usual!r} or no such key")
        if fields.get("layer_types") is not None:
            own["global_attn_every_n_layers"] = _every_of(fields, cls.global_attn_every_n_layers)
        own |= _thetas(fields.get("rope_parameters"))
        # what null means in transformers 4, as 5 would not read it
        null = {
            "local_rope_theta": own.get("global_rope_theta", cls.global_rope_theta),
            "initializer_cutoff_factor": 3.0,
        }
        return super().from_json(own | {key: meant for key, meant in null.items() if own.get(key, ...) is None})


def _types(count: int, every: int) -> list[str]:
    return [LOCAL if number % every else GLOBAL for number in range(count)]


def _every(kinds: Sequence[str], usual: int) -> int | None:
    """The n of which every n-th layer is global: the usual one where it fits, else the least; None if none does."""
    numbers = (usual, *range(1, len(kinds) + 1))
    return next((n for n in numbers if _types(len(kinds), n) == list(kinds)), None)


def _every_of(fields: Mapping[str, Any], default: int) -> int:
    """Distance between global layers, from `layer_types` of a `config.json`."""
    kinds, usual = fields["layer_types"], fields.get("global_attn_every_n_layers", default)
    count = fields.get("num_hidden_layers", ModernBertConfig.num_hidden_layers)
    fits = isinstance(kinds, list) and len(kinds) == count and type(usual) is int and usual > 0
    every = _every(kinds, usual) if fits else None
    require(
        every is not None,
        f"layer_types: found {kinds!r:.80}; expected one for each of {count!r:.80} layers: the first of every n is "
        f"{GLOBAL}, the others are {LOCAL}",
    )
    assert every is not None
    return every


def _thetas(rope: Any) -> dict[str, Any]:
    """Bases of the rotations, from `rope_parameters` of a `config.json`, under the keys of transformers 4."""
    keys = {GLOBAL: "global_rope_theta", LOCAL: "local_rope_theta"}
    if rope is None:
        return {}
    kinds = {kind: own or {} for kind, own in rope.items()} if isinstance(rope, Mapping) else {"": {}}
    require(
        kinds.keys() <= keys.keys() and all(map(_plain, kinds.values())),
        f"rope_parameters: found {rope!r:.200}; expected rope_type 'default' and a rope_theta under {GLOBAL} and under "
        f"{LOCAL}",
    )
    return {keys[kind]: own["rope_theta"] for kind, own in kinds.items() if "rope_theta" in own}


def _plain(own: Any) -> bool:
    """Whether positions turn as they were published: without scaling, in all of a head."""
    return (
        isinstance(own, Mapping)
        and own.keys() <= {"rope_type", "rope_theta"}
        and own.get("rope_type", "default") == "default"
    )
