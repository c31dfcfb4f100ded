"""The arguments of a call from Python, read like a mapping of a YAML."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from domainbert.base.errors import Problems
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import Node


def read_call(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """What a function was called with from Python, checked like a mapping of a YAML, in the types of its signature.

    Args:
        function: a stage function.
        given: arguments by name, without `out`; configurations as they are, or as what a YAML would say.

    Raises:
        DomainbertError: with every problem.
    """
    name = getattr(function, "__name__", "call")
    problems = Problems(name)
    streams = getattr(inspect.getmodule(function), "STREAMS", ())
    settings = read_settings(function, _node_of(dict(given), name), problems, streams=streams)
    problems.raise_if_any()
    return settings.arguments


def _node_of(value: Any, where: str) -> Node:
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        return Node({key: _node_of(item, where) for key, item in value.items()}, where)
    if isinstance(value, (list, tuple, range)):
        return Node([_node_of(item, where) for item in value], where)
    return Node(str(value) if isinstance(value, Path) else value, where)
