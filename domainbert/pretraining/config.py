"""Settings of batches. Free of torch and NumPy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Fraction, Range, check_fields


@dataclass(frozen=True)
class MaskingConfig:
    """What masked LM hides (Devlin et al. 2019, section 3.1)."""

    mlm_probability: Annotated[float, Range(0, 1, above=True, below=True)] = 0.15
    """Share of the tokens of a row that are predicted."""

    mask_share: Fraction = 0.8
    """Share of those that become [MASK]."""

    random_share: Fraction = 0.1
    """Share of those that become a random entry of the vocabulary; the rest stays as it is."""

    whole_word: bool = False
    """Hide all pieces of a word together."""

    def __post_init__(self) -> None:
        """Check the shares."""
        check_fields(self)
        if self.mask_share + self.random_share > 1:
            raise DomainbertError(
                f"random_share: found {self.random_share}; expected no more than 1 together with mask_share, "
                f"which is {self.mask_share}"
            )
