"""A text or a list that stands for a whole configuration: `small` for an encoder, `corpus.jsonl` for a corpus."""

from __future__ import annotations

from dataclasses import replace
from typing import get_origin

from domainbert.base.ranges import field_types, without_limits
from domainbert.settings.choices import named_files
from domainbert.settings.tree import fold_arguments, merge
from domainbert.settings.yaml_files import Node, load_yaml


def named_file(node: Node, base: type) -> Node:
    """The contents of the packaged file that a name such as `small` stands for, with the keys given beside it."""
    named = node.value.get("class_path") if isinstance(node.value, dict) else None
    file = named_files(base).get(str(named.value)) if named is not None and named.alone else None
    if file is None:
        return node
    beside = {name: child for name, child in node.value.items() if name != "class_path"}
    return replace(merge(load_yaml(file), replace(node, value=beside)), where=node.where)


def spelled_out(node: Node, kind: type) -> Node:
    """A single text or list as the value of the field that the configuration names as its `shorthand`."""
    name = getattr(kind, "shorthand", None)
    beside = fold_arguments(node).value if isinstance(node.value, dict) else {}
    alone = beside.get("class_path") if isinstance(node.value, dict) else node
    if alone is None or not (alone.alone or alone is node):
        return node
    several = name is not None and get_origin(without_limits(field_types(kind)[name])) is list
    kinds: tuple[type, ...] = () if name is None else (str, list) if several else (str,)
    if not isinstance(alone.value, kinds):
        return alone
    given = [alone] if several and isinstance(alone.value, str) else alone.value
    further = beside["init_args"].value if "init_args" in beside else {}
    return replace(node, value={name: replace(alone, value=given, text=None), **further}, text=None)
