"""Reads the settings of a stage from YAML nodes and reports all problems together, with file, line and key.

The settings dataclass, with the frozen dataclasses in its fields, is the schema. pydantic validates single values
(base/validation.py); this module walks the tree, because messages need the file and line of each value.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_origin

from domainbert.base.choices import as_plain, choices_of, find_choice, import_advice, is_choice, named_files
from domainbert.base.errors import DomainbertError, Problems, suggest_name
from domainbert.base.marks import STREAM, renamed_fields
from domainbert.base.paths import OnHub, check_hub_name, hub_hint, is_on_hub, resolve_path, stream_kind
from domainbert.base.redact import redact
from domainbert.base.validation import LISTS, MAPPINGS, bare, field_types, is_union, parse_plain, type_mismatches
from domainbert.settings.schema import defaults_of, fields_with_metadata, settings_class
from domainbert.settings.suggestions import suggest_key
from domainbert.settings.trainer_arguments import trainer_problems
from domainbert.settings.tree import as_mapping, fold_arguments, named_file, spelled_out
from domainbert.settings.type_names import describe, is_group, may_stand_alone, pick_member
from domainbert.settings.yaml_files import Node, parse_option

_SHOWN = 80  # characters of a list in a message
WRONG: Any = object()  # marks a value that does not match its type
_BEGINS_WITH_A_FIELD = re.compile(r"(\w+(?:\.\w+|\[\d+\])*): (.*)", re.DOTALL)


@dataclass
class Settings:
    """Validated settings of a stage."""

    instance: Any = None
    """Instance of the settings dataclass; None if there are problems, and for a template."""
    arguments: dict[str, Any] = field(default_factory=dict)
    """Explicitly given settings, by name."""
    plain: dict[str, Any] = field(default_factory=dict)
    """All settings as plain YAML values. Reading them back gives the same settings, but secrets are `***`."""
    inputs: list[Path] = field(default_factory=list)
    """Existing input files and folders of the stage."""
    streams: list[Path] = field(default_factory=list)
    """Standard input, pipes and devices, which the stage can read only once."""
    references: dict[str, str] = field(default_factory=dict)
    """Paths in folders of earlier stages, with the text in the YAML: `runs/a/vocab` to `@vocab`."""
    missing: list[str] = field(default_factory=list)
    """The problems about input files and folders that do not exist."""


def read_settings(
    stage: Callable[..., Any], node: Node, problems: Problems, prefix: str = "", template: bool = False
) -> Settings:
    """Validate a mapping of nodes against the settings of a stage.

    Args:
        stage: the stage function, or a settings dataclass.
        node: the mapping.
        problems: collects all problems; the settings are valid only if it stays empty.
        prefix: prefix of every key in messages, such as `stages.pretrain.`.
        template: leave missing values out and do not check that input files exist (for `--print_config`).
    """
    cls = settings_class(stage)
    reader, defaults = _Reader(problems, prefix, template, fields_with_metadata(cls, STREAM)), defaults_of(cls)
    node = reader.with_current_names(node, cls, "")
    values = reader.fields(node, "", field_types(cls), defaults)
    settings, complete = reader.settings, {**defaults, **(values or {})}
    settings.arguments = values or {}
    if values is not None and not template:
        settings.instance = reader.instance(node, cls, "", complete)
    settings.plain = redact(replace_strings(as_plain(_missing_as_none(complete)), reader.spelled))
    return settings


def _missing_as_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: None if value is dataclasses.MISSING else value for name, value in values.items()}


def replace_strings(value: Any, table: Mapping[str, str]) -> Any:
    """Replace every string in plain values that is a key of `table`."""
    if isinstance(value, dict):
        return {key: replace_strings(item, table) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_strings(item, table) for item in value]
    return table.get(value, value) if isinstance(value, str) else value


class _Reader:
    """Walks nodes and types together; collects problems and continues."""

    def __init__(self, problems: Problems, prefix: str, template: bool, streams: Sequence[str]) -> None:
        self.problems, self.prefix, self.template, self.streams = problems, prefix, template, streams
        self.settings = Settings()
        self.spelled: dict[str, str] = {}  # resolved path to the spelling of the user

    def problem(self, node: Node, key: str, message: str) -> Any:
        self.problems.add(f"{node.place((self.prefix + key).rstrip('.'))}: {message}")
        return WRONG

    def missing(self, node: Node, key: str, message: str) -> Any:
        wrong = self.problem(node, key, message)
        self.settings.missing.append(self.problems.messages[-1])
        return wrong

    def other_type(self, node: Node, hint: Any, key: str) -> Any:
        return self.problem(node, key, f"found {node.shown()}; expected {describe(hint)}")

    def with_current_names(self, node: Node, cls: type, key: str) -> Node:
        """Mapping with the current names of renamed settings; each old name gives a warning."""
        for old, new in renamed_fields(cls).items():
            child, others = node.value.get(old), node.without(old)
            if child is None:
                continue
            if new in others.value:
                self.problem(child, key + old, f"found with {new}, its new name; expected only {new}")
                node = others
            else:
                advice = "the old name will be removed in the next version"
                warnings.warn(f"{child.place(key + old)}: renamed to {key}{new}; {advice}", FutureWarning, stacklevel=2)
                node = dataclasses.replace(node, value={**others.value, new: child})
        return node

    def fields(
        self, node: Node, key: str, hints: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """Values of a mapping with the keys of `defaults`; None if a key or value is wrong."""
        values: dict[str, Any] = {}
        valid = {name: hints[name] for name in defaults}
        for name, child in node.value.items():
            if name not in defaults:
                self.problem(child, key + name, f"unknown key; {suggest_key(name, valid, key, bool(self.prefix))}")
        for name, default in defaults.items():
            if name in node.value:
                values[name] = self.value(node.value[name], hints[name], key + name, default)
            elif default is dataclasses.MISSING and not self.template:
                values[name] = self.problem(node, key + name, f"missing; expected {describe(hints[name])}")
        wrong = any(value is WRONG for value in values.values())
        return None if wrong or set(node.value) - set(defaults) else values

    def value(self, node: Node, hint: Any, key: str, default: Any = dataclasses.MISSING) -> Any:
        """Read a value of any type; a dataclass instance from Python is used unchanged."""
        if dataclasses.is_dataclass(node.value):
            return self.other_type(node, hint, key) if type_mismatches(node.value, hint) else node.value
        if is_union(hint):
            hint = pick_member(hint, node.value)
        if hint is NoneType and node.value is None:
            return None
        if is_group(hint):
            return self.dataclass(node, hint, key, default)
        if get_origin(bare(hint)) in LISTS:
            return self.items(node, hint, key)
        if get_origin(bare(hint)) in MAPPINGS:
            return self.mapping(node, hint, key)
        return self.leaf(node, hint, key)

    def dataclass(self, node: Node, hint: type, key: str, default: Any) -> Any:
        try:
            node = as_mapping(node)
        except DomainbertError as error:
            self.problems.add(str(error))
            return WRONG
        node = named_file(node, hint) if is_choice(hint) else spelled_out(node, hint)
        if not isinstance(node.value, dict):
            return self.other_type(node, hint, key)
        read = self.choose if is_choice(hint) else self.build
        return read(node, hint, key, default)

    def choose(self, node: Node, base: type, key: str, default: Any) -> Any:
        """Instance of the class that `class_path` names; its default is the class of `default`."""
        node = fold_arguments(node)
        name, inner = node.value.get("class_path"), node.value.get("init_args", Node({}, node.where))
        if name is not None:
            cls, default = self.named_class(name, base, key), dataclasses.MISSING
        elif isinstance(default, base):
            cls = type(default)
        else:
            return self.problem(node, f"{key}.class_path", f"missing; expected {describe(base)}")
        if cls is None:
            return WRONG
        if not isinstance(inner.value, dict):
            return self.other_type(inner, cls, f"{key}.init_args")
        return self.build(dataclasses.replace(inner, where=node.where), cls, key, default)

    def named_class(self, node: Node, base: type, key: str) -> type | None:
        """Class that a node names; None, with a problem, if the name is not allowed."""
        name = str(node.value)
        try:
            cls = find_choice(base, name)
        except DomainbertError as error:
            self.problem(node, f"{key}.class_path", str(error))
            return None
        if cls is None:
            choices = [*choices_of(base), *named_files(base)]
            near = suggest_name(name.rpartition(".")[2], choices) + import_advice(name)
            self.problem(node, f"{key}.class_path", f"{node.shown()} is not allowed; {near}")
        return cls

    def build(self, node: Node, cls: type, key: str, default: Any) -> Any:
        """Instance of a class; the values of `default`, if it has the same class, are the defaults."""
        defaults = defaults_of(cls)
        if type(default) is cls:
            defaults = {name: getattr(default, name) for name in defaults}
        node = self.with_current_names(node, cls, f"{key}.")
        values = self.fields(node, f"{key}.", field_types(cls), defaults)
        if values is None:
            return WRONG
        complete = {**defaults, **values}
        if dataclasses.MISSING in complete.values():  # a template, which is only printed
            return _missing_as_none(complete)
        return self.instance(node, cls, key, complete)

    def instance(self, node: Node, cls: type, key: str, complete: Mapping[str, Any]) -> Any:
        """Instance of a dataclass with these fields; `WRONG`, with problems, if its own validation fails."""
        instance, count = None, len(self.problems.messages)
        try:
            instance = cls(**complete)
            if hasattr(instance, "input_files") and not self.template:
                instance.input_files(node.stage_paths(finished=False))  # files of finished stages must exist, too
                self.settings.inputs.extend(instance.input_files(node.stage_paths()))
        except DomainbertError as error:
            for problem in error.problems:
                self.refusal(node, key, problem, list(complete))
            if instance is not None:  # the fields are valid, so the problems are about input files
                self.settings.missing += self.problems.messages[count:]
            return WRONG
        except ValueError as error:
            return self.problem(node, key, str(error))
        return instance

    def refusal(self, node: Node, key: str, problem: str, fields: Sequence[str]) -> None:
        """Add a problem from the validation of a dataclass; if the message begins with a field, at that field."""
        begins = _BEGINS_WITH_A_FIELD.fullmatch(problem)
        parts = re.findall(r"\w+", begins[1]) if begins else [""]
        if begins and parts[0] in fields:
            self.problem(node.at(parts), f"{key}.{begins[1]}".removeprefix("."), begins[2])
        else:
            self.problem(node, key, problem)

    def items(self, node: Node, hint: Any, key: str) -> Any:
        """Read a list item by item; a single value may stand for a list of one item."""
        listed, hints = isinstance(node.value, list), get_args(bare(hint))
        if not listed and not (may_stand_alone(hints[0]) and isinstance(node.value, (str, int, float))):
            return self.other_type(node, hint, key)
        nodes = node.value if listed else [node]
        fixed = get_origin(bare(hint)) is tuple and hints[-1] is not Ellipsis
        keys = [f"{key}[{index}]" for index in range(len(nodes))] if listed else [key]
        hints = hints if fixed else (hints[0],) * len(nodes)
        items = [self.value(*item) for item in zip(nodes, hints, keys, strict=False)]
        if any(item is WRONG for item in items):
            return WRONG
        if len(nodes) != len(hints) or type_mismatches(items, hint):
            return self.problem(node, key, f"found {str(node.plain())[:_SHOWN]}; expected {describe(hint)}")
        return tuple(items) if get_origin(bare(hint)) is tuple else items

    def mapping(self, node: Node, hint: Any, key: str) -> Any:
        """Read a mapping with free keys; the keys of `trainer` are the arguments of `lightning.Trainer`."""
        if not isinstance(node.value, dict):
            return self.other_type(node, hint, key)
        if key.rpartition(".")[2] == "trainer":
            for child, name, message in trainer_problems(node, key):
                self.problem(child, name, message)
        item_hint = get_args(bare(hint))[1]
        values = {name: self.value(child, item_hint, f"{key}.{name}") for name, child in node.value.items()}
        return WRONG if any(value is WRONG for value in values.values()) else values

    def leaf(self, node: Node, hint: Any, key: str) -> Any:
        value = _parse(node, hint)
        if value is WRONG:
            return self.other_type(node, hint, key)
        if node.reference is not None:
            self.settings.references[str(value)] = node.reference
        return self.input_path(node, value, hint, key) if isinstance(value, Path) else value

    def input_path(self, node: Node, value: Path, hint: Any, key: str) -> Any:
        """Read an input path: it must exist, unless an earlier stage will write it."""
        on_hub = next((mark for mark in get_args(hint) if isinstance(mark, OnHub)), None)
        try:
            if on_hub is not None and on_hub.what == "data set" and is_on_hub(value):
                check_hub_name(str(value))
                return value
            path = resolve_path(value)
        except DomainbertError as error:
            return self.problem(node, key, str(error))
        if path != value:
            self.spelled[str(path)] = str(value)
        if node.made and not path.exists():
            expected = "expected a file or folder that the stage has written"
            return self.missing(node, key, f"{node.reference} does not exist, but its stage is done; {expected}")
        if self.template or node.reference is not None:
            return path
        stream = stream_kind(path)
        if stream and key not in self.streams:
            return self.problem(node, key, f"{value} is {stream}; expected a regular file or folder")
        if not stream and not path.exists():
            hub = "" if on_hub is None else hub_hint(value, on_hub.what)
            return self.missing(node, key, f"{value} does not exist; expected a file or folder{hub}")
        (self.settings.streams if stream else self.settings.inputs).append(path)
        return path


def _parse(node: Node, hint: Any) -> Any:
    """Parse the value of a node as a type: a text may hold a number (`${lr}`), `1e5` an integer, an option a text."""
    plain = node.plain()
    readings = [plain, *([] if node.text is None else [node.text])]
    readings += [parse_option(plain, "").plain()] if isinstance(plain, str) else []
    for reading in readings:
        integral = isinstance(reading, float) and reading.is_integer()
        for candidate in (reading, int(reading)) if integral else (reading,):
            with suppress(ValueError, TypeError):
                return parse_plain(candidate, hint)
    return WRONG
