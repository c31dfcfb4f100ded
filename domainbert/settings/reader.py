"""Reads the settings of a stage from YAML nodes and reports all problems together, with file, line and key.

The settings dataclass, with the frozen dataclasses in its fields, is the schema. pydantic validates single values
(base/fields.py); this module walks the tree, because messages need the file and line of each value.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, get_args, get_origin

from domainbert.base.choices import as_plain, choices_of, find_choice, import_hint, is_choice, named_files
from domainbert.base.errors import Advice, DomainbertError, Facts, Problems, suggest_name
from domainbert.base.fields import (
    LISTS,
    MAPPINGS,
    STREAM,
    field_types,
    is_union,
    renamed_fields,
    strip_ranges,
    type_mismatches,
)
from domainbert.base.paths import OnHub, check_hub_name, is_on_hub, resolve_path, stream_kind, suggest_hub_name
from domainbert.base.redact import map_texts, redact
from domainbert.settings.nodes import WRONG, NodeProblems, parse_scalar
from domainbert.settings.removed import removed_hint
from domainbert.settings.schema import (
    defaults_of,
    describe,
    fields_with_metadata,
    input_files,
    is_group,
    may_stand_alone,
    pick_member,
    settings_class,
)
from domainbert.settings.suggestions import suggest_key
from domainbert.settings.trainer_arguments import trainer_problems
from domainbert.settings.tree import as_mapping, expand_packaged_file, expand_shorthand, fold_arguments
from domainbert.settings.yaml_files import Node

if TYPE_CHECKING:  # in `typing` from Python 3.11 on
    from typing_extensions import Unpack

_MAX_LIST_CHARACTERS = 80  # characters of a list in a message


@dataclass
class Settings:
    """Validated settings of a stage."""

    instance: Any = None
    """The settings dataclass; None if there are problems, and for a template."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Explicitly given settings, by name."""
    plain: dict[str, Any] = field(default_factory=dict)
    """All settings as plain YAML values, with secrets as `***`. Reading them back gives the same settings."""
    inputs: list[Path] = field(default_factory=list)
    """Existing input files and folders of the stage."""
    streams: list[Path] = field(default_factory=list)
    """Standard input, pipes and devices, which the stage can read only once."""
    references: dict[str, str] = field(default_factory=dict)
    """Text in the YAML by path, for paths in folders of earlier stages: `runs/a/vocab` to `@vocab`."""
    missing: list[str] = field(default_factory=list)
    """Messages about input files and folders that do not exist."""


def read_settings(
    stage: Callable[..., Any], node: Node, problems: Problems, prefix: str = "", template: bool = False
) -> Settings:
    """Validate a mapping of nodes against the settings of a stage, and return the settings.

    Args:
        stage: the stage function, or a settings dataclass.
        problems: collects all problems; the settings are valid only if it stays empty.
        prefix: prefix of every key in messages, such as `stages.pretrain.`.
        template: leave missing values out and do not check that input files exist (for `--print_config`).
    """
    cls = settings_class(stage)
    defaults = defaults_of(cls)
    reader = _Reader(problems, prefix, template, streams=fields_with_metadata(cls, STREAM))
    node = reader.with_current_names(node, cls, "")
    values = reader.read_fields(node, "", cls, defaults)
    settings = reader.settings  # with the inputs and references that the reader has found
    settings.arguments = values or {}
    all_values = {**defaults, **settings.arguments}
    if values is not None and not template:
        settings.instance = reader.instantiate(node, cls, "", all_values)
    paths = reader.original_paths  # as the user has written them
    plain = map_texts(as_plain(_missing_as_none(all_values)), lambda text: paths.get(text, text))
    settings.plain = redact(plain)
    return settings


def _missing_as_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value is dataclasses.MISSING else value for name, value in values.items()}


class _Reader(NodeProblems):
    """Reads the values of nodes as their types; collects problems and continues.

    A method that reads a value returns `WRONG`, and adds problems, if the value is not valid. `key` is its dotted key,
    for messages; `key_prefix` is the key of a mapping followed by a dot, "" for the settings of the stage.
    """

    def __init__(self, problems: Problems, prefix: str, template: bool, streams: Sequence[str]) -> None:
        super().__init__(problems, prefix)
        self.template, self.streams = template, streams
        self.settings = Settings()
        self.original_paths: dict[str, str] = {}  # resolved path to the spelling of the user

    def add_missing(self, node: Node, key: str, problem: object = "", **facts: Unpack[Facts]) -> Any:
        """Add a problem about a missing file, and return `WRONG`."""
        self.add_problem(node, key, problem, **facts)
        self.settings.missing.append(self.problems.messages[-1])
        return WRONG

    def with_current_names(self, node: Node, cls: type, key_prefix: str) -> Node:
        """Return the node with the current names of renamed settings; warn of each old name. Add a problem if the old
        and the new name are both given."""
        for old, new in renamed_fields(cls).items():
            child, others = node.value.get(old), node.without(old)
            if child is None:
                continue
            if new in others.value:
                self.add_problem(child, key_prefix + old, found=f"next to {new}, its new name", expected=f"only {new}")
                node = others
            else:
                text = f"renamed to {key_prefix}{new}; the old name will be removed in the next version"
                warnings.warn(f"{child.location(key_prefix + old)}: {text}", FutureWarning, stacklevel=2)
                node = dataclasses.replace(node, value={**others.value, new: child})
        return node

    def read_fields(self, node: Node, key_prefix: str, cls: type, defaults: Mapping[str, Any]) -> dict[str, Any] | None:
        """Read the values of the fields of `cls` from a mapping whose allowed keys are the keys of `defaults`. Return
        only the given values, or None, with problems, if a key or value is wrong."""
        values: dict[str, Any] = {}
        all_hints = field_types(cls)
        hints = {name: all_hints[name] for name in defaults}
        for name, child in node.value.items():
            if name not in defaults:
                removed = removed_hint(cls, name)
                facts = {} if removed else suggest_key(name, hints, key_prefix, in_recipe=bool(self.prefix))
                self.add_problem(child, key_prefix + name, removed or "unknown key", **facts)
        for name, default in defaults.items():
            if name in node.value:
                values[name] = self.read_value(node.value[name], hints[name], key_prefix + name, default)
            elif default is dataclasses.MISSING and not self.template:
                self.add_problem(node, key_prefix + name, "missing", expected=describe(hints[name]))
                values[name] = WRONG
        any_wrong = any(value is WRONG for value in values.values())
        return None if any_wrong or set(node.value) - set(defaults) else values

    def read_value(self, node: Node, hint: Any, key: str, default: Any = dataclasses.MISSING) -> Any:
        """Read a value of any type."""
        if dataclasses.is_dataclass(node.value):
            return self.read_python_instance(node, hint, key)
        if is_union(hint):
            hint = pick_member(hint, node.value)
        if hint is NoneType and node.value is None:
            return None
        if is_group(hint):
            return self.read_dataclass(node, hint, key, default)
        if get_origin(strip_ranges(hint)) in LISTS:
            return self.read_list(node, hint, key)
        if get_origin(strip_ranges(hint)) in MAPPINGS:
            return self.read_mapping(node, hint, key)
        return self.read_scalar(node, hint, key)

    def read_python_instance(self, node: Node, hint: Any, key: str) -> Any:
        """Return a dataclass instance from Python unchanged, and record its input files. Return `WRONG`, with problems,
        if it has another type, or a file of a corpus is missing."""
        if type_mismatches(node.value, hint):
            return self.wrong_type(node, hint, key)
        try:
            self.settings.inputs.extend(input_files(node.value))
        except DomainbertError as error:
            return self.add_field_problems(node, key, error, defaults_of(type(node.value)))
        return node.value

    def read_dataclass(self, node: Node, hint: type, key: str, default: Any) -> Any:
        """Read an instance of a dataclass or of a choice, after its shorthand has been expanded."""
        try:
            node = as_mapping(node)
        except DomainbertError as error:
            self.problems.add(error)
            return WRONG
        node = expand_packaged_file(node, hint) if is_choice(hint) else expand_shorthand(node, hint)
        if not isinstance(node.value, dict):
            return self.wrong_type(node, hint, key)
        read = self.read_choice if is_choice(hint) else self.read_instance
        return read(node, hint, key, default)

    def read_choice(self, node: Node, base: type, key: str, default: Any) -> Any:
        """Read an instance of the class that `class_path` names, by default of the class of `default`."""
        node = fold_arguments(node)
        name = node.value.get("class_path")
        arguments = node.value.get("init_args", Node({}, node.where))
        if name is not None:
            cls = self.find_class(name, base, key)
            default = dataclasses.MISSING  # the class has its own defaults
        elif isinstance(default, base):
            cls = type(default)
        else:
            return self.add_problem(node, f"{key}.class_path", "missing", **suggest_name("", choices_of(base)))
        if cls is WRONG:
            return WRONG
        if not isinstance(arguments.value, dict):
            return self.wrong_type(arguments, cls, f"{key}.init_args")
        return self.read_instance(dataclasses.replace(arguments, where=node.where), cls, key, default)

    def find_class(self, node: Node, base: type, key: str) -> Any:
        """Return the class that a node names; `WRONG`, with a problem, if the name is not allowed."""
        name = str(node.value)
        try:
            cls = find_choice(base, name)
        except DomainbertError as error:
            return self.add_problem(node, f"{key}.class_path", error)
        if cls is None:
            if hint := removed_hint(base, name.rpartition(".")[2]):
                return self.add_problem(node, f"{key}.class_path", f"{node.short_text()} {hint}")
            if name in named_files(base):  # named at class_path instead of at the setting itself
                advice: Advice = {"expected": f"{self.prefix}{key}: {name}"}
            else:
                choices = [*choices_of(base), *(named_files(base) if node.is_single else ())]
                advice = suggest_name(name.rpartition(".")[2], choices, import_hint(name))
            return self.add_problem(node, f"{key}.class_path", f"{node.short_text()} is not allowed", **advice)
        return cls

    def read_instance(self, node: Node, cls: type, key: str, default: Any) -> Any:
        """Read an instance of `cls`. If `default` is an instance of `cls`, its values are the defaults.

        For a template that is only printed, in which required values are missing, return a mapping with None for them.
        """
        defaults = defaults_of(cls)
        if type(default) is cls:
            defaults = {name: getattr(default, name) for name in defaults}
        node = self.with_current_names(node, cls, f"{key}.")
        values = self.read_fields(node, f"{key}.", cls, defaults)
        if values is None:
            return WRONG
        all_values = {**defaults, **values}
        if dataclasses.MISSING in all_values.values():  # only in a template
            return _missing_as_none(all_values)
        return self.instantiate(node, cls, key, all_values)

    def instantiate(self, node: Node, cls: type, key: str, all_values: Mapping[str, Any]) -> Any:
        """Create a dataclass from the values of all its fields, and record its input files. Return `WRONG`, with
        problems, if its validation fails or an input file is missing."""
        try:
            instance = cls(**all_values)
        except (DomainbertError, ValueError) as error:
            return self.add_field_problems(node, key, error, all_values)
        if self.template or not hasattr(instance, "input_files"):
            return instance
        num_problems = len(self.problems.messages)
        try:
            # raises if a file is missing; only files of unfinished stages may be
            instance.input_files(node.stage_paths(finished=False))
            # files of earlier stages are no inputs
            self.settings.inputs.extend(instance.input_files(node.stage_paths()))
        except (DomainbertError, ValueError) as error:
            self.add_field_problems(node, key, error, all_values)
            self.settings.missing += self.problems.messages[num_problems:]
            return WRONG
        return instance

    def read_list(self, node: Node, hint: Any, key: str) -> Any:
        """Read a list item by item; a single value may stand for a list of one item."""
        list_type, item_hints = get_origin(strip_ranges(hint)), get_args(strip_ranges(hint))
        if isinstance(node.value, list):
            nodes, keys = node.value, [f"{key}[{index}]" for index in range(len(node.value))]
        elif may_stand_alone(item_hints[0]) and isinstance(node.value, (str, int, float)):
            if not is_group(item_hints[0]) and parse_scalar(node, item_hints[0]) is WRONG:
                expected = f"{describe(item_hints[0])}, or a list: [A, B]"
                return self.add_problem(node, key, found=node.short_text(), expected=expected)
            nodes, keys = [node], [key]
        else:
            return self.wrong_type(node, hint, key)
        has_fixed_length = list_type is tuple and item_hints[-1] is not Ellipsis
        if not has_fixed_length:
            item_hints = (item_hints[0],) * len(nodes)
        # not strict: lengths are compared below
        items = [self.read_value(*arguments) for arguments in zip(nodes, item_hints, keys, strict=False)]
        if any(item is WRONG for item in items):
            return WRONG
        if len(nodes) != len(item_hints) or type_mismatches(items, hint):
            found = str(node.plain())[:_MAX_LIST_CHARACTERS]
            return self.add_problem(node, key, found=found, expected=describe(hint))
        return tuple(items) if list_type is tuple else items

    def read_mapping(self, node: Node, hint: Any, key: str) -> Any:
        """Read a mapping with free keys. The keys of `trainer` must be allowed arguments of `lightning.Trainer`."""
        if not isinstance(node.value, dict):
            return self.wrong_type(node, hint, key)
        if key.rpartition(".")[2] == "trainer":
            for child, name, error in trainer_problems(node, key):
                self.add_problem(child, name, error)
        item_hint = get_args(strip_ranges(hint))[1]
        values = {name: self.read_value(child, item_hint, f"{key}.{name}") for name, child in node.value.items()}
        return WRONG if any(value is WRONG for value in values.values()) else values

    def read_scalar(self, node: Node, hint: Any, key: str) -> Any:
        """Read a single value; the path of an input must exist."""
        value = parse_scalar(node, hint)
        if value is WRONG:
            return self.wrong_type(node, hint, key)
        if node.reference is not None:
            self.settings.references[str(value)] = node.reference
        return self.read_input_path(node, value, hint, key) if isinstance(value, Path) else value

    def read_input_path(self, node: Node, value: Path, hint: Any, key: str) -> Any:
        """Resolve and record an input path. It must exist, unless an earlier stage will write it or it is the name of a
        data set on the Hugging Face hub."""
        on_hub = next((mark for mark in get_args(hint) if isinstance(mark, OnHub)), None)
        try:
            if on_hub is not None and on_hub.repo_type == "data set" and is_on_hub(value):
                check_hub_name(str(value))
                return value
            path = resolve_path(value)
        except DomainbertError as error:
            return self.add_problem(node, key, error)
        if path != value:
            self.original_paths[str(path)] = str(value)
        if node.stage_finished and not path.exists():
            problem = f"{node.reference} does not exist, but its stage is done"
            return self.add_missing(node, key, problem, expected="a file or folder that the stage has written")
        if self.template or node.reference is not None:
            return path
        if stream := stream_kind(path):
            if key not in self.streams:
                return self.add_problem(node, key, f"'{value}' is {stream}", expected="a regular file or folder")
            self.settings.streams.append(path)
            return path
        if not path.exists():
            hub_name = "" if on_hub is None else suggest_hub_name(value, on_hub.repo_type)
            expected = "a file" if key in self.streams else f"a file or folder{hub_name}"
            return self.add_missing(node, key, f"'{value}' does not exist", expected=expected)
        self.settings.inputs.append(path)
        if path.suffix == ".onnx" and (path.parent / "config.json").is_file():  # labels and tokenizer are next to it
            self.settings.inputs.append(path.parent)
        return path
