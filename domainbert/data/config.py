"""Settings of batches. Free of torch and NumPy."""

from __future__ import annotations

from dataclasses import dataclass

from domainbert.errors import DomainbertError


@dataclass(frozen=True)
class MaskingConfig:
    """What masked LM hides (Devlin et al. 2019, section 3.1)."""

    mlm_probability: float = 0.15
    """Share of the tokens of a row that are predicted."""

    mask_share: float = 0.8
    """Share of those that become [MASK]."""

    random_share: float = 0.1
    """Share of those that become a random entry of the vocabulary; the rest stays as it is."""

    whole_word: bool = False
    """Hide all pieces of a word together."""

    def __post_init__(self) -> None:
        """Check the shares."""
        if not 0 < self.mlm_probability < 1:
            raise DomainbertError(f"mlm_probability: found {self.mlm_probability}; expected between 0 and 1")
        if min(self.mask_share, self.random_share) < 0 or self.mask_share + self.random_share > 1:
            raise DomainbertError("mask_share and random_share must not be negative nor exceed 1 together")
