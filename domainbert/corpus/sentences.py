"""Split raw text into sentences, used as unlabelled examples of a task."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import chain, pairwise

# . ! ? also of Hindi and Arabic
_SENTENCE_END = re.compile(r"[.!?\u0964\u061f\u06d4][\"')\]]*\s+(?=[\"'(\[]*([^\W_]))")
_WIDE_END = re.compile("[\u3002\uff01\uff1f][\u300d\u300f\u201d\u2019\uff09]*\\s*")  # of Chinese and Japanese
_WORD = re.compile(r"\S+\s*")
_NEW_LINE = re.compile("\n")


def split_sentences(text: str, max_words: int = 100) -> Iterator[str]:
    """Yield the sentences of a text: split after . ! ? before a letter that is not lower case or a digit, at line ends,
    and after `max_words`.

    White space becomes single spaces; no word is lost. The rules are simple, because a wrong split still gives text of
    the domain.
    """
    yield from filter(None, (" ".join(sentence.split()) for sentence in cut_sentences(text, max_words)))


def cut_sentences(text: str, max_words: int = 100) -> list[str]:
    """Return the sentences of a text as in `split_sentences`, but with their trailing white space: joined, they are the
    text."""
    line_ends = {match.end() for match in _NEW_LINE.finditer(text)}
    stops = _SENTENCE_END.finditer(text)  # group 1: the first letter or digit of the next sentence
    sentence_ends = {match.end() for match in stops if not match[1].islower()}
    wide_ends = {match.end() for match in _WIDE_END.finditer(text)}
    borders = sorted({0, *line_ends, *sentence_ends, *wide_ends, len(text)})
    sentences = (text[start:end] for start, end in pairwise(borders))
    return [part for sentence in sentences for part in _cut_words(sentence, max_words)]


def _cut_words(sentence: str, max_words: int) -> list[str]:
    """Return the parts of a sentence of at most `max_words` words."""
    starts = [match.start() for match in _WORD.finditer(sentence)][::max_words]
    if len(starts) < 2:
        return [sentence]
    return [sentence[start:end] for start, end in pairwise([0, *starts[1:], len(sentence)])]


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
