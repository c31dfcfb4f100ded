"""Count the words of a corpus of any size in one pass and in bounded memory.

Training and the vocabulary report need only the counts, so a corpus is read once. Strings between spaces are counted
first, because `str.split` is fast; only distinct strings are then cut into words.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Mapping

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from domainbert.tokenization.bert import encode_text

_MAX_DISTINCT = 250_000
_HASH_BITS = 64
_MOST_BYTES = 4_000_000_000  # trainers count pairs of pieces, at most one per byte, in 32 bits


class WordCounter:
    """Counts strings between spaces in a sample of documents. The sample does not depend on the order of the documents.

    The level of a document is the number of leading zeros of its hash: half of the documents have level 0, a quarter
    level 1, and so on. When the counted documents exceed `sample_bytes`, the lowest level is discarded, and later
    documents of this level are skipped. So the sample of a large corpus has between half of `sample_bytes` and
    `sample_bytes`, plus or minus a document. The highest level is never discarded: a single document may be larger.

    When one level has more than `max_distinct` distinct strings, at least the rarest half is discarded.
    """

    def __init__(self, sample_bytes: int, max_distinct: int = _MAX_DISTINCT) -> None:
        self.sample_bytes, self.max_distinct = sample_bytes, max_distinct
        self.documents_read = self.bytes_read = 0
        self.forgotten = 0  # occurrences of rare strings
        self._first_level = 0
        self._counts: dict[int, Counter[str]] = {}
        self._documents: Counter[int] = Counter()
        self._bytes: Counter[int] = Counter()

    @classmethod
    def of_languages(cls, counters: Mapping[str, WordCounter], shares: Mapping[str, float]) -> WordCounter:
        """Merge the counts of languages, scaled so that each language has its share of the bytes.

        No count is scaled down, unless the total would exceed 32 bits. Fractions are rounded up or down by a hash of
        the string, so that the shares are correct even if all strings are rare.
        """
        whole = min(_MOST_BYTES, max(counters[name].bytes / share for name, share in shares.items()))
        merged = cls(_MOST_BYTES)
        for name, counter in counters.items():
            merged.add_times(counter, shares[name] * whole / max(counter.bytes, 1))
        return merged

    def add_times(self, other: WordCounter, factor: float) -> None:
        """Add the counts of another sample, multiplied by `factor`; its documents and bytes are not multiplied."""
        self.documents_read += other.documents_read
        self.bytes_read += other.bytes_read
        self.forgotten += other.forgotten
        self._documents[0] += other.documents
        self._bytes[0] += other.bytes
        counts = self._counts.setdefault(0, Counter())
        for string, count in other.words(lambda string: [string]).items():
            times = math.floor(count * factor + _uniform(string))
            if times:
                counts[string] += times
            else:
                self.forgotten += count

    @property
    def documents(self) -> int:
        """Number of documents in the sample."""
        return self._documents.total()

    @property
    def bytes(self) -> int:
        """Number of UTF-8 bytes in the sample."""
        return self._bytes.total()

    def add(self, text: str) -> None:
        """Count a document if it belongs to the sample; an error if it has an unpaired surrogate."""
        encoded = encode_text(text)
        self.documents_read += 1
        self.bytes_read += len(encoded)
        level = _level(encoded)
        if level < self._first_level:
            return
        counts = self._counts.setdefault(level, Counter())
        counts.update(text.replace("\n", " ").split(" "))
        self._documents[level] += 1
        self._bytes[level] += len(encoded)
        if len(counts) > self.max_distinct:
            self._forget_rare(level)
        while self.bytes > self.sample_bytes and len(self._counts) > 1:
            self._forget_level()

    def words(self, cut: Callable[[str], list[str]]) -> Counter[str]:
        """Return the occurrences of each word in the sample; `cut` splits a string without spaces into words."""
        words: Counter[str] = Counter()
        for counts in self._counts.values():
            words.update(count_words(counts, cut))
        return words

    def _forget_rare(self, level: int) -> None:
        kept, least = self._counts[level], 1
        before = kept.total()
        while len(kept) > self.max_distinct // 2:
            least += 1
            kept = Counter({string: count for string, count in kept.items() if count >= least})
        self.forgotten += before - kept.total()
        self._counts[level] = kept

    def _forget_level(self) -> None:
        for table in (self._counts, self._documents, self._bytes):
            table.pop(self._first_level, None)
        self._first_level += 1


def _uniform(string: str) -> float:
    digest = hashlib.blake2b(string.encode(), digest_size=8, person=b"vocab shares").digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _level(encoded: bytes) -> int:
    # a personalised hash, independent of the hash that splits training and validation
    digest = hashlib.blake2b(encoded, digest_size=_HASH_BITS // 8, person=b"vocab sample").digest()
    return _HASH_BITS - int.from_bytes(digest, "big").bit_length()


def normalized_words(backend: Tokenizer) -> Callable[[str], list[str]]:
    """Return a function that cuts a string into words with the normalizer and pre-tokenizer of `backend`."""
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer

    def cut(string: str) -> list[str]:
        text = string if normalizer is None else normalizer.normalize_str(string)
        return [text] if pre_tokenizer is None else [word for word, _ in pre_tokenizer.pre_tokenize_str(text)]

    return cut


def plain_words() -> Callable[[str], list[str]]:
    """Return a function that cuts a string into words that do not depend on a tokenizer.

    These are the words of BERT's pre-tokenizer with case and accents kept, if they contain a letter or digit:
    punctuation is one piece in every vocabulary and would dilute a comparison.
    """
    pre_tokenize = BertPreTokenizer().pre_tokenize_str
    return lambda string: [word for word, _ in pre_tokenize(string) if any(map(str.isalnum, word))]


def count_words(strings: Mapping[str, int], cut: Callable[[str], list[str]]) -> Counter[str]:
    """Cut each string with `cut` and count the words, weighted by the count of the string."""
    words: Counter[str] = Counter()
    for string, count in strings.items():
        for word in cut(string):
            words[word] += count
    return words
