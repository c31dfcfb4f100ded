"""The encoder families: every folder here with a `config.py` and a `model.py` is one.

So is such a folder in a package of the user's own, `mypkg/<model_type>/`, once its `config.py` has been imported
(`--allow-import mypkg.<model_type>.config`). Nothing is imported because a model folder names it.
"""

from __future__ import annotations

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

from domainbert.base.errors import DomainbertError
from domainbert.encoders.config import EncoderConfig

if TYPE_CHECKING:
    from domainbert.encoders.base import Encoder, NameMap


class Family(Protocol):
    """What `<model_type>/model.py` defines, beside the family's `config.py`."""

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
    for name in family_names():
        importlib.import_module(f"domainbert.encoders.{name}.config")
    kinds = [kind for kind in _descendants(EncoderConfig) if _folder(kind) and not inspect.isabstract(kind)]
    ours_last = sorted(kinds, key=lambda kind: kind.__module__.startswith("domainbert."))
    known = {_folder(kind): kind for kind in ours_last}
    if model_type not in known:
        raise DomainbertError(
            f"model_type: found {model_type!r}; supported families are {', '.join(sorted(known))} "
            "(--allow-import names the module that defines one of your own)"
        )
    return known[model_type]


def family(config: EncoderConfig) -> Family:
    """The module with a family's encoder and name map (this imports torch).

    Raises:
        DomainbertError: a family of the user's own is not laid out as one.
    """
    module = type(config).__module__
    if config.model_type != _folder(type(config)):
        raise DomainbertError(
            f"{module}: model_type is {config.model_type!r}; expected the name of the folder it is in"
        )
    package = module.rpartition(".")[0]
    try:
        return cast("Family", importlib.import_module(f"{package}.model"))
    except ModuleNotFoundError as error:
        if error.name != f"{package}.model":
            raise
        raise DomainbertError(f"{package}: no model.py; expected one beside {module}, with the encoder") from error


def _folder(kind: type) -> str:
    """The name of the package that a class stands in; empty for a module alone."""
    return kind.__module__.rpartition(".")[0].rpartition(".")[2]


def _descendants(base: type) -> list[type[EncoderConfig]]:
    direct: list[Any] = base.__subclasses__()
    return direct + [kind for child in direct for kind in _descendants(child)]
