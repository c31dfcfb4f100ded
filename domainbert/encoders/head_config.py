"""Configuration of a head, which a model folder keeps. Free of torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

from domainbert.base.errors import DomainbertError

Pooling = Literal["cls", "mean", "max"]

_SIZES = ("arc_size", "label_size")
_OPTIONS = {"sequence": ("pooling",), "biaffine": _SIZES}  # fields of `HeadConfig` by kind of head
_PREFIX = "domainbert_"  # of keys of config.json


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
        """Return the configuration of a head in a `config.json`; keys of other kinds of head are ignored.

        Raises:
            DomainbertError: a value is invalid, or a size of a biaffine head is missing.
        """
        head = cls(kind, **{name: values.get(_PREFIX + name) for name in _OPTIONS.get(kind, ())})
        if head.pooling not in (None, *get_args(Pooling)):
            expected = " or ".join(get_args(Pooling))
            raise DomainbertError(f"{_PREFIX}pooling: found {head.pooling!r:.80}; expected {expected}")
        for name in _SIZES:
            size = getattr(head, name)
            if name in _OPTIONS.get(kind, ()) and (type(size) is not int or size < 1):
                raise DomainbertError(f"{_PREFIX}{name}: found {size!r:.80}; expected a positive number")
        return head

    def to_json(self) -> dict[str, Any]:
        """Return the keys of `config.json` that `from_json` reads."""
        values = {name: getattr(self, name) for name in _OPTIONS.get(self.kind, ())}
        return {_PREFIX + name: value for name, value in values.items() if value is not None}

    def completed(self, other: HeadConfig | None) -> HeadConfig:
        """Return a copy with options that are None taken from `other`, if it is a head of the same kind."""
        if other is None or other.kind != self.kind:
            return self
        names = [field.name for field in fields(self) if getattr(self, field.name) is None]
        return replace(self, **{name: getattr(other, name) for name in names})

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes of a biaffine head that are set, by name; {} for other kinds."""
        return {name: getattr(self, name) for name in _SIZES if getattr(self, name) is not None}
