"""The label that means nothing, such as `O`, in the folders of models. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from domainbert.base.errors import DomainbertError

_KEY = "domainbert_nothing"  # of config.json


def nothing_fact(nothing: str | None) -> dict[str, Any]:
    """The key of `config.json` that `nothing_of_folder` reads; none where every label means something."""
    return {} if nothing is None else {_KEY: nothing}


def nothing_of_folder(fields: Mapping[str, Any]) -> str | None:
    """The label that meant nothing in training; None where all did something, or the folder does not say it."""
    nothing = fields.get(_KEY)
    if nothing is not None and not isinstance(nothing, str):
        raise DomainbertError(f"{_KEY}: found {nothing!r:.100}; expected the name of a label")
    return nothing
