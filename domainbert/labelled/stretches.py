"""Stretches of a text, in characters: entities, marked places, answers."""

from __future__ import annotations

import reprlib
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import accumulate
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.labelled.row_values import is_whole_number, shown

Stretch = tuple[int, int]
"""The first character, and the one after the last."""


def stretch_of(text: str, value: Mapping[str, Any]) -> Stretch:
    """The characters of a text that an object with `start` and `end` names, and perhaps quotes as its `text`.

    `DomainbertError` if these are no numbers, outside the text, or what stands there is something else.
    """
    start, end = (value.get(key, value.get(f"{key}_offset")) for key in ("start", "end"))
    if not is_whole_number(start) or not is_whole_number(end):
        expected = "expected numbers of characters (doccano calls them start_offset and end_offset)"
        raise DomainbertError(f"start {shown(start)}, end {shown(end)}; {expected}")
    if not 0 <= start < end <= len(text):
        raise DomainbertError(f"characters {start}-{end}; expected some of the {len(text)} of the text, end exclusive")
    own = value.get("text")
    if isinstance(own, str) and own != text[start:end]:
        found = f"characters {start}-{end} are {reprlib.repr(text[start:end])}, its text is {reprlib.repr(own)}"
        raise DomainbertError(f"{found}; expected the same (offsets count Unicode characters, not bytes)")
    return start, end


def words_inside(text: str, stretch: Stretch, words: Sequence[Stretch]) -> tuple[int, int]:
    """The words that a stretch of a text covers: the number of the first, and the number behind the last.

    `DomainbertError` if the stretch does not begin and end with words.
    """
    start, end = stretch
    inside = [number for number, word in enumerate(words) if word[0] < end and word[1] > start]
    ends = [words[number] for number in (*inside[:1], *inside[1:][-1:])]
    if inside and (ends[0][0], ends[-1][1]) == stretch:
        return inside[0], inside[-1] + 1
    there = ", ".join(map(partial(shown_stretch, text), ends)) or "some word"
    found = f"{shown_stretch(text, stretch)} is not on the borders of words"
    raise DomainbertError(f"{found}; expected it to begin and end as {there} does")


def shown_stretch(text: str, stretch: Stretch) -> str:
    """A stretch of a text for a message: `'Cash' (0-4)`."""
    return f"{reprlib.repr(text[slice(*stretch)])} ({stretch[0]}-{stretch[1]})"


def joined_words(words: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Words with single spaces between them, and the characters of each.

    >>> joined_words(["high", "growth"])
    ('high growth', [(0, 4), (5, 11)])
    """
    ends = accumulate(len(word) + 1 for word in words)
    return " ".join(words), [(end - 1 - len(word), end - 1) for word, end in zip(words, ends, strict=True)]
