"""Character ranges of a text: entities, marked entities, answers."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.labelled.row_values import is_whole_number, shown

Stretch = tuple[int, int]
"""Character range of a text: `(start, end)`, `end` exclusive."""


def read_char_span(text: str, value: Mapping[str, Any]) -> Stretch:
    """Return the offsets `start` and `end` of a JSON object (doccano: `start_offset`, `end_offset`), which may have the
    characters as `text`."""
    start, end = (value.get(key, value.get(f"{key}_offset")) for key in ("start", "end"))
    if not is_whole_number(start) or not is_whole_number(end):
        expected = "character offsets under these keys (start_offset and end_offset in doccano)"
        raise DomainbertError(found=f"start {shown(start)} and end {shown(end)}", expected=expected)
    if not 0 <= start < end <= len(text):
        found = f"start {start}, end {end} in a text of {len(text)} characters"
        raise DomainbertError(found, expected=f"0 <= start < end <= {len(text)}")
    quote = value.get("text")
    if isinstance(quote, str) and quote != text[start:end]:
        raise text_mismatch(start, end, text[start:end], quote)
    return start, end


def text_mismatch(start: int, end: int, actual: str, annotated: str) -> DomainbertError:
    """Return the error for an annotation whose text differs from the characters at its offsets."""
    found = f"characters {start}-{end} are {reprlib.repr(actual)}, but the annotation has {reprlib.repr(annotated)}"
    expected = "the same text: correct the offsets, which count Unicode characters, not bytes"
    return DomainbertError(found, expected=expected)


def strip_span(text: str, start: int, end: int) -> Stretch:
    """Return a character range of a text without the white space at its ends."""
    inside = text[start:end]
    first = start + len(inside) - len(inside.lstrip())
    return first, first + len(inside.strip())


def words_inside(text: str, stretch: Stretch, words: Sequence[Stretch]) -> tuple[int, int]:
    """Return the index of the first word in a character range, and of the last plus one; `words` are the ranges of all.

    Raise `DomainbertError` if `stretch` does not begin and end at word boundaries.
    """
    start, end = stretch
    inside = [index for index, word in enumerate(words) if word[0] < end and word[1] > start]
    first_and_last = list(dict.fromkeys([words[inside[0]], words[inside[-1]]])) if inside else []  # may be one word
    if inside and (first_and_last[0][0], first_and_last[-1][1]) == stretch:
        return inside[0], inside[-1] + 1
    nearest = " to ".join(format_char_span(text, word) for word in first_and_last) or "at least one"
    found = f"{format_char_span(text, stretch)} is not at word boundaries"
    raise DomainbertError(found, expected=f"whole words: {nearest}")


def format_char_span(text: str, stretch: Stretch) -> str:
    """Return a character range as text for a message: `'Cash' (0-4)`."""
    return f"{reprlib.repr(text[slice(*stretch)])} ({stretch[0]}-{stretch[1]})"


def join_words(words: Sequence[str]) -> tuple[str, list[Stretch]]:
    """Return the words joined by spaces, and the character range of each word.

    >>> join_words(["high", "growth"])
    ('high growth', [(0, 4), (5, 11)])
    """
    ends = accumulate(len(word) + 1 for word in words)  # after the space that follows each word
    return " ".join(words), [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
