"""Content of a model card that only a user knows. Free of torch."""

from __future__ import annotations

import re
from dataclasses import dataclass

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import check_hub_name

_LICENSE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
_LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual|code")


@dataclass(frozen=True)
class CardConfig:
    """Facts for the YAML at the head of a model card, as the Hugging Face hub reads it; what is not said is left out.

    They change no model: cards of models that are finished stay as they are, and may be edited by hand.
    """

    license: str | None = None
    """Licence of the model as the hub names it, such as apache-2.0 or other; None takes what the card of the model says
    that it starts from, if it says one."""

    language: tuple[str, ...] = ()
    """Codes of its languages (ISO 639), such as en; empty takes those of the model that it starts from."""

    datasets: tuple[str, ...] = ()
    """Names on the hub of the data that it learns from."""

    tags: tuple[str, ...] = ()
    """Words by which it is found there."""

    def __post_init__(self) -> None:
        """Check what the hub would refuse."""
        if self.license is not None and not _LICENSE.fullmatch(self.license):
            raise DomainbertError(f"license: found {self.license!r:.80}; expected a name such as apache-2.0, or other")
        for language in self.language:
            if not _LANGUAGE.fullmatch(language):
                raise DomainbertError(f"language: found {language!r:.80}; expected codes of ISO 639, such as en")
        for dataset in self.datasets:
            check_hub_name(dataset)
