"""MkDocs hook that generates two reference pages: the settings of the stages, and the public names."""

from __future__ import annotations

import ast
import io
import re
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import domainbert
from domainbert.cli import main

_SETTINGS = "The output of `domainbert <stage> --help`: every setting with its type, range and default.\n"
_NAMES = (
    "All names of `from domainbert import ...`, sorted by package. Every example runs as a test.\n"
    "[From Python](../python.md) shows how the names work together.\n"
)


def stages_page() -> str:
    """Return the page in Markdown: a heading and a block for each command that `domainbert --help` lists."""
    names = re.findall(r"^  ([a-z-]+) +[A-Z]", _help(), re.MULTILINE)
    sections = [f"## {name}\n\n```text\n{_help(name)}```\n" for name in names]
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


def _directive(name: str) -> str:
    return f"::: {name}\n    options: {{show_root_full_path: false}}\n"


def _help(*words: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        main([*words, "--help"])
    return printed.getvalue()


def on_files(files: Any, config: Any) -> Any:
    """Add the pages to the files of the site."""
    from mkdocs.structure.files import File

    for name, page in (("stages", stages_page), ("api", api_page)):
        files.append(File.generated(config, f"reference/{name}.md", content=page()))
    return files
