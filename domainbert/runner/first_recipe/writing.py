"""Write a recipe as YAML with comments, from a template."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from domainbert.base.choices import as_plain
from domainbert.base.layout import printable
from domainbert.labelled.sets import Single, paths_of, with_paths
from domainbert.runner.first_recipe.sizes import Choice
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tasks.config import TaskConfig

_UNQUOTED = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*")
_REASON_COLUMN, _WIDTH = 34, 120
_MIN_REASON_WIDTH = 40
_PACKAGE = f"{__name__.partition('.')[0]}."


def recipe_text(variables: Mapping[str, Any]) -> str:
    """Return the YAML of a recipe: the template `recipe.yaml.j2`, rendered with `variables`."""
    import jinja2  # here: `--help` does not need it

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # the output is YAML; `in_yaml` quotes strings
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["yaml"] = in_yaml
    environment.globals |= {"note": _line_with_reason, "comment": _comment}
    return environment.get_template("recipe.yaml.j2").render(variables)


def in_yaml(value: Any) -> str:
    """Return a plain value as one line of YAML, such as `{name: muon, lr: 2e-3}`.

    Strings that YAML could read as another type are quoted.
    """
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {in_yaml(entry)}" for key, entry in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(in_yaml, value)) + "]"
    if isinstance(value, str) and _UNQUOTED.fullmatch(value) and dump_yaml(value).partition("\n")[0] == value:
        return value  # `dump_yaml` does not quote it either
    if isinstance(value, float) and 0 < value < 1e-2:
        return f"{Decimal(repr(value)):e}"  # 2.5e-4, not 0.00025
    return printable(json.dumps(value, ensure_ascii=False))  # YAML reads escapes such as \u0085 like Python


def in_comment(text: str) -> str:
    """Return a text on one line, for a comment; line breaks, for example in a path, become spaces."""
    return printable(" ".join(text.split()))


def task_in_yaml(task: TaskConfig) -> Any:
    """Return the YAML value of a task: its name, and the settings that differ from the defaults."""
    plain = as_plain(task, defaults=False)
    is_packaged = type(task).__module__.startswith(_PACKAGE)
    name = type(task).__name__ if is_packaged else plain["class_path"]
    return {"class_path": name, "init_args": plain["init_args"]} if plain["init_args"] else name


def file_in_yaml(file: Single) -> Any:
    """Return the YAML value of a labelled file, or of a text file and a label file."""
    value = with_paths(file, paths_of(file), empty=[])  # the same paths
    if isinstance(value, dict):
        return {key: setting for key, setting in value.items() if setting}  # without empty `slices`
    return value


def _comment(name: str, text: str) -> str:
    # `#   NAME      TEXT`: 14 characters precede the text; the name is only in the first line
    lines = textwrap.wrap(in_comment(text), _WIDTH - 14, break_on_hyphens=False)
    return "\n".join(f"#   {name if index == 0 else '':<10}{line}" for index, line in enumerate(lines))


def _line_with_reason(indent: int, key: str, choice: Choice) -> str:
    """Return `KEY: VALUE    # REASON`; the further lines of a long reason are aligned with the first. The reason of a
    long value is on the lines before the value."""
    setting = f"{' ' * indent}{key}: {in_yaml(choice.value)}"
    column = max(_REASON_COLUMN, len(setting) + 2)  # where the reason begins
    if _WIDTH - column < _MIN_REASON_WIDTH:
        lines = textwrap.wrap(choice.reason, _WIDTH - indent - 2)
        return "\n".join([*(f"{' ' * indent}# {line}" for line in lines), setting])
    first, *others = textwrap.wrap(choice.reason, _WIDTH - column - 2)
    return "\n".join([f"{setting.ljust(column)}# {first}", *(f"{' ' * column}# {line}" for line in others)])
