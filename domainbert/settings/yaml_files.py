"""YAML as a tree that remembers where each value came from; safe to read from strangers.

Nothing is constructed but plain values; an alias bomb is refused by counting what it would expand to before anything is
expanded; a key given twice is an error. Numbers follow YAML 1.2 (`1e-4` is a number, `no` is a word).
"""

from __future__ import annotations

import copy
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from domainbert.errors import DomainbertError

MAX_NODES = 100_000
_MAX_DEPTH = 100
_SHOWN_CHARACTERS = 80
_PLAIN_TAGS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")
_SEPARATORS = frozenset("\r\x85\u2028\u2029")
_FLOAT = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9][0-9_]*(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)
_PLAIN = {
    "bool": re.compile("true|True|TRUE|false|False|FALSE"),
    "int": re.compile("[-+]?[0-9][0-9_]*"),
    "float": _FLOAT,
}


@dataclass(frozen=True)
class Node:
    """One value of a configuration and where it stands.

    `value` is a dict of nodes, a list of nodes, or a plain scalar. `where` is `file:line`, or the name of the option.
    `text` is what the user typed, for an option: `5` may be meant as a string. `folder` is that of the file.
    `reference` is how the value was written when it lies in the folder of an earlier stage: `@vocab`.
    """

    value: Any
    where: str
    text: str | None = None
    folder: Path | None = None
    reference: str | None = None

    def plain(self) -> Any:
        """The value without its origins."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def shown(self) -> str:
        """The value for a message: never longer than a line."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        text = "null" if self.value is None else repr(self.value)
        return text if len(text) <= _SHOWN_CHARACTERS else text[:_SHOWN_CHARACTERS] + "..."

    def at(self, path: Sequence[str]) -> Node:
        """The value below this one at keys and list positions, as far as there are such."""
        node = self
        for part in path:
            if isinstance(node.value, dict) and part in node.value:
                node = node.value[part]
            elif isinstance(node.value, list) and part.isdigit() and int(part) < len(node.value):
                node = node.value[int(part)]
            else:
                break
        return node

    def references(self) -> list[str]:
        """Every `reference` in this value and below it."""
        children: list[Node] = list(self.value.values()) if isinstance(self.value, dict) else []
        children = self.value if isinstance(self.value, list) else children
        own = [] if self.reference is None else [self.reference]
        return own + [reference for child in children for reference in child.references()]


class _Loader(yaml.SafeLoader):
    yaml_implicit_resolvers = copy.copy(yaml.SafeLoader.yaml_implicit_resolvers)


class _Dumper(yaml.SafeDumper):
    yaml_implicit_resolvers = copy.copy(yaml.SafeDumper.yaml_implicit_resolvers)

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _use_yaml_1_2_scalars(target: type[_Loader] | type[_Dumper]) -> None:
    """PyYAML follows YAML 1.1, where `1e-4` is text, `no` is false, `12:30` is 750 and `2024-01-02` a date."""
    dropped = {f"tag:yaml.org,2002:{kind}" for kind in ("bool", "int", "float", "timestamp")}
    kept = {
        first: [(tag, pattern) for tag, pattern in entries if tag not in dropped]
        for first, entries in target.yaml_implicit_resolvers.items()
    }
    target.yaml_implicit_resolvers = kept
    for kind, pattern in _PLAIN.items():
        whole = re.compile(f"^(?:{pattern.pattern})$")
        target.add_implicit_resolver(
            f"tag:yaml.org,2002:{kind}", whole, list("tTfF" if kind == "bool" else "-+.0123456789")
        )


_use_yaml_1_2_scalars(_Loader)
_use_yaml_1_2_scalars(_Dumper)


def _represent_text(dumper: _Dumper, text: str) -> yaml.ScalarNode:
    """Line separators other than a line feed survive only in double quotes, where they are escaped."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if _SEPARATORS & set(text) else None)


def _construct_int(loader: _Loader, node: yaml.ScalarNode) -> int:
    return int(str(loader.construct_scalar(node)).replace("_", ""))


_Dumper.add_representer(str, _represent_text)
_Loader.add_constructor("tag:yaml.org,2002:int", _construct_int)


def load_yaml(path: Path) -> Node:
    """Read a YAML file as a mapping of nodes.

    Raises:
        DomainbertError: no such file, wrong encoding, broken YAML, a key twice, too many nodes, not a mapping.
    """
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise DomainbertError(f"{path}: cannot be read ({error.strerror}); expected a YAML file") from error
    except UnicodeDecodeError as error:
        raise DomainbertError(f"{path}: byte {error.start} is not UTF-8; expected a YAML file in UTF-8") from error
    node = _parse(text, str(path), path.parent)
    if node is None:
        return Node({}, f"{path}:1", folder=path.parent)
    if not isinstance(node.value, dict):
        raise DomainbertError(f"{node.where}: found {node.shown()}; expected keys and values")
    return node


def parse_option(text: str, option: str) -> Node:
    """The value of a command-line option, read as YAML; what is not YAML (`@vocab`, `*.txt`) is text."""
    try:
        node = _parse(text, option, None)
    except DomainbertError:
        node = None
    return Node(text, option, text) if node is None else Node(node.value, option, text)


def dump_yaml(value: Any) -> str:
    """Plain values as YAML that `load_yaml` reads back equal."""
    return yaml.dump(value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120)


def _parse(text: str, name: str, folder: Path | None) -> Node | None:
    try:
        loader = _Loader(text)
        root = loader.get_single_node()
        if root is None:
            return None
        _refuse_bomb(root, name)
        return _Builder(loader, name, folder).build(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None and folder is not None else ""
        hint = (
            " (put quotes around a value that begins with it)" if "cannot start any token" in str(error.problem) else ""
        )
        raise DomainbertError(f"{name}{line}: not valid YAML: {error.problem}{hint}") from error
    except yaml.YAMLError as error:
        raise DomainbertError(f"{name}: not valid YAML: {error}") from error
    except RecursionError as error:
        raise DomainbertError(f"{name}: nested too deeply; expected at most {_MAX_DEPTH} levels") from error


def _refuse_bomb(root: yaml.Node, name: str) -> None:
    """Count the nodes as if every alias were expanded, each node being visited once."""
    sizes: dict[int, int] = {}

    def size(node: yaml.Node, depth: int) -> int:
        known = sizes.get(id(node))
        if known is not None and known >= 0:
            return known
        if known is not None or depth > _MAX_DEPTH:
            what = "an alias that contains itself" if known is not None else f"more than {_MAX_DEPTH} levels"
            raise DomainbertError(f"{name}:{node.start_mark.line + 1}: {what}; expected plain nested values")
        sizes[id(node)] = -1  # being counted: to meet it again below itself is a cycle
        sizes[id(node)] = 1 + sum(size(child, depth + 1) for child in _children(node))
        return sizes[id(node)]

    if (total := size(root, 0)) > MAX_NODES:
        shown = f"{total:,}" if total < 10**12 else "very many"
        raise DomainbertError(f"{name}: {shown} values once its aliases are expanded; expected at most {MAX_NODES:,}")


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


class _Builder:
    """Turns PyYAML's nodes into ours."""

    def __init__(self, loader: _Loader, name: str, folder: Path | None) -> None:
        self.loader, self.name, self.folder = loader, name, folder

    def build(self, node: yaml.Node) -> Node:
        if not isinstance(node, yaml.ScalarNode) and node.tag not in _PLAIN_TAGS:
            raise DomainbertError(
                f"{self._where(node)}: not valid YAML here: the tag {node.tag}; expected plain values"
            )
        if isinstance(node, yaml.MappingNode):
            return self._node(node, self._mapping(node))
        if isinstance(node, yaml.SequenceNode):
            return self._node(node, [self.build(item) for item in node.value])
        return self._node(node, self._scalar(node))

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            return self.loader.construct_object(node)
        except ValueError as error:  # an explicit tag that does not fit: !!int abc
            raise DomainbertError(f"{self._where(node)}: not valid YAML: {error}") from error

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Node]:
        found: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key_node, value_node in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged = {**self._merged(value_node), **merged}
                continue
            key = self._scalar(key_node) if isinstance(key_node, yaml.ScalarNode) else None
            if not isinstance(key, str):
                raise DomainbertError(
                    f"{self._where(key_node)}: found a key that is not text; expected a name (quote it)"
                )
            elif key in found:
                raise DomainbertError(f"{self._where(key_node)}: key '{key}' stands here twice; expected it once")
            else:
                found[key] = replace(self.build(value_node), where=self._where(key_node))
        return {**merged, **found}

    def _merged(self, node: yaml.Node) -> dict[str, Node]:
        """`<<: *base`, or `<<: [*first, *second]` where the first wins."""
        found: dict[str, Node] = {}
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(part, yaml.MappingNode):
                raise DomainbertError(f"{self._where(part)}: '<<' merges what is not a mapping; expected a mapping")
            found = {**self._mapping(part), **found}
        return found

    def _node(self, node: yaml.Node, value: Any) -> Node:
        return Node(value, self._where(node), folder=self.folder)

    def _where(self, node: yaml.Node) -> str:
        return self.name if self.folder is None else f"{self.name}:{node.start_mark.line + 1}"
