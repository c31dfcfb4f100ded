"""PyYAML's safe loader, limited to plain values of YAML 1.2 and to a size that is ample for configurations.

Only text, numbers, truth values and null are constructed. Values and levels are counted while the file is read, and
counted again as if every alias were expanded, before anything is constructed.
"""

from __future__ import annotations

import copy
import re
from typing import Any

import yaml

MAX_BYTES = 500_000
MAX_NODES = 20_000
MAX_DEPTH = 100
_SEPARATORS = frozenset("\r\x85\u2028\u2029")
_PREFIX = "tag:yaml.org,2002:"
PLAIN_TAGS = frozenset(_PREFIX + kind for kind in ("map", "seq", "str", "int", "float", "bool", "null"))
MERGE_TAG = _PREFIX + "merge"
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_PLAIN = {
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?[0-9][0-9_]*"),
    "float": _FLOAT,
}


class LimitError(Exception):
    """A file holds more than a configuration may; the message says what, and `line` where, counted from 1."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class Loader(yaml.SafeLoader):
    """Composes nodes, as many as are allowed."""

    yaml_implicit_resolvers = copy.copy(yaml.SafeLoader.yaml_implicit_resolvers)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = self._depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose and count one node with everything below it: a bomb is refused before all of it has been read."""
        self._nodes, self._depth = self._nodes + 1, self._depth + 1
        if self._nodes > MAX_NODES:
            raise LimitError(f"more than {MAX_NODES:,} values; expected at most that many")
        if self._depth > MAX_DEPTH:
            raise too_deep(self.peek_event().start_mark.line)
        try:
            return super().compose_node(parent, index)
        finally:
            self._depth -= 1


class Dumper(yaml.SafeDumper):
    """Writes YAML that `Loader` reads back unchanged."""

    yaml_implicit_resolvers = copy.copy(yaml.SafeDumper.yaml_implicit_resolvers)

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value out."""
        return True


def _use_yaml_1_2_scalars(target: type[Loader] | type[Dumper]) -> None:
    """Replace YAML 1.1 of PyYAML: there `1e-4` is text, `no` false, `12:30` 750, `2024-01-02` a date, `=` an error."""
    dropped = {_PREFIX + kind for kind in ("bool", "int", "float", "timestamp", "value")}
    kept = {
        first: [(tag, pattern) for tag, pattern in entries if tag not in dropped]
        for first, entries in target.yaml_implicit_resolvers.items()
    }
    target.yaml_implicit_resolvers = kept
    for kind, pattern in _PLAIN.items():
        whole = re.compile(f"^(?:{pattern.pattern})$")
        target.add_implicit_resolver(_PREFIX + kind, whole, list("tTfF" if kind == "bool" else "-+.0123456789"))


_use_yaml_1_2_scalars(Loader)
_use_yaml_1_2_scalars(Dumper)


def _represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    """Write text; line separators other than a line feed survive only in double quotes, where they are escaped."""
    return dumper.represent_scalar(_PREFIX + "str", text, style='"' if _SEPARATORS & set(text) else None)


def _construct_int(loader: Loader, node: yaml.ScalarNode) -> int:
    return int(str(loader.construct_scalar(node)).replace("_", ""))


Dumper.add_representer(str, _represent_text)
Loader.add_constructor(_PREFIX + "int", _construct_int)


def too_deep(line: int) -> LimitError:
    """The error for too many levels; `line` is counted from 0."""
    return LimitError(f"more than {MAX_DEPTH} levels; expected plain nested values", line + 1)


def refuse_bomb(root: yaml.Node) -> None:
    """Count values and levels as if every alias were expanded, each node being visited once.

    Raises:
        LimitError: an alias contains itself, or there are too many values or levels.
    """
    measured: dict[int, tuple[int, int] | None] = {}  # None: being measured; to meet it again below itself is a cycle

    def measure(node: yaml.Node) -> tuple[int, int]:
        if id(node) in measured:
            known = measured[id(node)]
            if known is None:
                line = node.start_mark.line + 1
                raise LimitError("an alias that contains itself; expected plain nested values", line)
            return known
        measured[id(node)] = None
        below = [measure(child) for child in _children(node)]
        size, height = 1 + sum(size for size, _ in below), 1 + max((height for _, height in below), default=0)
        if height > MAX_DEPTH:
            raise too_deep(node.start_mark.line)
        measured[id(node)] = size, height
        return size, height

    total, _ = measure(root)
    if total > MAX_NODES:
        shown = f"{total:,}" if total < 10**12 else "very many"
        raise LimitError(f"{shown} values once its aliases are expanded; expected at most {MAX_NODES:,}")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []
