"""Griffe extension for the reference pages: doctests as code blocks, and a note at abstract methods."""

from __future__ import annotations

import re
from typing import Any

import griffe

_EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)  # in Markdown `>>>` would be a quotation


class DocstringNotes(griffe.Extension):
    """Puts each doctest into a fenced block, and marks the methods that a subclass must define."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object before it is parsed."""
        if obj.docstring is not None:
            text = _EXAMPLE.sub(r"```pycon\n\g<0>\n```", obj.docstring.value)
            obj.docstring.value = f"*Abstract.* {text}" if "abstractmethod" in obj.labels else text
