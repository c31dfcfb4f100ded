"""Single values, parsed by jsonargparse: numbers, text, paths, words of a `Literal`. What they name is not imported."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from jsonargparse import ArgumentError, ArgumentParser, set_parsing_settings

from domainbert.settings.yaml_files import Node

# Nothing that a YAML names is imported by jsonargparse; choices.py decides what may be named.
set_parsing_settings(import_path_denylist=["*"], instantiate_subclass_spec_in_any=False)

WRONG: Any = object()
"""Stands for a value that does not fit its type."""


def parse_single(node: Node, hint: Any) -> Any:
    """The value of a node as a value of the type `hint`; `WRONG` if it does not fit.

    `1e5` may be meant as an integer, and the value of an option as text.
    """
    plain = node.plain()
    integral = [int(plain)] if isinstance(plain, float) and plain.is_integer() else []
    for candidate in [plain, *integral, *([] if node.text is None else [node.text])]:
        if candidate is None and hint is not Any:  # jsonargparse takes null for "not given"
            continue
        try:
            return _parser(hint).parse_object({"value": candidate}).value
        except ArgumentError:
            continue
    return WRONG


@lru_cache
def _parser(hint: Any) -> ArgumentParser:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_argument("--value", type=hint)
    return parser
