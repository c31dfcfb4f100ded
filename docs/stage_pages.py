"""MkDocs hook that generates two reference pages: the settings of the stages, and the public names."""

from __future__ import annotations

import ast
import io
import re
from argparse import ArgumentParser
from collections import defaultdict
from contextlib import redirect_stdout
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import domainbert
from domainbert.base.choices import choices_of, is_choice
from domainbert.base.fields import field_types
from domainbert.cli import main
from domainbert.runner.stage_table import STAGES, load_stage
from domainbert.settings.help import add_fields, format_help
from domainbert.settings.schema import groups_in

_SETTINGS = (
    "The output of `domainbert <stage> --help`: every setting with its type, range and default. Below the first stage\n"
    "with a choice of classes, such as `task`, are the settings of each class.\n"
)
_NAMES = (
    "All names of `from domainbert import ...`, sorted by package. Every example runs as a test.\n"
    "[From Python](../python.md) shows how the names work together.\n"
)


def stages_page() -> str:
    """Return the page in Markdown: a heading and a block for each command that `domainbert --help` lists."""
    names = re.findall(r"^  ([a-z-]+) +[A-Z]", _help("--help"), re.MULTILINE)
    sections, seen = [], set()
    for name in names:
        sections.append(f"## {name}\n\n```text\n{_help(name, '--help')}```\n")
        hints = field_types(load_stage(name).settings) if name in STAGES else {}
        for key, base in [(key, group) for key, hint in hints.items() for group in groups_in(hint) if is_choice(group)]:
            classes = [] if base in seen else [*choices_of(base)]
            seen.add(base)
            sections += [f"### {key}: {cls}\n\n```text\n{_help(name, f'--{key}.help', cls)}```\n" for cls in classes]
    return "\n".join(["# All settings\n", _SETTINGS, *sections])


def api_page() -> str:
    """Return the page in Markdown: the public names of `domainbert/__init__.pyi` by package, for mkdocstrings."""
    stub = ast.parse(Path(domainbert.__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    packages = defaultdict(list)
    for node in stub.body:
        if isinstance(node, ast.ImportFrom) and node.module is not None:
            packages[node.module.split(".")[1]] += [f"{node.module}.{alias.name}" for alias in node.names]
    sections = [f"## {title}\n\n" + "\n".join(_directive(name) for name in names) for title, names in packages.items()]
    return "\n".join(["# Public names\n", _NAMES, *sections])


def _directive(path: str) -> str:
    return f"::: {path}\n    options: {{show_root_full_path: false}}\n{_settings_of(path.rpartition('.')[2])}"


def _settings_of(name: str) -> str:
    """Return a block with the settings that a module or data module takes as keywords; "" for other names."""
    module = getattr(domainbert, name)
    parameter = signature(module).parameters.get("settings") if isinstance(module, type) else None
    if parameter is None:
        return ""
    settings = getattr(import_module(module.__module__), parameter.annotation.removesuffix(" | None"))
    parser = ArgumentParser(usage=f"settings of {name}, as keywords in Python and keys in YAML", add_help=False)
    add_fields(parser, settings)
    return f"\n```text\n{format_help(parser)}```\n"


def _help(*words: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        main([*words])
    return printed.getvalue()


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the files of the site."""
    from mkdocs.structure.files import File

    for name, page in (("stages", stages_page), ("api", api_page)):
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files
