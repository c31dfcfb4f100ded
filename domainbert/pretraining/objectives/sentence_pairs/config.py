"""Settings of masked LM on pairs of segments. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.families import PRETRAINING, head_kinds
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM

if TYPE_CHECKING:
    from domainbert.pretraining.objective import Objective
    from domainbert.tokenization.load import DomainTokenizer


@dataclass(frozen=True)
class SentencePairs(MaskedLM):
    """Predict hidden tokens, and how the second of two segments belongs to the first (Devlin et al. 2019, section 3.1;
    Lan et al. 2020, section 3.1).

    >>> from domainbert import SentencePairs
    >>> SentencePairs().name
    'masked LM and sentence order prediction'
    """

    relation: Literal["order", "next"] = "order"
    """Question that each pair asks. `order`: do the two follow each other, or is the second one first (ALBERT)?
    `next`: does the second follow the first, or is it of another document (BERT)?"""

    @property
    @override
    def name(self) -> str:
        return f"masked LM and {'sentence order' if self.relation == 'order' else 'next sentence'} prediction"

    @override
    def check(self, encoder: EncoderConfig) -> None:
        """Check that the family has a head for pairs, and token types for two segments."""
        kind = type(encoder).__name__
        if PRETRAINING not in head_kinds(encoder):
            raise DomainbertError(
                f"relation: {kind} has no head for pairs of segments; expected BertConfig or AlbertConfig"
            )
        if encoder.num_token_types < 2:
            raise DomainbertError(
                f"relation: {kind} has type_vocab_size: {encoder.num_token_types}; expected 2 or more, "
                "one for each segment of a pair"
            )

    @override
    def build(self, tokenizer: DomainTokenizer) -> Objective[Any]:
        from domainbert.pretraining.objectives.sentence_pairs.objective import SentencePairsObjective

        return SentencePairsObjective(self, tokenizer)
