"""Settings of the detection of replaced tokens. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Fraction, PositiveFraction, Range
from domainbert.base.validation import check_fields
from domainbert.encoders.config import EncoderConfig
from domainbert.pretraining.config import MaskingConfig, ObjectiveConfig, Rate, Spans, ZLoss

if TYPE_CHECKING:
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer

Weight = Annotated[float, Range(0, 1e6, above=True)]


@dataclass(frozen=True)
class GeneratorConfig:
    """The generator: the encoder made smaller, or another encoder."""

    size: PositiveFraction = 1.0
    """Share of the encoder's width, heads and feed-forward width; ELECTRA has 0.25 (Clark et al. 2020, section 3.2)."""

    layers: PositiveFraction = 1.0
    """Share of the encoder's layers; DeBERTa-v3 has 0.5 (He et al. 2021, arXiv:2111.09543, section 4.1)."""

    encoder: EncoderConfig | None = None
    """An architecture of its own, in place of the two."""

    def __post_init__(self) -> None:
        """Check that the architecture is said once."""
        check_fields(self)
        if self.encoder is not None and (self.size, self.layers) != (1.0, 1.0):
            raise DomainbertError("generator: encoder beside size or layers; expected either, not both")

    def beside(self, encoder: EncoderConfig) -> EncoderConfig:
        """The generator's architecture for a discriminator's; `DomainbertError` where the family has none so small."""
        if self.encoder is not None:
            return self.encoder
        count = max(1, round(self.layers * encoder.sizes.num_layers))
        first = encoder.of_layers(range(count)) if self.layers < 1 else encoder
        return first.narrowed(self.size) if self.size < 1 else first


@dataclass(frozen=True)
class ReplacedTokens(ObjectiveConfig):
    """Tell which tokens a generator, which learns masked LM, has put in place of the text's own (Clark et al. 2020,
    arXiv:2003.10555). The defaults are those of DeBERTa-v3 (He et al. 2021, arXiv:2111.09543).

    >>> from domainbert import ReplacedTokens
    >>> ReplacedTokens().name
    'replaced-token detection'
    """

    generator: GeneratorConfig | None = None
    """The generator; None is that of the folder to go on from, or has half of the encoder's layers."""

    sharing: Literal["gdes", "es", "none"] = "gdes"
    """Embeddings of generator and discriminator: `es` are the same; with `gdes` the discriminator's are the generator's
    and a difference, and each learns its own part; `none` have nothing to do with each other."""

    mlm_probability: Rate = 0.15
    """Share of the tokens of a row that the generator predicts, and that are replaced by samples of it."""

    mask_share: Fraction = 1.0
    """Share of those that become [MASK] for the generator; it sees the rest as they are. ELECTRA has 0.85."""

    whole_word: bool = False
    """Hide all pieces of a word together."""

    spans: Spans | None = None
    """Hide stretches of whole words for the generator, as in `masking` of masked LM."""

    final_mlm_probability: Rate | None = None
    """Share of the tokens that are predicted and replaced at the end of the training; from the first step on it goes
    there in a straight line. None keeps `mlm_probability`."""

    temperature: Annotated[float, Range(0, 1000, above=True)] = 1.0
    """The generator's logits are divided by it before it is sampled from."""

    generator_weight: Weight = 1.0
    """Factor of the generator's loss, a mean over masked tokens."""

    discriminator_weight: Weight = 50.0
    """Factor of the discriminator's loss, a mean over all tokens, [CLS] and [SEP] included."""

    z_loss: ZLoss = 0.0
    """Factor of the generator's z-loss, as of masked LM."""

    def __post_init__(self) -> None:
        """Check the numbers, and the masks."""
        check_fields(self)
        _ = self.masking  # it refuses what contradicts itself

    @property
    @override
    def name(self) -> str:
        return "replaced-token detection"

    @property
    def masking(self) -> MaskingConfig:
        """The masks that the generator sees: no token is replaced by a random one."""
        masks = self.mlm_probability, self.mask_share, 0.0, self.whole_word
        return MaskingConfig(*masks, self.spans, self.final_mlm_probability)

    def generator_beside(self, encoder: EncoderConfig) -> EncoderConfig:
        """The architecture of a new generator."""
        return (self.generator or GeneratorConfig(layers=0.5)).beside(encoder)

    @override
    def check(self, encoder: EncoderConfig) -> None:
        """Check that shared embeddings have one width."""
        ours, theirs = encoder.word_width, self.generator_beside(encoder).word_width
        if self.sharing != "none" and ours != theirs:
            raise DomainbertError(
                f"sharing: {self.sharing}, but the generator's embeddings are {theirs} wide and the encoder's {ours}; "
                "expected a generator as wide as the encoder (generator: {layers: 0.5}), a family whose embeddings "
                "have a width of their own, as ElectraConfig, or sharing: none"
            )

    @override
    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        from domainbert.pretraining.objectives.replaced_tokens.objective import ReplacedTokensObjective

        return ReplacedTokensObjective(self, tokenizer)
