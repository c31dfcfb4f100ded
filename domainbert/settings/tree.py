"""Several YAML files and options put together: later wins, mappings are merged, lists are replaced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.settings.choices import is_allowed
from domainbert.settings.yaml_files import Node, load_yaml, parse_option


def read_config(files: Sequence[Path], options: Sequence[tuple[str, str]], subject: str) -> Node:
    """One tree from YAML files and `(dotted.key, text)` options, in this order; later wins.

    Args:
        files: YAML files with a mapping each.
        options: dotted keys and what was typed for them.
        subject: the place of the whole tree in messages, if there is no file.

    Raises:
        DomainbertError: a file cannot be read.
    """
    tree = Node({}, subject)
    for file in files:
        tree = merge(tree, load_yaml(file))
    for key, text in options:
        tree = merge(tree, option_tree(key, text))
    return replace(tree, where=", ".join(map(str, files)) or subject, folder=None)


def merge(base: Node, update: Node) -> Node:
    """`update` over `base`; a mapping that names another `class_path` replaces the whole."""
    if not isinstance(update.value, dict):
        return update
    base = _spelled_out(base) if isinstance(base.value, list) else as_mapping(base)
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
    if Path(node.value).suffix in (".yaml", ".yml"):
        return load_yaml(_beside(node, Path(node.value)))
    return _spelled_out(node)


def fold_arguments(node: Node) -> Node:
    """`{class_path: X, size: 1}` as `{class_path: X, init_args: {size: 1}}`, so that options need no `init_args`."""
    beside = {name: child for name, child in node.value.items() if name not in ("class_path", "init_args")}
    inner = node.value.get("init_args", Node({}, node.where))
    if not beside or not isinstance(inner.value, dict):
        return node
    named = {name: child for name, child in node.value.items() if name == "class_path"}
    return replace(node, value={**named, "init_args": replace(inner, value={**inner.value, **beside})})


def nearest(name: str, known: Sequence[str]) -> str:
    """`; did you mean 'x'?` for the nearest of the known names, or which names there are."""
    close = get_close_matches(name, known, n=1, cutoff=0.6)
    if close:
        return f"did you mean '{close[0]}'?"
    return f"expected one of {', '.join(known)}" if known else "expected no key here"


def _spelled_out(node: Node) -> Node:
    """Turn a text or a list that stands for a mapping into one: the type decides later to which key it belongs."""
    return replace(node, value={"class_path": replace(node, text=None, alone=True)}, text=None)


def _beside(node: Node, path: Path) -> Path:
    """Find a YAML file: first in the current folder, then beside the YAML file that names it."""
    if not path.exists() and node.folder is not None and (node.folder / path).exists():
        return node.folder / path
    if not path.exists():
        raise DomainbertError(f"{node.where}: file {path} does not exist; expected a YAML file")
    return path


def option_tree(key: str, text: str) -> Node:
    """`--optim.lr 1e-4` as the tree it stands for."""
    node = parse_option(text, f"--{key}")
    for part in reversed(key.split(".")):
        node = Node({part: node}, f"--{key}")
    return node


def _names_another_class(base: Node, update: Node) -> bool:
    """Whether `update` names another class: by the full name in a user package, otherwise by the last part of it."""
    if "class_path" not in base.value or "class_path" not in update.value:
        return False
    old, new = str(base.value["class_path"].value), str(update.value["class_path"].value)
    if is_allowed(old) or is_allowed(new):
        return old != new
    return old.rpartition(".")[2] != new.rpartition(".")[2]
