"""Shares of the languages of a corpus in what is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Fraction
from domainbert.base.validation import check_fields


@dataclass(frozen=True)
class LanguageShares:
    """Languages of a corpus by name: how much text there is of each, and its part of what is read."""

    sizes: Mapping[str, int]
    read: Mapping[str, float]

    def lines(self, unit: str) -> list[str]:
        """A line to print for each language."""
        total = sum(self.sizes.values())
        return [
            f"language {name}: {size:,} {unit}, {size / total:.2%} of the text, {self.read[name]:.2%} of what is read"
            for name, size in self.sizes.items()
        ]

    def as_dict(self, unit: str) -> dict[str, dict[str, Any]]:
        """The same as values that JSON can hold."""
        return {name: {unit: size, "share_read": self.read[name]} for name, size in self.sizes.items()}


@dataclass(frozen=True)
class Languages:
    """Shares that give a language with little text more than its part of the text."""

    alpha: Fraction
    """Each language is read in proportion to its share of the text to this power: 1 as often as it occurs, 0 all
    equally often; 0.3 in XLM-R (Conneau et al. 2020)."""

    def __post_init__(self) -> None:
        check_fields(self)

    def shares(self, sizes: Mapping[str, int]) -> LanguageShares:
        """The part of what is read that each language gets: q_i = p_i^alpha / sum_j p_j^alpha, where p_i is its part of
        the sizes (Conneau and Lample 2019, section 3.1).

        Raises:
            DomainbertError: there is nothing of a language.
        """
        if missing := [name for name, size in sizes.items() if size == 0]:
            raise DomainbertError(f"languages: no training text of {', '.join(missing)}; expected some of each")
        total = sum(sizes.values())
        powers = {name: (size / total) ** self.alpha for name, size in sizes.items()}
        return LanguageShares(sizes, {name: power / sum(powers.values()) for name, power in powers.items()})
