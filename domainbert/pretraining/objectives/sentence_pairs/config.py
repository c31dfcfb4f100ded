"""Settings of masked LM on pairs of segments. Does not import torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig
from domainbert.encoders.families import PRETRAINING, head_kinds
from domainbert.pretraining.objectives.masked_lm.config import MaskedLM


@dataclass(frozen=True)
class SentencePairs(MaskedLM):
    """Predict hidden tokens and the relation between two segments (Devlin et al. 2019, section 3.1; Lan et al. 2020,
    section 3.1).

    >>> from domainbert import SentencePairs
    >>> SentencePairs().name
    'masked LM and sentence order prediction'
    """

    relation: Literal["order", "next"] = "order"
    """Relation to predict. `order`: whether two consecutive segments are in order or swapped (ALBERT). `next`: whether
    the second segment follows the first or is from another document (BERT)."""

    @property
    @override
    def name(self) -> str:
        return f"masked LM and {'sentence order' if self.relation == 'order' else 'next sentence'} prediction"

    @override
    def check(self, encoder: EncoderConfig) -> None:
        """Raise `DomainbertError` if the family has no head for pairs, or the encoder fewer than two token types."""
        family = type(encoder).__name__
        if PRETRAINING not in head_kinds(encoder):
            expected = "BertConfig or AlbertConfig, or another objective"
            raise DomainbertError(found=f"SentencePairs with {family}, which has no head for pairs", expected=expected)
        if encoder.num_token_types < 2:
            raise DomainbertError(
                found=f"SentencePairs with {family} of type_vocab_size: {encoder.num_token_types}",
                expected="type_vocab_size: 2 or more, one for each segment of a pair",
            )
