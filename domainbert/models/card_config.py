"""Values of a model card that the user sets. This module does not import YAML, so that `--help` does without it."""

from __future__ import annotations

import re
from dataclasses import dataclass

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import check_hub_name

_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual|code")


@dataclass(frozen=True)
class CardConfig:
    """Values for the YAML header of a model card, which the Hugging Face hub reads; unset values are left out.

    They have no effect on training. Cards of finished models are not rewritten; edit them by hand.
    """

    license: str | None = None
    """Set the hub's identifier of the licence, such as apache-2.0 or other; None copies the licence from the card of
    the model that training starts from."""

    language: tuple[str, ...] = ()
    """Set the language codes (ISO 639), such as en; empty copies them from the model that training starts from."""

    datasets: tuple[str, ...] = ()
    """Name the training data sets on the hub."""

    tags: tuple[str, ...] = ()
    """Add tags for the hub's search."""

    def __post_init__(self) -> None:
        """Raise `DomainbertError` for values that the hub does not accept."""
        if self.license is not None and not _LICENSE.fullmatch(self.license):
            raise DomainbertError(
                where="license", found=f"{self.license!r:.80}", expected="a name such as apache-2.0, or 'other'"
            )
        for language in self.language:
            if not _LANGUAGE.fullmatch(language):
                raise DomainbertError(where="language", found=f"{language!r:.80}", expected="ISO 639 codes such as en")
        for dataset in self.datasets:
            check_hub_name(dataset)
