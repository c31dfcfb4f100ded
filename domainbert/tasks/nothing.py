"""The label that means nothing, such as `O`, in the folders of models. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.tasks.config_capabilities import Evaluation

_KEY = "domainbert_nothing"  # of config.json


def nothing_fact(nothing: str | None) -> dict[str, Any]:
    """The key of `config.json` that `nothing_of_folder` reads; null where every label means something."""
    return {_KEY: nothing}


class NothingEvaluation(Evaluation):
    """Evaluation of a task with a label that means nothing, which its one training setting names."""

    @override
    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        (setting,) = self.training_settings
        return {setting: nothing_of_folder(fields)} if _KEY in fields else {}


def nothing_of_folder(fields: Mapping[str, Any]) -> str | None:
    """The label that meant nothing in training; None where all did something, or the folder does not say it."""
    nothing = fields.get(_KEY)
    if nothing is not None and not isinstance(nothing, str):
        raise DomainbertError(f"{_KEY}: found {nothing!r:.100}; expected the name of a label")
    return nothing
