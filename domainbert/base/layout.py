"""Plain text for a terminal: columns that stand below each other, whatever letters are in them, and nothing that acts
on the terminal."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

_COLUMNS = 110


def printable(text: str) -> str:
    r"""A text in which what cannot be seen, or would move the cursor, is spelt as in Python.

    >>> printable("a\x1b[2J\u200db é 🍰")
    'a\\x1b[2J\\u200db é 🍰'
    """
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape", "surrogatepass").decode("ascii") for one in text
    )


def width(text: str) -> int:
    """The columns that a text takes on a terminal: two for a wide character, as of Chinese or an emoji, none for an
    accent that stands by itself."""
    wide = sum(unicodedata.east_asian_width(one) in "WF" for one in text)
    return len(text) + wide - sum(unicodedata.combining(one) > 0 for one in text)


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Lines of rows, the first of which names the columns; columns are as wide as their widest cell."""
    widths = [max(map(width, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(map(_padded, row, widths)).rstrip() for row in rows]


def paragraph(words: Iterable[str], indent: str = "") -> list[str]:
    """Words with a space between them in lines of at most 110 columns, unless a word is longer."""
    lines = [indent]
    for word in words:
        if width(lines[-1]) + width(word) > _COLUMNS and lines[-1] != indent:
            lines.append(indent)
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines if line.strip()]


def _padded(text: str, columns: int) -> str:
    return text + " " * (columns - width(text))
