"""Copies of texts: texts with the same words, whatever their case, punctuation and white space."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Hashable, Sequence

from domainbert.labelled.items import PlainItem

_WORD = re.compile(r"\w+")
_MIN_CHARACTERS = 30  # of a text in which a copy is no chance, other than "Results:" or "Thank you."


def normal_words(text: str) -> list[str]:
    """Return the words of a text, so that copies of it have equal words: without case, punctuation, Unicode variants.

    >>> normal_words("A Naïve\u00a0copy, (2019)!")
    ['a', 'naïve', 'copy', '2019']
    """
    return _WORD.findall(unicodedata.normalize("NFKC", text).casefold())


def is_short(words: Sequence[str]) -> bool:
    """Whether a text has fewer than 30 letters and digits, so that another text may have the same words by chance."""
    return sum(map(len, words)) < _MIN_CHARACTERS


def copy_key(words: Sequence[str], item: PlainItem) -> Hashable:
    """Return a key that is equal for copies: the words of the item's text, and its marks (such as marked spans)."""
    return " ".join(words), item.marks
