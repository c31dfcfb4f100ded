"""Stage functions: their settings are checked, whoever calls them."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import MISSING
from pathlib import Path
from typing import Any, TypeVar

from domainbert.base.errors import DomainbertError
from domainbert.base.ranges import field_types
from domainbert.settings.schema import defaults_of, settings_class

Result = TypeVar("Result")


def stage(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate a stage function, so that a call from Python is read like a YAML: text may stand for paths and tasks.

    @stage
    def pretrain(out: Path, settings: Pretrain) -> dict[str, Any]: ...

    pretrain(out="runs/x", prepared="runs/prepare", encoder="BertConfig", budget={"max_epochs": 1})
    pretrain("runs/x", Pretrain(prepared=[Path("runs/prepare")], encoder=BertConfig(), budget=Budget(max_epochs=1)))
    """
    signature = _signature(settings_class(function))

    @functools.wraps(function)
    def checked(*args: Any, **kwargs: Any) -> Result:
        from domainbert.settings.calls import read_call

        if "settings" in kwargs or len(args) > 1:
            given = _taken_apart(function, inspect.signature(function).bind(*args, **kwargs).arguments)
        else:
            given = signature.bind(*args, **kwargs).arguments
        out = _folder(given.pop("out"))
        settings = read_call(checked, given)
        out.mkdir(parents=True, exist_ok=True)
        return function(out, settings)

    checked.__signature__ = signature  # type: ignore[attr-defined]
    return checked


def _signature(kind: type) -> inspect.Signature:
    """The signature of a stage as it is called by keywords, for `help()` and editors, too."""
    hints, empty = field_types(kind), inspect.Parameter.empty
    keywords = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=empty if value is MISSING else value)
        for name, value in defaults_of(kind).items()
    ]
    keywords = [one.replace(annotation=hints[one.name]) for one in keywords]
    return inspect.Signature([inspect.Parameter("out", inspect.Parameter.POSITIONAL_OR_KEYWORD), *keywords])


def _taken_apart(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Turn the arguments of a call with the dataclass into those of a call with keywords."""
    kind, settings = settings_class(function), arguments["settings"]
    if not isinstance(settings, kind):
        raise DomainbertError(f"settings: found {settings!r:.80}; expected {kind.__name__}, or its fields by name")
    return {"out": arguments["out"], **{name: getattr(settings, name) for name in defaults_of(kind)}}


def _folder(out: object) -> Path:
    if not isinstance(out, (str, Path)) or not str(out).strip():
        raise DomainbertError(f"out: found {out!r}; expected a folder")
    return Path(out)
