"""`vars:` of a YAML: texts that replace `${name}`; the environment and options override them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace

from domainbert.base.errors import Problems
from domainbert.settings.tree import nearest
from domainbert.settings.yaml_files import Node

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")


def read_variables(tree: Node, environment: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """The variables: `vars`, overridden by the environment (`DOMAINBERT_<NAME>`), overridden by the command line.

    Args:
        tree: a YAML; its key `vars`, if there is one, holds text by name.
        environment: where variables are looked up.
        problems: where problems are added.
    """
    found: dict[str, str] = {}
    node = tree.value.get("vars", Node({}, tree.where))
    if not isinstance(node.value, dict):
        problems.add(f"{node.where}: vars: found {node.shown()}; expected a mapping of names to text")
        return found
    for name, value in node.value.items():
        typed = str(value.text or value.value) if isinstance(value.value, (str, int, float)) else None
        variable = f"DOMAINBERT_{name.upper()}"
        chosen = typed if value.where.startswith("--") else environment.get(variable, typed)
        if chosen is None:
            advice = f"expected text, here, from --vars.{name} or from {variable}"
            problems.add(f"{value.where}: vars.{name}: found {value.shown()}; {advice}")
        found[name] = chosen or ""
    return found


def substitute(node: Node, variables: Mapping[str, str], problems: Problems) -> Node:
    """The tree with `${name}` in every text replaced by its value; unknown names are added to `problems`."""
    if isinstance(node.value, dict):
        items = node.value.items()
        return replace(node, value={key: substitute(child, variables, problems) for key, child in items})
    if isinstance(node.value, list):
        return replace(node, value=[substitute(child, variables, problems) for child in node.value])
    if not isinstance(node.value, str) or "${" not in node.value:
        return node

    def put(match: re.Match[str]) -> str:
        name = match.group(1)
        if name not in variables:
            problems.add(f"{node.where}: ${{{name}}} is not among vars; {nearest(name, list(variables))}")
        return variables.get(name, "")

    return replace(node, value=_VARIABLE.sub(put, node.value))
