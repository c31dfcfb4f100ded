"""PyYAML's safe loader with limits on size and nesting, for files of others, and a dumper for what it reads.

Scalars are the text, numbers, booleans and null of YAML 1.2: `1e-4` is a number, `no` is a word.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import yaml

MAX_BYTES = 500_000
MAX_NODES = 20_000
MAX_DEPTH = 100
_LINE_SEPARATORS = frozenset("\r\x85\u2028\u2029")  # without the line feed
_PREFIX = "tag:yaml.org,2002:"
PLAIN_TAGS = frozenset(_PREFIX + kind for kind in ("map", "seq", "str", "int", "float", "bool", "null"))
MERGE_TAG = _PREFIX + "merge"
_SCALARS = {
    "bool": "true|True|TRUE|false|False|FALSE",
    "int": "[-+]?[0-9][0-9_]*",
    "float": r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
}


class LimitError(Exception):
    """YAML text exceeds a size limit. `line` counts from 1; None if the whole text is meant."""

    def __init__(self, message: str, line: int | None = None) -> None:
        super().__init__(message)
        self.line = line


class Loader(yaml.SafeLoader):
    """Parses YAML text to PyYAML nodes, and raises `LimitError` above the limits on values, levels and characters."""

    yaml_implicit_resolvers = copy.copy(yaml.SafeLoader.yaml_implicit_resolvers)
    _nodes = _depth = _characters = 0
    _when = ""  # end of the message on too many values or characters

    def single_node(self) -> yaml.Node | None:
        """Return the root of the text, whose aliases and merge keys are safe to expand; None for an empty text."""
        root: yaml.Node | None = self.get_single_node()
        self._nodes, self._when = 0, " once its aliases are expanded"
        if root is not None:
            self._check_expanded(root)
        return root

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Compose and count a node with its children: a YAML bomb is rejected before all of it is read."""
        with self._count(self.peek_event().start_mark):
            return super().compose_node(parent, index)

    def _check_expanded(self, node: yaml.Node) -> None:
        is_scalar = isinstance(node, yaml.ScalarNode)
        with self._count(node.start_mark, node.value if is_scalar else ""):
            for child in () if is_scalar else node.value:
                nodes = child if isinstance(child, tuple) else (child,)  # key and value of a mapping, or an item
                for inner in nodes:
                    self._check_expanded(inner)

    @contextmanager
    def _count(self, mark: yaml.Mark, text: str = "") -> Iterator[None]:
        self._nodes, self._depth, self._characters = self._nodes + 1, self._depth + 1, self._characters + len(text)
        if self._nodes > MAX_NODES:
            raise LimitError(f"more than {MAX_NODES:,} values{self._when}")
        if self._depth > MAX_DEPTH:
            raise LimitError(f"more than {MAX_DEPTH} levels of nesting", mark.line + 1)
        if self._characters > MAX_BYTES:
            raise LimitError(f"more than {MAX_BYTES:,} characters{self._when}")
        yield
        self._depth -= 1


def load_plain(text: str) -> Any:
    """Return the plain Python values of YAML text; raise `LimitError`, or `YAMLError` or `ValueError` if it is not
    valid."""
    loader = Loader(text)
    root = loader.single_node()
    return None if root is None else loader.construct_document(root)


class Dumper(yaml.SafeDumper):
    """Writes YAML that `Loader` reads back unchanged."""

    yaml_implicit_resolvers = copy.copy(yaml.SafeDumper.yaml_implicit_resolvers)

    def ignore_aliases(self, data: Any) -> bool:
        """Write every value in full, without aliases."""
        return True


def _use_yaml_1_2_scalars(target: type[Loader] | type[Dumper]) -> None:
    """Use the rules of YAML 1.2 for scalars instead of PyYAML's rules of YAML 1.1, in which `1e-4` is text, `no` false,
    `12:30` 750, `2024-01-02` a date and `=` an error."""
    dropped = {_PREFIX + tag for tag in ("bool", "int", "float", "timestamp", "value")}
    resolvers = {
        first: [(tag, pattern) for tag, pattern in entries if tag not in dropped]
        for first, entries in target.yaml_implicit_resolvers.items()
    }
    target.yaml_implicit_resolvers = resolvers
    for tag, pattern in _SCALARS.items():
        first_characters = list("tTfF" if tag == "bool" else "-+.0123456789")
        target.add_implicit_resolver(_PREFIX + tag, re.compile(f"^(?:{pattern})$"), first_characters)


_use_yaml_1_2_scalars(Loader)
_use_yaml_1_2_scalars(Dumper)


def _represent_text(dumper: Dumper, text: str) -> yaml.ScalarNode:
    # line separators other than a line feed need double quotes, which escape them
    return dumper.represent_scalar(_PREFIX + "str", text, style='"' if _LINE_SEPARATORS & set(text) else None)


def _construct_int(loader: Loader, node: yaml.ScalarNode) -> int:
    """Return an integer, which may have underscores between its digits and always is decimal: 010 is 10."""
    return int(str(loader.construct_scalar(node)).replace("_", ""))


Dumper.add_representer(str, _represent_text)
Loader.add_constructor(_PREFIX + "int", _construct_int)
