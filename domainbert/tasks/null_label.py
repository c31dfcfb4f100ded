"""The null label, the negative class such as `O` or `no_relation`, in model folders. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from typing_extensions import override

from domainbert.base.errors import DomainbertError
from domainbert.tasks.config_capabilities import Evaluation

_KEY = "domainbert_nothing"  # of config.json


def null_label_field(null_label: str | None) -> dict[str, Any]:
    """Return the `config.json` entry that `read_null_label` reads; its value is null if there is no null label."""
    return {_KEY: null_label}


class NullLabelEvaluation(Evaluation):
    """Evaluation of a task with a null label, which its only training setting names."""

    @override
    def settings_from_model_config(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        (setting,) = self.training_settings
        return {setting: read_null_label(fields)} if _KEY in fields else {}


def read_null_label(fields: Mapping[str, Any]) -> str | None:
    """Return the null label of training; None if there was none or the folder does not record it."""
    null_label = fields.get(_KEY)
    if null_label is not None and not isinstance(null_label, str):
        raise DomainbertError(f"{_KEY}: found {null_label!r:.100}; expected the name of a label")
    return null_label
