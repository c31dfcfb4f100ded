"""The alphabet that a text is written in, by the names that Unicode gives its letters."""

from __future__ import annotations

import unicodedata
from collections import Counter
from functools import lru_cache
from itertools import islice

_LETTERS = 200  # of a text that are looked at
_LEAST = 10  # that tell its alphabet
_TOGETHER = {"HIRAGANA": "CJK", "KATAKANA": "CJK", "IDEOGRAPHIC": "CJK"}  # Japanese is written in all of them


def alphabet_of(text: str) -> str | None:
    """The alphabet of most of a text's first letters, such as LATIN or CJK; None where there are few letters.

    >>> alphabet_of("환율이 오르는 오늘 내일: USD")
    'HANGUL'
    """
    letters = Counter(islice(filter(str.isalpha, text), _LETTERS))
    if letters.total() < _LEAST:
        return None
    found: Counter[str] = Counter()
    for letter, count in letters.items():
        found[_alphabet(letter)] += count
    return max(sorted(found), key=found.__getitem__)


@lru_cache(1 << 16)
def _alphabet(letter: str) -> str:
    name = unicodedata.name(letter, "UNNAMED").removeprefix("FULLWIDTH ").split()[0]
    return _TOGETHER.get(name, name)
