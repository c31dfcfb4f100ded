"""The architecture of a pre-norm encoder. Free of torch: a YAML is checked without it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from domainbert.base.ranges import Dropout, Length
from domainbert.base.validation import check_fields
from domainbert.encoders.config import Architectures, Deviation, EncoderConfig, Heads, Layers, Sizes, Width, require

if TYPE_CHECKING:
    from typing_extensions import Self

LAYER_NORM_EPS = 1e-5


@dataclass(frozen=True)
class PreNormConfig(EncoderConfig):
    """A pre-norm encoder (Xiong et al. 2020) with gated layers (Shazeer 2020) and sine positions (Vaswani et al. 2017).

    The fields are the keys of its `config.json`, and need not be called as in other families.
    """

    model_type = "pre_norm"  # the name of this folder
    # What stands under "architectures" of a config.json, by kind of head. transformers has no such classes; whoever
    # writes them, and registers them there for "pre_norm", can load the folders.
    architectures: ClassVar[Architectures] = {
        None: ("PreNormModel",),
        "masked_lm": ("PreNormForMaskedLM",),
        "tokens": ("PreNormForTokenClassification",),
        "sequence": ("PreNormForSequenceClassification",),
    }

    width: Width = 256
    """Width of the hidden states."""

    depth: Layers = 4
    """Number of layers."""

    heads: Heads = 4
    """Heads per layer; must divide `width`."""

    inner: Width = 768
    """Width of the gated layers."""

    dropout: Dropout = 0.1
    """Dropout, wherever there is any."""

    longest: Length = 512
    """Longest sequence, special tokens included."""

    deviation: Deviation = 0.02
    """Standard deviation of the initial weights."""

    def __post_init__(self) -> None:
        """Check that the numbers fit together."""
        check_fields(self)
        require(
            self.width % (2 * self.heads) == 0, f"width: found {self.width}; expected a multiple of {2 * self.heads}"
        )

    @property
    def max_length(self) -> int:
        """See `EncoderConfig.max_length`."""
        return self.longest

    @property
    def sizes(self) -> Sizes:
        """See `EncoderConfig.sizes`."""
        return Sizes(
            num_layers=self.depth,
            hidden_size=self.width,
            num_heads=self.heads,
            intermediate_size=self.inner,
            activation="silu",
            dropout=self.dropout,
            attention_dropout=self.dropout,
            max_length=self.longest,
            initializer_range=self.deviation,
            layer_norm_eps=LAYER_NORM_EPS,
        )

    def resized(self, sizes: Sizes) -> Self:
        """See `EncoderConfig.resized`; activation and epsilon are fixed here."""
        return self.replaced(
            width=sizes.hidden_size,
            depth=sizes.num_layers,
            heads=sizes.num_heads,
            inner=sizes.intermediate_size,
            dropout=sizes.dropout,
            longest=sizes.max_length,
            deviation=sizes.initializer_range,
        )

    def with_dropout(self, rate: float) -> Self:
        """See `EncoderConfig.with_dropout`."""
        return self.replaced(dropout=rate)
