"""Sentences of CoNLL-U without the lines that are no words."""

from __future__ import annotations

import re
from collections.abc import Sequence

CONLLU_COLUMNS = 10  # columns; the first numbers the words
_NO_WORD = re.compile(r"\d+[-.]\d+\t")


def without_asides(sentence: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The lines of a sentence of CoNLL-U without what it has beside words: comments, multiword tokens, empty nodes; of
    another file as they are."""
    rows = [(number, line) for number, line in sentence if not line.startswith("#") or "\t" in line]
    if not rows or any(line.count("\t") + 1 != CONLLU_COLUMNS for _, line in rows):
        return sentence
    words = [(number, line) for number, line in rows if not _NO_WORD.match(line)]
    return words if words and count_up([line.partition("\t")[0] for _, line in words]) else sentence


def count_up(column: Sequence[str]) -> bool:
    """Whether a column numbers the words of a sentence: 1, 2, 3, ..."""
    return list(column) == [str(place) for place in range(1, len(column) + 1)]
