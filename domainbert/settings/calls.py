"""The arguments of a call from Python, read like a mapping of a YAML."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from domainbert.base.errors import Problems
from domainbert.settings.reader import read_settings
from domainbert.settings.yaml_files import Node


def read_call(stage: Callable[..., Any], given: Mapping[str, Any]) -> Any:
    """Check the settings of a call from Python like a mapping of a YAML.

    Args:
        stage: a stage function.
        given: settings by name; configurations as objects, or as they would be written in YAML.

    Raises:
        DomainbertError: lists every problem.
    """
    name = getattr(stage, "__name__", "call")
    problems = Problems(name)
    settings = read_settings(stage, _node_of(dict(given), name), problems)
    problems.raise_if_any()
    return settings.instance


def _node_of(value: Any, where: str) -> Node:
    if hasattr(value, "tolist"):  # numbers and arrays of NumPy
        value = value.tolist()
    if isinstance(value, Mapping):
        return Node({key: _node_of(item, where) for key, item in value.items()}, where)
    if isinstance(value, (list, tuple, range)):
        return Node([_node_of(item, where) for item in value], where)
    return Node(str(value) if isinstance(value, Path) else value, where)
