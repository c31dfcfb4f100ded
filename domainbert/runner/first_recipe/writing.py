"""A recipe as YAML with comments, from a template."""

from __future__ import annotations

import dataclasses
import json
import re
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from domainbert.base.choices import as_plain, class_path
from domainbert.base.layout import printable
from domainbert.labelled.sets import Single, moved, paths_of
from domainbert.runner.first_recipe.sizes import Chosen
from domainbert.settings.yaml_files import dump_yaml
from domainbert.tasks.config import TaskConfig

_PLAIN = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+-]*")
_COLUMN, _WIDTH = 34, 120
_OURS = f"{__name__.partition('.')[0]}."


def recipe_text(facts: Mapping[str, Any]) -> str:
    """The YAML of a recipe, from the template beside this module and what its names stand for."""
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=False,  # YAML, whose strings `in_yaml` quotes
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["yaml"] = in_yaml
    environment.globals |= {"note": _noted, "comment": _comment}
    return environment.get_template("recipe.yaml.j2").render(facts)


def in_yaml(value: Any) -> str:
    """A plain value on one line of YAML; what is no simple word is in quotes, so that it is what it says."""
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {in_yaml(one)}' for key, one in value.items())}}}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(in_yaml, value))}]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and dump_yaml(value).partition("\n")[0] == value:
        return value
    if isinstance(value, float) and 0 < value < 1e-2:
        return re.sub(r"e-0?", "e-", f"{value:.0e}")
    return printable(json.dumps(value, ensure_ascii=False))  # U+0085 and the like: as in Python, so in YAML


def in_comment(text: str) -> str:
    """A text on one line of a comment: a line break in it, as of a path, becomes a space."""
    return printable(" ".join(text.split()))


def of_task(task: TaskConfig) -> Any:
    """A task as a YAML names it, with what is not as usual."""
    kind = type(task)
    name = kind.__name__ if kind.__module__.startswith(_OURS) else class_path(kind)
    changed = _changed(task)
    return {"class_path": name, "init_args": changed} if changed else name


def of_file(file: Single) -> Any:
    """A labelled file as a YAML names it."""
    found = moved(file, paths_of(file), [])
    return {key: value for key, value in found.items() if value} if isinstance(found, dict) else found


def _changed(value: Any) -> dict[str, Any]:
    """The fields of a dataclass that are not as they are by default."""
    usual, found = type(value)(), {}
    for field in dataclasses.fields(value):
        own, default = getattr(value, field.name), getattr(usual, field.name)
        if own != default:
            found[field.name] = _changed(own) if dataclasses.is_dataclass(own) else as_plain(own)
    return found


def _comment(name: str, text: str) -> str:
    """Facts that were found, as lines of comment below each other."""
    lines = textwrap.wrap(in_comment(text), _WIDTH - 14, break_on_hyphens=False)
    return "\n".join(f"#   {name if number == 0 else '':<10}{line}" for number, line in enumerate(lines))


def _noted(indent: int, key: str, chosen: Chosen) -> str:
    """A line of the YAML with its reason beside it, which goes on in lines below."""
    line = f"{' ' * indent}{key}: {in_yaml(chosen.value)}"
    column = max(_COLUMN, len(line) + 2)
    first, *more = textwrap.wrap(chosen.reason, _WIDTH - column - 2)
    return "\n".join([f"{line.ljust(column)}# {first}", *(f"{' ' * column}# {rest}" for rest in more)])
