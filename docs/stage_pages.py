"""MkDocs hook that generates the page `reference/stages.md`: the output of `domainbert <stage> --help` per stage."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import Any

from domainbert.cli import main

_INTRODUCTION = "The output of `domainbert <stage> --help`: every setting with its type, range and default.\n"


def stages_page() -> str:
    """Return the page in Markdown: a heading and a block for each command that `domainbert --help` lists."""
    names = re.findall(r"^  ([a-z-]+) +[A-Z]", _help(), re.MULTILINE)
    sections = [f"## {name}\n\n```text\n{_help(name)}```\n" for name in names]
    return "\n".join(["# All settings\n", _INTRODUCTION, *sections])


def _help(*words: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        main([*words, "--help"])
    return printed.getvalue()


def on_files(files: Any, config: Any) -> Any:
    """Add the page to the files of the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "reference/stages.md", content=stages_page()))
    return files
