"""A hook of MkDocs: the page `stages.md`, which is what `domainbert <stage> --help` prints for each stage."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from typing import Any

from domainbert.cli import main


def stages_page() -> str:
    """The page in Markdown, a heading and a block for each command that `domainbert --help` lists."""
    names = re.findall(r"^  ([a-z-]+) +[A-Z]", _help(), re.MULTILINE)
    sections = [f"## {name}\n\n```text\n{_help(name)}```\n" for name in names]
    return "\n".join(["# All settings\n", "What `domainbert <stage> --help` prints.\n", *sections])


def _help(*words: str) -> str:
    with redirect_stdout(io.StringIO()) as printed:
        main([*words, "--help"])
    return printed.getvalue()


def on_files(files: Any, config: Any) -> Any:
    """Add the page to those of the site."""
    from mkdocs.structure.files import File

    files.append(File.generated(config, "stages.md", content=stages_page()))
    return files
