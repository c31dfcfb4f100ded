"""The model card: README.md of a model folder."""

from __future__ import annotations

from collections.abc import Mapping


def model_card(title: str, summary: str, facts: Mapping[str, object], usage: str) -> str:
    """Markdown for a model folder: what the model is, a table of how it was made, a few lines of Python."""
    rows = "\n".join(f"| {name} | {value} |" for name, value in facts.items())
    return f"# {title}\n\n{summary}\n\n| | |\n|---|---|\n{rows}\n\n```python\n{usage}\n```\n"
