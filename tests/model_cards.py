"""The Python of a model card, run as printed."""

from __future__ import annotations

import io
import os
from contextlib import redirect_stdout
from pathlib import Path


def run_card(folder: Path) -> str:
    """What the Python of the card in a folder prints: run in this folder, with no names defined before it."""
    card = folder / "README.md"
    _, fence, code = card.read_text(encoding="utf-8").partition("```python\n")
    assert fence, card
    before, printed = Path.cwd(), io.StringIO()
    os.chdir(folder)
    try:
        with redirect_stdout(printed):
            exec(compile(code.partition("\n```")[0], str(card), "exec"), {})
    finally:
        os.chdir(before)
    return printed.getvalue()
