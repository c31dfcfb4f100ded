"""Split raw text into sentences, used as unlabelled examples of a task."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, pairwise

_SENTENCE_END = re.compile(r"[.!?][\"')\]]*\s+(?=[\"'(\[]*([^\W_]))")
_NEW_LINE = re.compile("\n")


def split_sentences(text: str, max_words: int = 100) -> Iterator[str]:
    """Yield the sentences of a text: split after . ! ? before a capital or digit, at line ends, and after `max_words`.

    White space becomes single spaces; no word is lost. The rules are simple, because a wrong split still gives text of
    the domain.
    """
    for sentence in cut_sentences(text):
        words = sentence.split()
        for start in range(0, len(words), max_words):
            yield " ".join(words[start : start + max_words])


def cut_sentences(text: str) -> list[str]:
    """Return the sentences of a text as in `split_sentences`, but of any length and with their trailing white space:
    joined, they are the text."""
    line_ends = {match.end() for match in _NEW_LINE.finditer(text)}
    stops = _SENTENCE_END.finditer(text)  # group 1: the first letter or digit of the next sentence
    sentence_ends = {match.end() for match in stops if match[1].isupper() or match[1].isdigit()}
    borders = sorted({0, *line_ends, *sentence_ends, len(text)})
    return [text[start:end] for start, end in pairwise(borders)]


def sample_sentences(texts: Iterable[str], max_sentences: int | None, seed: int) -> tuple[list[str], int]:
    """Sample at most `max_sentences` distinct sentences of texts; None: all.

    The sentences with the lowest hashes are drawn, so only the sample is in memory.

    Returns:
        The sample in the order of the texts, and the number of all sentences, repetitions included.
    """
    positions: dict[str, int] = {}  # of the sampled sentences
    drawn: list[tuple[int, str]] = []  # heap of (-hash, sentence): the first is dropped next
    total = 0
    for sentence in chain.from_iterable(map(split_sentences, texts)):
        total += 1
        if sentence in positions:
            continue
        if max_sentences is not None:
            entry = (-_sample_hash(sentence, seed), sentence)
            if len(drawn) < max_sentences:
                heapq.heappush(drawn, entry)
            else:
                _, dropped = heapq.heappushpop(drawn, entry)  # the sentence with the highest hash
                if dropped == sentence:
                    continue
                del positions[dropped]
        positions[sentence] = total
    return sorted(positions, key=positions.__getitem__), total


def _sample_hash(sentence: str, seed: int) -> int:
    return int.from_bytes(blake2b(sentence.encode(), digest_size=8, key=seed.to_bytes(8, "little")).digest(), "little")
