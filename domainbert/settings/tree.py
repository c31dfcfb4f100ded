"""Several YAML files and options put together: later wins, mappings are merged, lists are replaced.

Texts that stand for more are spelled out: `${name}`, `encoder.yaml`, `small` for an encoder, `a.jsonl` for a corpus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_origin

from domainbert.base.choices import is_allowed, named_files
from domainbert.base.errors import DomainbertError, Problems, nearest
from domainbert.base.validation import bare, field_types
from domainbert.settings.yaml_files import Node, load_yaml, parse_option

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_MOST_CHARACTERS = 1_000_000  # of all texts with variables in a file, after substitution


def read_config(files: Sequence[Path], options: Sequence[tuple[str, str]], subject: str) -> Node:
    """One tree from YAML files and `(dotted.key, text)` options, in this order; later wins, and an option for
    what is below a key wins over one for the key.

    `subject` is the place of the whole tree in messages, if there is no file.

    Raises:
        DomainbertError: a file cannot be read.
    """
    tree = Node({}, subject)
    for file in files:
        tree = merge(tree, load_yaml(file))
    tree = with_options(tree, options)
    return replace(tree, where=", ".join(map(str, files)) or subject, folder=None)


def with_options(tree: Node, options: Sequence[tuple[str, str]]) -> Node:
    """A tree with the values of `(dotted.key, text)` options put in: what is below a key after the key itself."""
    for key, text in sorted(options, key=lambda option: option[0].count(".")):
        tree = merge(tree, at_key(key, parse_option(text, f"--{key}")))
    return tree


def at_key(key: str, node: Node) -> Node:
    """The tree with nothing but a node at a dotted key."""
    for part in reversed(key.split(".")):
        node = Node({part: node}, node.where)
    return node


def merge(base: Node, update: Node) -> Node:
    """`update` over `base`; a mapping that names another `class_path` replaces the whole."""
    if not isinstance(update.value, dict):
        return update
    base = _as_class_path(base) if isinstance(base.value, list) else as_mapping(base)
    if not isinstance(base.value, dict) or _names_another_class(base, update):
        return update
    if "class_path" in base.value:
        base, update = fold_arguments(base), fold_arguments(update)
    merged = dict(base.value)
    for key, node in update.value.items():
        merged[key] = merge(merged[key], node) if key in merged else node
    return replace(update, value=merged, where=base.where)


def as_mapping(node: Node) -> Node:
    """A text that stands for a mapping as that mapping: `encoder.yaml` is read, `BertConfig` becomes its class_path."""
    if not isinstance(node.value, str) or not node.value:
        return node
    path = Path(node.value)
    if path.suffix not in (".yaml", ".yml"):
        return _as_class_path(node)
    places = [path] if node.folder is None else [path, node.folder / path]  # also beside the YAML that names it
    found = next(filter(Path.exists, places), None)
    if found is None:
        raise DomainbertError(f"{node.where}: file {path} does not exist; expected a YAML file")
    return load_yaml(found)


def fold_arguments(node: Node) -> Node:
    """`{class_path: X, size: 1}` as `{class_path: X, init_args: {size: 1}}`, so that options need no `init_args`."""
    beside = node.without("class_path", "init_args").value
    inner = node.value.get("init_args", Node({}, node.where))
    if not beside or not isinstance(inner.value, dict):
        return node
    named = {name: child for name, child in node.value.items() if name == "class_path"}
    return replace(node, value={**named, "init_args": replace(inner, value={**inner.value, **beside})})


def _as_class_path(node: Node) -> Node:
    """Turn a text or a list that stands for a mapping into one: the type decides later to which key it belongs."""
    return replace(node, value={"class_path": replace(node, text=None, alone=True)}, text=None)


def _names_another_class(base: Node, update: Node) -> bool:
    """Whether `update` names another class: by the full name in a user package, otherwise by the last part of it."""
    if "class_path" not in base.value or "class_path" not in update.value:
        return False
    old, new = str(base.value["class_path"].value), str(update.value["class_path"].value)
    if is_allowed(old) or is_allowed(new):
        return old != new
    return old.rpartition(".")[2] != new.rpartition(".")[2]


def named_file(node: Node, base: type) -> Node:
    """The contents of the packaged file that a name such as `small` stands for, with the keys given beside it."""
    named = node.value.get("class_path") if isinstance(node.value, dict) else None
    file = named_files(base).get(str(named.value)) if named is not None and named.alone else None
    if file is None:
        return node
    return replace(merge(load_yaml(file), node.without("class_path")), where=node.where)


def spelled_out(node: Node, kind: type) -> Node:
    """A single text or list as the value of the field that the configuration names as its `shorthand`."""
    name = getattr(kind, "shorthand", None)
    beside = fold_arguments(node).value if isinstance(node.value, dict) else {}
    alone = beside.get("class_path") if isinstance(node.value, dict) else node
    if alone is None or not (alone.alone or alone is node):
        return node
    several = name is not None and get_origin(bare(field_types(kind)[name])) is list
    kinds: tuple[type, ...] = () if name is None else (str, list) if several else (str,)
    if not isinstance(alone.value, kinds):
        return alone
    given = [alone] if several and isinstance(alone.value, str) else alone.value
    further = beside["init_args"].value if "init_args" in beside else {}
    return replace(node, value={name: replace(alone, value=given, text=None), **further}, text=None)


def read_variables(tree: Node, environment: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """The `vars` of a YAML, overridden by the environment (`DOMAINBERT_<NAME>`), overridden by the command line.

    In the value of one `${name}` is that of another one.
    """
    found: dict[str, Node] = {}
    node = tree.value.get("vars", Node({}, tree.where))
    if not isinstance(node.value, dict):
        problems.add(f"{node.where}: vars: found {node.shown()}; expected a mapping of names to text")
        return {}
    for name, value in node.value.items():
        typed = str(value.text or value.value) if isinstance(value.value, (str, int, float)) else None
        variable = f"DOMAINBERT_{name.upper()}"
        chosen = typed if value.where.startswith("--") else environment.get(variable, typed)
        if chosen is None:
            advice = f"expected text, here, from --vars.{name} or from {variable}"
            problems.add(f"{value.where}: vars.{name}: found {value.shown()}; {advice}")
        found[name] = replace(value, value=chosen or "")
    for _ in range(len(found)):  # as many as there are, if each names the next
        values = {name: one.value for name, one in found.items()}
        found = substitute(replace(node, value=found), values, problems, "vars").value
    for name, one in found.items():
        if _VARIABLE.search(one.value):
            problems.add(f"{one.where}: vars.{name}: names itself, by way of {one.shown()}; expected text in the end")
    return {name: one.value for name, one in found.items()}


def of_environment(
    variables: Mapping[str, str], options: Sequence[tuple[str, str]], environment: Mapping[str, str]
) -> dict[str, str]:
    """Those of the `variables` that the environment has set: a command that is to do the same again has to say them."""
    typed = {key for key, _ in options}
    return {
        name: value
        for name, value in variables.items()
        if f"DOMAINBERT_{name.upper()}" in environment and f"vars.{name}" not in typed
    }


def check_variables_read(
    tree: Node, declared: Node | None, options: Sequence[tuple[str, str]], problems: Problems
) -> None:
    """Note each `--vars.NAME` that the YAML's own `vars` do not have, where they are `declared`, and that nothing in
    the tree or in other options reads: it would be lost in silence."""
    texts = [*tree.texts(), *(text for _, text in options)]
    read = (name for text in texts for name in _VARIABLE.findall(text))
    known = {*read, *(declared.value if declared is not None and isinstance(declared.value, dict) else ())}
    for key, _ in options:
        first, _, name = key.partition(".")
        if first == "vars" and name and name not in known:
            problems.add(f"--{key}: nothing reads ${{{name}}}; {nearest(name, sorted(known))}")


def substitute(node: Node, variables: Mapping[str, str], problems: Problems, key: str = "stages") -> Node:
    """The tree with `${name}` in every text replaced by its value; unknown names are added to `problems`. `key` is the
    tree's own, for messages.

    Raises:
        DomainbertError: the texts with variables become too long together.
    """
    size = 0

    def filled(node: Node) -> Node:
        nonlocal size
        if names := _VARIABLE.findall(node.value):
            size += len(node.value) + sum(len(variables.get(name, "")) for name in names)
        if size > _MOST_CHARACTERS:
            raise DomainbertError(
                f"{node.where}: {key}: the variables make the texts {size:,} characters long by this line; "
                f"expected at most {_MOST_CHARACTERS:,}"
            )

        def value_of(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in variables:
                problems.add(f"{node.where}: ${{{name}}} is not among vars; {nearest(name, list(variables))}")
            return variables.get(name, "")

        return replace(node, value=_VARIABLE.sub(value_of, node.value))

    return node.with_texts(filled)
