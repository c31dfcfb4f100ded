"""Sentences of raw text, used as unlabelled examples of a task."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import pairwise

_END = re.compile(r"([.!?][\"')\]]*)\s+(?=[\"'(\[]*[A-Z0-9])")
_NEW_LINE = re.compile("\n")


def split_sentences(text: str, max_words: int = 100) -> Iterator[str]:
    """Split a text after . ! ? before a capital or digit, and at line ends; longer pieces every `max_words`. The rules
    are simple on purpose: a wrong split still gives text of the domain. No word is lost."""
    for piece in _END.sub(r"\1\n", text).split("\n"):
        words = piece.split()
        for start in range(0, len(words), max_words):
            yield " ".join(words[start : start + max_words])


def cut_sentences(text: str) -> list[str]:
    """Split a text at the same places, without `max_words`, into parts that keep their trailing white space."""
    ends = {match.end() for pattern in (_END, _NEW_LINE) for match in pattern.finditer(text)}
    return [text[start:end] for start, end in pairwise(sorted({0, *ends, len(text)}))]


def sample_sentences(texts: Iterable[str], most: int | None, seed: int) -> tuple[list[str], int]:
    """Sample distinct sentences of texts, in their order; also return the number of all sentences with repetitions.
    Sentences with the lowest hashes are drawn, so only the sample is in memory."""
    positions: dict[str, int] = {}
    drawn: list[tuple[int, str]] = []  # a heap: the first is dropped next
    total = 0
    for sentence in (sentence for text in texts for sentence in split_sentences(text)):
        total += 1
        if sentence in positions:
            continue
        if most is not None:
            entry = (-_rank(sentence, seed), sentence)
            if len(drawn) < most:
                heapq.heappush(drawn, entry)
            else:
                dropped = heapq.heappushpop(drawn, entry)[1]
                if dropped == sentence:
                    continue
                del positions[dropped]
        positions[sentence] = total
    return sorted(positions, key=positions.__getitem__), total


def _rank(sentence: str, seed: int) -> int:
    return int.from_bytes(blake2b(sentence.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")
