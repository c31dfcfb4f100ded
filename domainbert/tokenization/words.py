"""Count the words of a corpus of any size in one pass and in bounded memory.

Training and the vocabulary report need only the counts, so a corpus is read once. Texts are cut before white space, and
the strings are counted; only distinct strings are then split into words.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer
from tokenizers.pre_tokenizers import BertPreTokenizer

from domainbert.base.errors import HALF_SURROGATE, UNICODE, DomainbertError

# cut before a space or line break that follows other text: every pre-tokenizer begins a pre-token there. White space
# is not cut, because its pre-tokens in byte-level BPE depend on its length and on the text after it
_STRING = re.compile(r"\s+\S*(?:[^\S \n]\s*\S*)*")
_MAX_DISTINCT = 250_000  # strings of a level
_MAX_LOST_SHARE = 1 / 3  # of the occurrences of a level, by discarding rare strings
_HASH_BITS = 64
_MAX_UNUSED_IDS = 100_000  # a list of the vocabulary has an item for each id
_MAX_GROWTH = 1_000  # characters that a normalizer may write for one
_MAX_BYTES = 4_000_000_000  # trainers count pairs of pieces, at most one per byte, in 32 bits


class WordCounter:
    """Counts strings, each with the white space before it, in a sample of documents. The sample does not depend on the
    order of the documents.

    A space is added to a text that does not begin with one, as in byte-level BPE. A text of only white space has no
    strings.

    The level of a document is the number of leading zeros of its hash: half of the documents have level 0, a quarter
    level 1, and so on. When the counted documents exceed `sample_bytes`, the lowest level is discarded, and later
    documents of this level are skipped. So the sample of a large corpus has between half of `sample_bytes` and
    `sample_bytes`, plus or minus a document. The highest level is never discarded: a single document may be larger.

    When one level has more than `max_distinct` distinct strings, at least the rarest half is discarded, unless this
    would lose more than a third of their occurrences: scripts without spaces have few strings that occur twice. Then
    this level and all lower levels are discarded, and the sample is smaller.
    """

    def __init__(self, sample_bytes: int, max_distinct: int = _MAX_DISTINCT) -> None:
        self.sample_bytes, self.max_distinct = sample_bytes, max_distinct
        self.documents_read = self.bytes_read = 0  # of all documents, also outside the sample
        self.forgotten = 0  # occurrences of discarded rare strings
        self._lowest_level = 0  # of the sample
        self._counts: dict[int, Counter[str]] = {}  # by level: occurrences of each string
        self._documents: Counter[int] = Counter()  # by level: number of documents
        self._bytes: Counter[int] = Counter()  # by level

    @classmethod
    def from_languages(cls, counters: Mapping[str, WordCounter], shares: Mapping[str, float]) -> WordCounter:
        """Return the merged counts of languages, scaled so that each language has its share of the bytes.

        No count is scaled down, unless the total would exceed 32 bits. Fractions are rounded up or down by a hash of
        the string, so that the shares are correct even if all strings are rare.
        """
        total_bytes = min(_MAX_BYTES, max(counters[name].bytes / share for name, share in shares.items()))
        merged = cls(_MAX_BYTES)
        for name, counter in counters.items():
            merged.add_scaled(counter, shares[name] * total_bytes / max(counter.bytes, 1))
        return merged

    def add_scaled(self, other: WordCounter, factor: float) -> None:
        """Add the counts of another sample, multiplied by `factor`; add its numbers of documents and bytes as they
        are."""
        self.documents_read += other.documents_read
        self.bytes_read += other.bytes_read
        self.forgotten += other.forgotten
        level = 0  # the only level of a merged counter
        self._documents[level] += other.documents
        self._bytes[level] += other.bytes
        counts = self._counts.setdefault(level, Counter())
        for string, count in other.words(split=lambda string: [string]).items():  # whole strings
            times = math.floor(count * factor + _uniform_hash(string))  # rounded at random, correct on average
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
        """Count a document if it belongs to the sample: its level, by the hash of the text, is at least the lowest
        level of the sample.

        Drop rare strings of its level if there are too many, and the lowest levels if the sample is too large.
        """
        encoded = encode_text(text)
        self.documents_read += 1
        self.bytes_read += len(encoded)
        level = _level(encoded)
        if level < self._lowest_level:
            return
        counts = self._counts.setdefault(level, Counter())
        if text.strip():  # the first word is counted with a space before it, as the other words
            counts.update(_STRING.findall(text if text.startswith(" ") else f" {text}"))
        self._documents[level] += 1
        self._bytes[level] += len(encoded)
        if len(counts) > self.max_distinct:
            self._drop_strings(level)
        while self.bytes > self.sample_bytes and len(self._counts) > 1:
            self._drop_lowest_level()

    def words(self, split: Callable[[str], list[str]]) -> Counter[str]:
        """Return the occurrences of each word in the sample; `split` splits a string into words. The string begins with
        white space."""
        words: Counter[str] = Counter()
        for counts in self._counts.values():
            words.update(count_words(counts, split))
        return words

    def _drop_strings(self, level: int) -> None:
        """Discard the strings of a level that occur once, then twice, and so on, until at most half of `max_distinct`
        remain; or the level and all lower levels, if these strings have too many occurrences."""
        counts = self._counts[level]
        total, min_count = counts.total(), 1
        while len(counts) > self.max_distinct // 2:
            min_count += 1
            counts = Counter({string: count for string, count in counts.items() if count >= min_count})
        lost = total - counts.total()
        if lost > _MAX_LOST_SHARE * total and level < max(self._counts):
            while self._lowest_level <= level:
                self._drop_lowest_level()
        else:
            self.forgotten += lost
            self._counts[level] = counts

    def _drop_lowest_level(self) -> None:
        # the lowest level has about half of the sample
        for table in (self._counts, self._documents, self._bytes):
            table.pop(self._lowest_level, None)
        self._lowest_level += 1


def _uniform_hash(string: str) -> float:
    digest = hashlib.blake2b(string.encode(), digest_size=8, person=b"vocab shares").digest()
    return (int.from_bytes(digest, "big") >> 11) / 2**53


def _level(encoded: bytes) -> int:
    """Return the level of a document, given as UTF-8: the number of leading zero bits of its hash. Half of the
    documents have level 0, a quarter level 1, and so on."""
    # a personalised hash, independent of the hash that splits training and validation
    digest = hashlib.blake2b(encoded, digest_size=_HASH_BITS // 8, person=b"vocab sample").digest()
    return _HASH_BITS - int.from_bytes(digest, "big").bit_length()


def normalized_words(backend: Tokenizer) -> Callable[[str], list[str]]:
    """Return a function that cuts a string into words with the normalizer and pre-tokenizer of `backend`."""
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer

    def split(string: str) -> list[str]:
        text = string if normalizer is None else normalizer.normalize_str(string)
        return [text] if pre_tokenizer is None else [word for word, _ in pre_tokenizer.pre_tokenize_str(text)]

    return split


def plain_words() -> Callable[[str], list[str]]:
    """Return a function that cuts a string into words that do not depend on a tokenizer.

    These are the words of BERT's pre-tokenizer with case and accents kept, if they contain a letter or digit:
    punctuation is one piece in every vocabulary and would dilute a comparison.
    """
    pre_tokenize = BertPreTokenizer().pre_tokenize_str

    def split(string: str) -> list[str]:
        return [word for word, _ in pre_tokenize(string) if any(map(str.isalnum, word))]

    return split


def count_words(strings: Mapping[str, int], split: Callable[[str], list[str]]) -> Counter[str]:
    """Return the occurrences of each word of `strings`, given with their occurrences; `split` returns their words."""
    words: Counter[str] = Counter()
    for string, count in strings.items():
        for word in split(string):
            words[word] += count
    return words


def check_unicode(texts: Iterable[str]) -> None:
    """Raise `DomainbertError` if a text has an unpaired surrogate, and so cannot be written as UTF-8."""
    for text in texts:
        encode_text(text)


def encode_text(text: str) -> bytes:
    """Return a text as UTF-8. Raise `DomainbertError` for an unpaired surrogate (JSON's "\\ud800"): `tokenizers`
    rejects it."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        excerpt = ascii(text[max(error.start - 20, 0) : error.start + 20])
        raise DomainbertError(f"the text {excerpt} {HALF_SURROGATE}", expected=UNICODE) from error


def check_size(folder: Path, backend: Tokenizer) -> None:
    """Raise `DomainbertError` for ids far beyond the number of entries, or a normalizer that multiplies texts."""
    ids, normalizer = backend.get_vocab(with_added_tokens=True).values(), backend.normalizer
    if (highest := max(ids, default=0)) > len(ids) + _MAX_UNUSED_IDS:
        raise DomainbertError(
            file=folder, found=f"the id {highest:,}", expected=f"ids up to about {len(ids):,}, the entries"
        )
    if normalizer and (growth := _growth(json.loads(normalizer.__getstate__()))) > _MAX_GROWTH:
        found = f"a normalizer that may write {growth:,} characters for one"
        raise DomainbertError(found=found, file=folder, expected=f"at most {_MAX_GROWTH:,}")


def _growth(normalizer: Mapping[str, Any]) -> int:
    """Return how many characters the replacements of a normalizer, given as JSON, may write for one character."""
    match normalizer:
        case {"normalizers": steps}:
            return math.prod(map(_growth, steps))
        case {"pattern": pattern, "content": content}:
            # a regular expression, like an empty string, may also match between two characters
            return max(1, len(content) + (not pattern.get("String")))
        case {"precompiled_charsmap": charsmap}:  # the size of a trie, the trie, and the replacements as C strings
            data = base64.b64decode(charsmap)
            return max(map(len, data[4 + int.from_bytes(data[:4], "little") :].split(b"\0")))
    return 1
