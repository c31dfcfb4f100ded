"""Configuration of a head. Free of torch, like `encoders/config.py`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from domainbert.base.fields import read_field
from domainbert.encoders.config import PREFIX, Width

Pooling = Literal["cls", "mean", "max"]

_BIAFFINE_SIZES = ("arc_size", "label_size")
_HEAD_OPTIONS: dict[str, dict[str, Any]] = {  # fields of `HeadConfig` with their types in config.json, by kind of head
    "sequence": {"pooling": Pooling | None},
    "biaffine": dict.fromkeys(_BIAFFINE_SIZES, Width),
}


@dataclass(frozen=True)
class HeadConfig:
    """Configuration of a head, from which `build_model` builds it; `config.json` stores the options that are set.

    >>> HeadConfig("sequence", pooling="max").to_json()
    {'domainbert_pooling': 'max'}
    """

    kind: str
    """One of `encoders.families.head_kinds`."""

    pooling: Pooling | None = None
    """Input of a sequence head: the state of [CLS], or the mean or maximum over all tokens. None takes the value of
    the model folder, otherwise the default of the family: [CLS], or `classifier_pooling` of ModernBERT. `transformers`
    does not read this key."""

    arc_size: int | None = None
    """Width of the projections for arcs, of a biaffine head."""

    label_size: int | None = None
    """Width of the projections for labels, of a biaffine head."""

    @classmethod
    def of(cls, head: HeadConfig | str) -> HeadConfig:
        """Return `head`, or for a kind of head its default configuration."""
        return cls(head) if isinstance(head, str) else head

    @classmethod
    def from_json(cls, kind: str, values: Mapping[str, Any]) -> HeadConfig:
        """Return the configuration of a head in a `config.json`; keys of other kinds of head are ignored."""
        hints = _HEAD_OPTIONS.get(kind, {})
        return cls(kind, **{name: read_field(values, PREFIX + name, hint) for name, hint in hints.items()})

    def to_json(self) -> dict[str, Any]:
        """Return the keys of `config.json` that `from_json` reads."""
        values = {name: getattr(self, name) for name in _HEAD_OPTIONS.get(self.kind, ())}
        return {PREFIX + name: value for name, value in values.items() if value is not None}

    def completed(self, other: HeadConfig | None) -> HeadConfig:
        """Return a copy with options that are None taken from `other`, if it is a head of the same kind."""
        if other is None or other.kind != self.kind:
            return self
        names = [field.name for field in dataclasses.fields(self) if getattr(self, field.name) is None]
        return dataclasses.replace(self, **{name: getattr(other, name) for name in names})

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of a biaffine head that are set, by name; {} for other kinds."""
        return {name: getattr(self, name) for name in _BIAFFINE_SIZES if getattr(self, name) is not None}
