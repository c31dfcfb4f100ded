"""The encoder families: every folder here with a `config.py` and a `model.py` is one."""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

from domainbert.encoders.config import EncoderConfig
from domainbert.errors import DomainbertError

if TYPE_CHECKING:
    from domainbert.encoders.base import Encoder, NameMap


class Family(Protocol):
    """What `domainbert/encoders/<model_type>/model.py` defines."""

    def build_encoder(self, config: EncoderConfig, vocab_size: int) -> Encoder:
        """A freshly initialised encoder."""

    def name_map(self, config: EncoderConfig, head: str | None) -> NameMap:
        """Our parameter names to those of Hugging Face, for the encoder with one of `base.HEADS`, or without a head."""

    def architecture(self, head: str | None) -> str:
        """The `transformers` class that loads the folder."""


def family_names() -> list[str]:
    """The `model_type` of every family."""
    return sorted(file.parent.name for file in Path(__file__).parent.glob("*/config.py"))


def config_class(model_type: str) -> type[EncoderConfig]:
    """The configuration class of a family; `DomainbertError` for one that is not supported."""
    if model_type not in family_names():
        raise DomainbertError(f"model_type: found {model_type!r}; supported families are {', '.join(family_names())}")
    module = importlib.import_module(f"domainbert.encoders.{model_type}.config")
    classes = [kind for _, kind in inspect.getmembers(module, inspect.isclass) if issubclass(kind, EncoderConfig)]
    return next(kind for kind in classes if not inspect.isabstract(kind))


def family(config: EncoderConfig) -> Family:
    """The module with a family's encoder and name map (this imports torch)."""
    return cast("Family", importlib.import_module(f"domainbert.encoders.{config.model_type}.model"))
