"""Sentences of raw text: the units of unlabelled text beside a task's own."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np

from domainbert.data.counter_random import permutation

_STREAM = 1 << 21  # of random numbers, apart from those of order, masking and dropout
_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+(?=[\"'(\[]*[A-Z0-9])|\n+")


def split_sentences(text: str, max_words: int = 100) -> Iterator[str]:
    """Cut a text after . ! ? where a capital or a digit follows, and at line ends; longer pieces every `max_words`.

    Rough by design: what is cut wrongly is still text of the domain. No word is lost.
    """
    for piece in _END.split(text):
        words = piece.split()
        for start in range(0, len(words), max_words):
            yield " ".join(words[start : start + max_words])


def sample_sentences(texts: Iterable[str], most: int | None, seed: int) -> tuple[list[str], int]:
    """The different sentences of texts, at most so many of them, drawn at random and in their order; and how many
    there are in all."""
    found = list(dict.fromkeys(sentence for text in texts for sentence in split_sentences(text)))
    if most is None or len(found) <= most:
        return found, len(found)
    chosen = np.sort(permutation(len(found), seed, _STREAM)[:most])
    return [found[place] for place in chosen.tolist()], len(found)
