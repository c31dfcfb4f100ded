"""YAML as a tree of nodes with the file and line of each value; safe for untrusted files.

PyYAML's safe loader is limited to text, numbers, booleans and null of YAML 1.2 (`1e-4` is a number, `no` is a word) and
to a maximum size, counted while the file is parsed and again while aliases are expanded. A duplicate key is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from domainbert.base.errors import DomainbertError
from domainbert.base.yaml_loader import MAX_BYTES, MERGE_TAG, PLAIN_TAGS, Dumper, LimitError, Loader

_MAX_SHORT_TEXT = 80  # characters of a value in a message
_QUOTE_OR_TAG = tuple("'\"|>!&")  # first characters of texts that are not plain scalars
_NOT_TEXT = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True)
class Node:
    """A value of a configuration with its location.

    Attributes:
        value: a dict of nodes, a list of nodes, or a plain scalar.
        where: `file:line`, or the name of the option.
        text: the typed text of an option, because `5` may be meant as text.
        source: the text of a number or word in a file, such as `1.10`; variables keep it.
        folder: the folder of the file.
        reference: for a path in the folder of an earlier stage, the original text, such as `@vocab`.
        stage_finished: whether this earlier stage has finished.
        is_single: whether the value is a shorthand for a whole mapping: `BertConfig`, `corpus.jsonl`.
    """

    value: Any
    where: str
    text: str | None = None
    source: str | None = None
    folder: Path | None = None
    reference: str | None = None
    stage_finished: bool = False
    is_single: bool = False

    def plain(self) -> Any:
        """Return the tree as plain Python values: dicts, lists and scalars."""
        if isinstance(self.value, dict):
            return {key: node.plain() for key, node in self.value.items()}
        return [node.plain() for node in self.value] if isinstance(self.value, list) else self.value

    def without(self, *keys: str) -> Node:
        """Return a copy of a mapping without `keys`."""
        return replace(self, value={key: node for key, node in self.value.items() if key not in keys})

    def with_texts(self, change: Callable[[Node], Node]) -> Node:
        """Return a copy of the tree with `change` applied to every text."""
        if isinstance(self.value, dict):
            return replace(self, value={key: node.with_texts(change) for key, node in self.value.items()})
        if isinstance(self.value, list):
            return replace(self, value=[node.with_texts(change) for node in self.value])
        return change(self) if isinstance(self.value, str) else self

    def leaves(self) -> list[Node]:
        """Return all scalars in the tree, without keys."""
        if not isinstance(self.value, (dict, list)):
            return [self]
        children = self.value.values() if isinstance(self.value, dict) else self.value
        return [leaf for child in children for leaf in child.leaves()]

    def texts(self) -> list[str]:
        """Return all texts in the tree, without keys."""
        return [leaf.value for leaf in self.leaves() if isinstance(leaf.value, str)]

    def short_text(self) -> str:
        """Return the value for a message, on one line: at most 80 characters, "a mapping" or "a list"."""
        if isinstance(self.value, dict):
            return "a mapping"
        if isinstance(self.value, list):
            return "a list"
        text = "null" if self.value is None else repr(self.value)
        return text if len(text) <= _MAX_SHORT_TEXT else text[:_MAX_SHORT_TEXT] + "..."

    def location(self, key: str) -> str:
        """Return the location of a key for a message: `file:line: key`. If the key is empty, or the value is from the
        option `--key`, return only `where`."""
        return self.where if not key or self.where == f"--{key}" else f"{self.where}: {key}"

    def at(self, path: Sequence[str]) -> Node:
        """Return the node at a path of keys and list indices; if it does not exist, its last existing ancestor."""
        node = self
        for part in path:
            if isinstance(node.value, dict) and part in node.value:
                node = node.value[part]
            elif isinstance(node.value, list) and part.isdigit() and int(part) < len(node.value):
                node = node.value[int(part)]
            else:
                break
        return node

    def stage_paths(self, finished: bool = True) -> set[str]:
        """Return the paths in folders of earlier stages, in the whole tree; with `finished=False`, only the paths in
        folders of unfinished stages."""
        paths = (leaf for leaf in self.leaves() if leaf.reference is not None)
        return {leaf.value for leaf in paths if finished or not leaf.stage_finished}


def to_node(value: Any, where: str) -> Node:
    """Convert a Python value to a node, with the location `where` everywhere; NumPy numbers and arrays become plain
    numbers and lists, paths become text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, Mapping):
        return Node({key: to_node(item, where) for key, item in value.items()}, where)
    if isinstance(value, (list, tuple, range)):
        return Node([to_node(item, where) for item in value], where)
    return Node(str(value) if isinstance(value, Path) else value, where)


def load_yaml(path: Path) -> Node:
    """Read a YAML file as a mapping of nodes; an empty file is an empty mapping.

    Raises:
        DomainbertError: no such file, wrong encoding, invalid YAML, duplicate key, too large, not a mapping.
    """
    try:
        with open(path, "rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise DomainbertError(
                f"more than {MAX_BYTES:,} bytes", file=path, expected="a far smaller configuration file"
            )
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise DomainbertError(f"cannot be read ({error.strerror})", file=path, expected="a YAML file") from error
    except UnicodeDecodeError as error:
        raise DomainbertError(f"byte {error.start} is not UTF-8", file=path, expected="a YAML file in UTF-8") from error
    node = _parse(text, str(path), path.parent)
    if node is None:
        return Node({}, f"{path}:1", folder=path.parent)
    if not isinstance(node.value, dict):
        raise DomainbertError(where=node.where, found=node.short_text(), expected="keys and values")
    return node


def parse_option(text: str, option: str) -> Node:
    """Return the value of a command-line option, parsed as YAML, such as `1e-3` or `[a, b]`.

    Invalid YAML (`@vocab`, `*.txt`) is text, and so is `-` (standard input; a list in YAML). Text without quotes stays
    unchanged, also if YAML would drop a part of it, as in `notes #2`.
    """
    as_text = Node(text, option, text)
    if text == "-":
        return as_text
    try:
        node = _parse(text, option, None)
    except DomainbertError:
        return as_text
    if node is None:  # an empty text
        return as_text
    is_quoted = text.lstrip().startswith(_QUOTE_OR_TAG)
    if isinstance(node.value, str) and not is_quoted and node.value != text.strip():
        return as_text
    return Node(node.value, option, text)


def dump_yaml(value: Any) -> str:
    """Return plain values as YAML text; `load_yaml` reads the same values back."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False, width=120)


def _parse(text: str, name: str, folder: Path | None) -> Node | None:
    """Return None for empty text. `name` is a file, or an option if `folder` is None."""
    try:
        loader = Loader(text)
        root = loader.single_node()
        if root is None:
            return None
        return _Builder(loader, name, folder).build(root)
    except LimitError as error:
        line = "" if error.line is None or folder is None else f":{error.line}"
        raise DomainbertError(error, where=f"{name}{line}", expected="at most that many") from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f":{mark.line + 1}" if mark is not None and folder is not None else ""
        is_tab = r"'\t'" in str(error.problem)
        hint = "indent with spaces, not tabs" if is_tab else "check the indentation, or put quotes around the value"
        raise DomainbertError(f"not valid YAML: {error.problem} ({hint})", where=f"{name}{line}") from error
    except yaml.YAMLError as error:
        raise DomainbertError(f"not valid YAML: {error}", where=name) from error


class _Builder:
    def __init__(self, loader: Loader, name: str, folder: Path | None) -> None:
        self.loader, self.name, self.folder = loader, name, folder

    def build(self, node: yaml.Node) -> Node:
        """Convert a PyYAML node with all its children; raise `DomainbertError` for values that are not plain."""
        where = self._where(node)
        if node.tag not in PLAIN_TAGS:
            expected = "text (in quotes), a number, true, false or null"
            raise DomainbertError(f"not valid YAML here: the tag {node.tag}", where=where, expected=expected)
        if isinstance(node, yaml.MappingNode):
            value: Any = self._mapping(node)
        elif isinstance(node, yaml.SequenceNode):
            value = [self.build(item) for item in node.value]
        else:
            value = self._scalar(node)
            return Node(value, where, source=node.value, folder=self.folder)
        return Node(value, where, folder=self.folder)

    def _scalar(self, node: yaml.Node) -> Any:
        try:
            value = self.loader.construct_object(node)
        except (ValueError, LookupError) as error:  # an explicit tag with a wrong value: !!int abc, !!bool 5
            raise DomainbertError(f"not valid YAML: {error}", where=self._where(node)) from error
        if isinstance(value, str) and (match := _NOT_TEXT.search(value)):
            raise DomainbertError(
                f"contains the character {match[0]!r}", where=self._where(node), expected="text without it"
            )
        return value

    def _mapping(self, node: yaml.MappingNode) -> dict[str, Node]:
        children: dict[str, Node] = {}
        merged: dict[str, Node] = {}
        for key_node, value_node in node.value:
            if key_node.tag == MERGE_TAG:
                merged = {**self._merged(value_node), **merged}
                continue
            is_plain = isinstance(key_node, yaml.ScalarNode) and key_node.tag in PLAIN_TAGS
            key = self._scalar(key_node) if is_plain else None
            where = self._where(key_node)
            if not isinstance(key, str):
                raise DomainbertError(
                    where=where, found="a key that is not text", expected="text: put the key in quotes"
                )
            if key in children:
                raise DomainbertError(f"duplicate key '{key}'", where=where, expected="it once")
            children[key] = replace(self.build(value_node), where=where)
        return {**merged, **children}

    def _merged(self, node: yaml.Node) -> dict[str, Node]:
        """Values of `<<: *base`, or of `<<: [*first, *second]`, where the first mapping has priority."""
        merged: dict[str, Node] = {}
        for part in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if not isinstance(part, yaml.MappingNode):
                raise DomainbertError(
                    "the value of '<<' is not a mapping", where=self._where(part), expected="a mapping"
                )
            merged = {**self._mapping(part), **merged}
        return merged

    def _where(self, node: yaml.Node) -> str:
        return self.name if self.folder is None else f"{self.name}:{node.start_mark.line + 1}"
