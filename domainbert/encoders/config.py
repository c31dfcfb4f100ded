"""What every encoder family's configuration offers. Free of torch, so that a recipe can be checked in milliseconds."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import Range

Width = Annotated[int, Range(1, 1_000_000)]
Layers = Annotated[int, Range(1, 1000)]
Heads = Annotated[int, Range(1, 1000)]
Deviation = Annotated[float, Range(0, 100)]


@dataclass(frozen=True)
class EncoderConfig(ABC):
    """An encoder's architecture, under the names of the family's Hugging Face `config.json`.

    The vocabulary size is not among them: it is a fact of the tokenizer, passed when the encoder is built.
    """

    files = Path(__file__).parent / "sizes"
    # no annotation, so no field; `encoder: small` means its small.yaml

    @property
    @abstractmethod
    def model_type(self) -> str:
        """The `model_type` of `config.json`; also the name of the family's folder (see `families`)."""

    @property
    @abstractmethod
    def max_length(self) -> int:
        """The longest sequence the encoder has positions for, special tokens included."""

    @abstractmethod
    def with_dropout(self, rate: float) -> EncoderConfig:
        """The same architecture with every dropout set to `rate`."""

    def to_json(self) -> dict[str, Any]:
        """The fields for `config.json`."""
        return {"model_type": self.model_type, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> EncoderConfig:
        """The configuration in a `config.json`; its other fields (labels, versions) are left alone."""
        own = [field for field in dataclasses.fields(cls) if field.name in fields]
        for field in own:
            value = fields[field.name]
            message = f"{field.name}: found {str(value)[:80]!r}; expected a value like {field.default!r}"
            require(_fits(value, field.default), message)
        return cls(**{field.name: fields[field.name] for field in own})


def check_length(max_length: int | None, encoder: EncoderConfig | None) -> None:
    """`DomainbertError` where sequences are longer than an encoder, as far as it is known, has positions for."""
    if encoder is not None and max_length is not None and max_length > encoder.max_length:
        raise DomainbertError(f"max_length: {max_length}; the encoder has positions for {encoder.max_length} tokens")


def _fits(value: object, default: object) -> bool:
    """Whether a value has the type of the default; a whole number is a number too, `true` is none."""
    kinds = (int, float) if isinstance(default, float) else (type(default),)
    return default is dataclasses.MISSING or type(value) in kinds


def require(condition: bool, message: str) -> None:
    """Raise a `DomainbertError` with `message` unless `condition` holds."""
    if not condition:
        raise DomainbertError(message)
