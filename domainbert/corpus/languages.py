"""Sampling shares of the languages of a corpus."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domainbert.base.errors import DomainbertError, format_names
from domainbert.base.fields import CheckedFields, Fraction


@dataclass(frozen=True)
class LanguageShares:
    """Size of each language in the corpus, and its share of the sampled text."""

    sizes: Mapping[str, int]  # language to size, in any unit
    sampled: Mapping[str, float]  # language to share of the sampled text; the sum is 1

    def lines(self, unit: str) -> list[str]:
        """Return lines to print, one for each language; `unit` is the unit of the sizes, such as "bytes"."""
        total = sum(self.sizes.values())
        return [
            f"language {name}: {size:,} {unit}, {size / total:.2%} of the corpus, "
            f"{self.sampled[name]:.2%} after sampling"
            for name, size in self.sizes.items()
        ]

    def as_dict(self, unit: str) -> dict[str, dict[str, Any]]:
        """Return the size (key `unit`) and the sampled share (`share_read`) of each language, as JSON values."""
        return {name: {unit: size, "share_read": self.sampled[name]} for name, size in self.sizes.items()}


@dataclass(frozen=True)
class Languages(CheckedFields):
    """Sampling of languages that gives more weight to languages with little text."""

    alpha: Fraction
    """Exponent of the sampling: each language is read in proportion to (share of the corpus)^alpha. 1 keeps the shares
    of the corpus, 0 makes all languages equal; XLM-R uses 0.3 (Conneau et al. 2020)."""

    def shares(self, sizes: Mapping[str, int]) -> LanguageShares:
        """Return the sampling share of each language: q_i = p_i^alpha / sum_j p_j^alpha, where p_i is its share of the
        sizes (Conneau and Lample 2019, section 3.1).

        Raises:
            DomainbertError: a language has no text.
        """
        if missing := [name for name, size in sizes.items() if size == 0]:
            raise DomainbertError(
                f"no training text in {format_names(missing)}", where="corpus.languages", hint="add text in each"
            )
        total = sum(sizes.values())
        powers = {name: (size / total) ** self.alpha for name, size in sizes.items()}
        return LanguageShares(sizes, {name: power / sum(powers.values()) for name, power in powers.items()})
