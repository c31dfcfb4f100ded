"""A stage function: held to its signature, whoever calls it."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec, TypeVar

from domainbert.base.errors import DomainbertError

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def stage(
    check: Callable[..., None] | None = None,
) -> Callable[[Callable[Arguments, Result]], Callable[Arguments, Result]]:
    """Decorate a stage function, so that a call from Python is read like a YAML: text will do for paths and tasks.

        @stage(_check)
        def pretrain(out: Path, prepared: list[Path], ...): ...

        pretrain(out="runs/x", prepared="runs/prepare", encoder="BertConfig", budget={"max_epochs": 1})

    Args:
        check: looks at the arguments together; is called with all of them but `out`, by name, before the first stage of
            a recipe runs. Its `DomainbertError` begins with the argument that is wrong.
    """

    def decorate(function: Callable[Arguments, Result]) -> Callable[Arguments, Result]:
        @functools.wraps(function)
        def checked(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
            from domainbert.settings.calls import read_call

            given = inspect.signature(function).bind(*args, **kwargs).arguments
            out = _folder(given.pop("out"))
            arguments = read_call(checked, given)
            out.mkdir(parents=True, exist_ok=True)
            return function(out=out, **arguments)  # type: ignore[call-arg, arg-type]

        if check is not None:
            checked.check = check  # type: ignore[attr-defined]
        return checked

    return decorate


def _folder(out: object) -> Path:
    if not isinstance(out, (str, Path)) or not str(out).strip():
        raise DomainbertError(f"out: found {out!r}; expected a folder")
    return Path(out)
