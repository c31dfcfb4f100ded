"""Stage functions. A call from Python validates its arguments like a YAML mapping."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import MISSING
from functools import wraps
from inspect import Parameter, Signature
from pathlib import Path
from typing import Any, TypeVar

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.freshness import Freshness
from domainbert.base.validation import field_types
from domainbert.settings.schema import defaults_of, settings_class
from domainbert.stages.inputs import Inputs

Result = TypeVar("Result")


def stage(function: Callable[..., Result]) -> Callable[..., Result]:
    """Decorate a stage function so that Python calls accept the values of a YAML, such as text for paths and tasks.

    @stage
    def pretrain(out: Path, settings: Pretrain) -> dict[str, Any]: ...

    pretrain(out="runs/x", prepared="runs/prepare", encoder="BertConfig", budget={"max_epochs": 1})
    pretrain("runs/x", Pretrain(prepared=[Path("runs/prepare")], encoder=BertConfig(), budget=Budget(max_epochs=1)))

    A function that opens models or labelled files does so with a third parameter, `inputs: Inputs`. A call with
    `settings` and `inputs` passes settings that are already validated and inputs that the validation has opened.
    """
    signature, parameters = _keyword_signature(settings_class(function)), Signature.from_callable(function).parameters

    @wraps(function)
    def validated_call(*args: Any, **kwargs: Any) -> Result:
        from domainbert.settings.facts import hashes_of_inputs, stage_facts
        from domainbert.settings.reader import read_settings
        from domainbert.settings.yaml_files import to_node

        if isinstance(kwargs.get("inputs"), Inputs):
            return function(*args, **{name: kwargs[name] for name in list(parameters)[len(args) :]})
        if "settings" in kwargs or len(args) > 1:
            arguments = _as_keywords(function, Signature.from_callable(function).bind(*args, **kwargs).arguments)
        else:
            arguments = signature.bind(*args, **kwargs).arguments
        out = arguments.pop("out")
        if not isinstance(out, (str, Path)) or not str(out).strip():
            raise DomainbertError(f"out: found {out!r}; expected a folder")
        problems = Problems(function.__name__)
        settings = read_settings(function, to_node(arguments, function.__name__), problems)
        problems.raise_if_any()

        def facts() -> Freshness:
            name = function.__name__.replace("_", "-")
            return stage_facts(name, settings_class(function), settings, hashes_of_inputs(settings))

        Path(out).mkdir(parents=True, exist_ok=True)
        return validated_call(out=Path(out), settings=settings.instance, inputs=Inputs().with_facts(facts))

    validated_call.__signature__ = signature  # type: ignore[attr-defined]
    return validated_call


def _keyword_signature(settings: type) -> Signature:
    """Return the signature of a stage: `out` and a keyword for each setting, for `help()` and editors."""
    hints = field_types(settings)
    defaults = {name: Parameter.empty if value is MISSING else value for name, value in defaults_of(settings).items()}
    keywords = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=default, annotation=hints[name])
        for name, default in defaults.items()
    ]
    return Signature([Parameter("out", Parameter.POSITIONAL_OR_KEYWORD), *keywords])


def _as_keywords(function: Callable[..., Any], arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call with the settings dataclass as keyword arguments."""
    expected, settings = settings_class(function), arguments["settings"]
    if not isinstance(settings, expected):
        raise DomainbertError(f"settings: found {settings!r:.80}; expected {expected.__name__}, or its fields by name")
    return {"out": arguments["out"], **{name: getattr(settings, name) for name in defaults_of(expected)}}
