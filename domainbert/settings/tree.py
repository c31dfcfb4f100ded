"""Merges YAML files and options: later values override, mappings are merged, lists are replaced.

Also expands shorthands: `${name}`, `encoder.yaml`, `small` for an encoder, `a.jsonl` for a corpus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_origin

from domainbert.base.choices import is_user_class, named_files
from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.base.fields import field_types, strip_ranges
from domainbert.settings.yaml_files import Node, load_yaml, parse_option

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_YAML_SUFFIXES = (".yaml", ".yml")
_MAX_CHARACTERS = 1_000_000  # of all texts with variables in a file, after substitution


def read_config(files: Sequence[Path], options: Sequence[tuple[str, str]]) -> Node:
    """Merge YAML files, then `(dotted.key, text)` options; return the tree of all values. Later values override, and an
    option for a nested key overrides an option for its parent."""
    subject = ", ".join(map(str, files)) or "command line"  # names the tree in messages
    tree = Node({}, subject)
    for file in files:
        tree = merge(tree, load_yaml(file))
    tree = with_options(tree, options)
    return replace(tree, where=subject, folder=None)


def with_options(tree: Node, options: Sequence[tuple[str, str]]) -> Node:
    """Return a tree with values overridden by `(dotted.key, text)` options; nested keys are set after their parents."""
    for key, text in sorted(options, key=lambda option: option[0].count(".")):
        tree = merge(tree, at_key(key, parse_option(text, f"--{key}")))
    return tree


def at_key(key: str, node: Node) -> Node:
    """Return a tree that contains only `node`, at a dotted key."""
    for part in reversed(key.split(".")):
        node = Node({part: node}, node.where)
    return node


def merge(base: Node, update: Node) -> Node:
    """Merge the values of two nodes recursively; keep the position of `base` and the typed text of `update`.

    `update` replaces `base` if one of them is not a mapping, or if their `class_path` differs. A list or text in `base`
    is a shorthand for a mapping, and is expanded first.
    """
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
    """Expand a text that stands for a mapping: read the YAML file for `encoder.yaml`, and return
    `{class_path: BertConfig}` for `BertConfig`. Return a node without text unchanged."""
    if not isinstance(node.value, str) or not node.value:
        return node
    if Path(node.value).suffix not in _YAML_SUFFIXES:
        return _as_class_path(node)
    file = yaml_file(node)
    if file is None:
        raise DomainbertError(f"file {Path(node.value)} does not exist", where=node.where, expected="a YAML file")
    return load_yaml(file)


def yaml_file(node: Node) -> Path | None:
    """Return the file that a text such as `encoder.yaml` names, perhaps in the folder of the YAML with this text; None
    for any other value, and if there is no such file."""
    if not isinstance(node.value, str) or Path(node.value).suffix not in _YAML_SUFFIXES:
        return None
    path = Path(node.value)
    candidates = [path] if node.folder is None else [path, node.folder / path]
    return next(filter(Path.exists, candidates), None)


def fold_arguments(node: Node) -> Node:
    """Turn `{class_path: X, size: 1}` into `{class_path: X, init_args: {size: 1}}`, because `init_args` need not be
    written. Return a mapping without such keys unchanged."""
    other_keys = node.without("class_path", "init_args").value
    arguments = node.value.get("init_args", Node({}, node.where))
    if not other_keys or not isinstance(arguments.value, dict):
        return node
    class_path = {name: child for name, child in node.value.items() if name == "class_path"}
    return replace(node, value={**class_path, "init_args": replace(arguments, value={**arguments.value, **other_keys})})


def _as_class_path(node: Node) -> Node:
    """Wrap a shorthand text or list in a mapping as its `class_path`; `expand_shorthand` corrects the key later, when
    the type is known."""
    return replace(node, value={"class_path": replace(node, text=None, is_single=True)}, text=None)


def _names_another_class(base: Node, update: Node) -> bool:
    if "class_path" not in base.value or "class_path" not in update.value:
        return False
    old, new = str(base.value["class_path"].value), str(update.value["class_path"].value)
    if is_user_class(old) or is_user_class(new):
        return old != new
    return old.rpartition(".")[2] != new.rpartition(".")[2]


def expand_packaged_file(node: Node, base: type) -> Node:
    """Replace the name of a packaged file, such as `small`, by the content of the file, overridden by the other keys of
    the mapping; return other nodes unchanged."""
    name = node.value.get("class_path") if isinstance(node.value, dict) else None
    file = named_files(base).get(str(name.value)) if name is not None and name.is_single else None
    if file is None:
        return node
    return replace(merge(load_yaml(file), node.without("class_path")), where=node.where)


def expand_shorthand(node: Node, cls: type) -> Node:
    """Turn a shorthand, a single text or list, into a mapping with this value at the key that `cls.shorthand` names.

    For a corpus, whose shorthand is `sources`, `a.jsonl` becomes `{sources: [a.jsonl]}`. If `merge` has wrapped the
    value, as in `{class_path: a.jsonl, init_args: {deduplicate: false}}`, the other keys are kept.

    A single value that this key cannot have is returned alone. A mapping without a single value is returned unchanged.
    """
    single, other_keys = node, dict[str, Node]()
    if isinstance(node.value, dict):
        keys = fold_arguments(node).value
        if "class_path" not in keys or not keys["class_path"].is_single:
            return node
        single = keys["class_path"]
        other_keys = keys["init_args"].value if "init_args" in keys else {}
    name = getattr(cls, "shorthand", None)
    if name is None:
        return single
    takes_list = get_origin(strip_ranges(field_types(cls)[name])) is list
    if not isinstance(single.value, (str, list) if takes_list else str):
        return single
    value = [single] if takes_list and isinstance(single.value, str) else single.value
    return replace(node, value={name: replace(single, value=value, text=None), **other_keys}, text=None)


def read_variables(tree: Node, environment: Mapping[str, str], problems: Problems) -> dict[str, str]:
    """Return the values of the variables under `vars` in a YAML, by name; {} if there are none. The environment
    (`DOMAINBERT_<NAME>`) overrides a value in the YAML, and the command line overrides both.

    A variable may refer to another variable: `${data}/ner` is resolved. Values that are not text or that refer to
    themselves are added to `problems`.
    """
    variables: dict[str, Node] = {}
    node = tree.value.get("vars", Node({}, tree.where))
    if not isinstance(node.value, dict):
        problems.add(where=f"{node.where}: vars", found=node.short_text(), expected="a mapping such as {data: law/raw}")
        return {}
    for name, value in node.value.items():
        is_option = value.where.startswith("--")  # from the command line, which overrides the environment
        is_text = isinstance(value.value, (str, int, float)) or (is_option and value.text is not None)
        typed = str(value.text or value.source or value.value) if is_text else None
        environment_name = f"DOMAINBERT_{name.upper()}"
        text = typed if is_option else environment.get(environment_name, typed)
        if text is None:
            expected = f"text here, or --vars.{name}, or the environment variable {environment_name}"
            problems.add(where=f"{value.where}: vars.{name}", found=value.short_text(), expected=expected)
        variables[name] = replace(value, value=text or "")

    for _ in range(len(variables)):  # enough passes for a chain through all variables
        values = {name: item.value for name, item in variables.items()}
        variables = substitute(replace(node, value=variables), values, problems, "vars").value
    for name, item in variables.items():
        if match := _VARIABLE.search(item.value):
            problems.add(
                f"leads to {match[0]}, which refers to itself",
                where=f"{item.where}: vars.{name}",
                expected="plain text",
            )
    return {name: item.value for name, item in variables.items()}


def select_environment_variables(
    variables: Mapping[str, str], options: Sequence[tuple[str, str]], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables whose values come from the environment, by name. A command that repeats the run elsewhere
    must set them."""
    typed = {key for key, _ in options}
    return {
        name: value
        for name, value in variables.items()
        if f"DOMAINBERT_{name.upper()}" in environment and f"vars.{name}" not in typed
    }


def check_variables_read(
    tree: Node, declared: Node | None, options: Sequence[tuple[str, str]], problems: Problems
) -> None:
    """Add a problem for each option `--vars.NAME` that has no effect. Its name is then neither in `declared`, the
    `vars` of the YAML, nor in a text in the tree or the options."""
    texts = [*tree.texts(), *(text for _, text in options)]
    valid = {name for text in texts for name in _VARIABLE.findall(text)}
    if declared is not None and isinstance(declared.value, dict):
        valid |= declared.value.keys()
    for key, _ in options:
        first, _, name = key.partition(".")
        if first == "vars" and name and name not in valid:
            problems.add(f"${{{name}}} is not used", where=f"--{key}", **suggest_name(name, sorted(valid)))


def substitute(node: Node, variables: Mapping[str, str], problems: Problems, key: str = "stages") -> Node:
    """Return a tree with `${name}` in every text replaced by its value; add unknown names to `problems`. `key` is the
    key of the tree, for messages.

    Raises:
        DomainbertError: the total length of the texts with variables is too large.
    """
    size = 0

    def substitute_text(node: Node) -> Node:
        """Return a text with its variables replaced, and count its characters."""
        nonlocal size
        if names := _VARIABLE.findall(node.value):
            size += len(node.value) + sum(len(variables.get(name, "")) for name in names)
        if size > _MAX_CHARACTERS:
            raise DomainbertError(
                f"the variables make the texts {size:,} characters long by this line",
                where=f"{node.where}: {key}",
                expected=f"at most {_MAX_CHARACTERS:,}",
            )

        def value_of(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in variables:
                facts = suggest_name(name, variables, none=f"set --vars.{name}, or {name} under vars")
                problems.add(f"${{{name}}} is not defined in vars", where=node.where, **facts)
            return variables.get(name, "")

        return replace(node, value=_VARIABLE.sub(value_of, node.value))

    return node.with_texts(substitute_text)
