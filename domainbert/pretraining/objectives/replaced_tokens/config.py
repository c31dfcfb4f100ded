"""Settings of replaced-token detection. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import Fraction, PositiveFraction, Range, check_fields
from domainbert.encoders.config import EncoderConfig
from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig, Rate, ZLoss

Weight = Annotated[float, Range(0, 1e6, exclude_low=True)]


@dataclass(frozen=True)
class GeneratorConfig:
    """Architecture of the generator: a smaller version of the discriminator's encoder, or another encoder."""

    size: PositiveFraction = 1.0
    """Ratio of the generator's width, heads and feed-forward width to the encoder's; ELECTRA uses 0.25 (Clark et al.
    2020, section 3.2)."""

    layers: PositiveFraction = 1.0
    """Ratio of the generator's layers to the encoder's; DeBERTa-v3 uses 0.5 (He et al. 2021, arXiv:2111.09543,
    section 4.1)."""

    encoder: EncoderConfig | None = None
    """Separate architecture, instead of `size` and `layers`."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.encoder is not None and (self.size, self.layers) != (1.0, 1.0):
            raise DomainbertError(
                where="encoder", found="next to size or layers", expected="only encoder, or size and layers"
            )

    def for_discriminator(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the architecture of the generator for a discriminator with this encoder."""
        if self.encoder is not None:
            return self.encoder
        num_layers = max(1, round(self.layers * encoder.sizes.num_layers))
        generator = encoder.with_layers(range(num_layers))
        return generator.narrowed(self.size) if self.size < 1 else generator


@dataclass(frozen=True)
class ReplacedTokens(ObjectiveConfig):
    """Detect tokens that were replaced by a generator, which is trained by masked LM (Clark et al. 2020,
    arXiv:2003.10555). The defaults follow DeBERTa-v3 (He et al. 2021, arXiv:2111.09543).

    >>> from domainbert import ReplacedTokens
    >>> ReplacedTokens().name
    'replaced-token detection'
    """

    generator: GeneratorConfig | None = None
    """Architecture of the generator. null uses the generator in the folder to continue from, otherwise half of the
    encoder's layers."""

    sharing: Literal["gdes", "es"] = "gdes"
    """Sharing of embeddings between generator and discriminator. `es`, as in ELECTRA: same parameters. `gdes`, as in
    DeBERTa-v3: the discriminator adds its own learned difference to the generator's embeddings and does not update
    them."""

    mlm_probability: Rate = 0.15
    """Share of the tokens of a row that the generator predicts and that its samples replace."""

    mask_share: Fraction = 1.0
    """Share of the predicted tokens that the generator sees as [MASK]; it sees the others unchanged. ELECTRA uses
    0.85."""

    whole_word: bool = False
    """Hide all pieces of a word together."""

    final_mlm_probability: Rate | None = None
    """Share of the tokens to predict and replace at the end of training, reached linearly from `mlm_probability`. null
    keeps `mlm_probability` constant."""

    temperature: Annotated[float, Range(0, 1000, exclude_low=True)] = 1.0
    """Sampling temperature: divisor of the generator's logits."""

    generator_weight: Weight = 1.0
    """Weight of the generator's loss, a mean over masked tokens."""

    discriminator_weight: Weight = 50.0
    """Weight of the discriminator's loss, a mean over all tokens, including [CLS] and [SEP]."""

    z_loss: ZLoss = 0.0
    """Weight of the generator's z-loss, as for masked LM."""

    def __post_init__(self) -> None:
        check_fields(self)
        _ = self.masking  # rejects contradictory settings

    @property
    @override
    def name(self) -> str:
        return "replaced-token detection"

    @property
    def masking(self) -> MaskingConfig:
        """Masking of the generator's input, without random replacements."""
        return MaskingConfig(
            mlm_probability=self.mlm_probability,
            mask_share=self.mask_share,
            random_share=0.0,
            whole_word=self.whole_word,
            final_mlm_probability=self.final_mlm_probability,
        )

    def generator_config_for(self, encoder: EncoderConfig) -> EncoderConfig:
        """Return the architecture of a new generator for a discriminator with this encoder."""
        return (self.generator or GeneratorConfig(layers=0.5)).for_discriminator(encoder)

    @override
    def check(self, encoder: EncoderConfig) -> None:
        """Raise `DomainbertError` if the embeddings of the generator have another width."""
        width, generator_width = encoder.word_width, self.generator_config_for(encoder).word_width
        if width != generator_width:
            raise DomainbertError(
                found=f"embeddings of width {generator_width} in the generator, and of width {width} in the encoder",
                expected="generator: {layers: 0.5} (as wide as the encoder), or a family with a separate "
                "embedding width, such as ElectraConfig",
            )
