"""Plain text for a terminal: scores, width in any script, and no control characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

_MAX_COLUMNS = 110


def printable(text: str) -> str:
    r"""Escape invisible and control characters as in a Python string.

    >>> printable("a\x1b[2J\u200db é 🍰")
    'a\\x1b[2J\\u200db é 🍰'
    """
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape", "surrogatepass").decode("ascii") for char in text
    )


def width(text: str) -> int:
    """Return how many columns a text takes on a terminal: 2 for a wide character (Chinese, emoji), 0 for a combining
    accent."""
    wide = sum(unicodedata.east_asian_width(char) in "WF" for char in text)
    return len(text) + wide - sum(unicodedata.combining(char) > 0 for char in text)


def paragraph(words: Iterable[str], indent: str = "") -> list[str]:
    """Wrap words to lines of at most 110 columns, each after `indent`, and return the lines; a longer word has its own
    line."""
    lines = [indent]
    for word in words:
        if width(lines[-1]) + width(word) > _MAX_COLUMNS and lines[-1] != indent:
            lines.append(indent)
        lines[-1] += f"{word} "
    return [line.rstrip() for line in lines if line.strip()]


def format_score(score: float | None, percent: bool, sign: str = "") -> str:
    """Format a share in percent with two decimals, or another score (`percent=False`) with four; None is "undefined".

    >>> format_score(0.8765, percent=True), format_score(0.8765, False, sign="+"), format_score(None, percent=True)
    ('87.65', '+0.8765', 'undefined')
    """
    if score is None:
        return "undefined"
    return f"{100 * score:{sign}.2f}" if percent else f"{score:{sign}.4f}"


def format_interval(bounds: Sequence[float] | None, percent: bool, sign: str = "") -> str:
    """Format a confidence interval as `[low, high]`, each bound as by `format_score`; empty for None."""
    if bounds is None:
        return ""
    low, high = (format_score(bound, percent, sign) for bound in bounds)
    return f"[{low}, {high}]"
