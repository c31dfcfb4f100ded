"""Count the words of a corpus of any size in one pass and in bounded memory.

The counts are all that training and the vocabulary report need, so a corpus is read once. What is counted first are the
strings between spaces, because Python does that at the speed of C; only the distinct ones are then cut into words.
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
_MOST_BYTES = 4_000_000_000  # pairs of pieces, no more than bytes, are counted in 32 bits


class WordCounter:
    """Counts the strings between spaces in a sample of documents that is a pure function of the documents' text.

    A document's level is the number of zeros its hash begins with: half of all documents have level 0, a quarter level
    1, and so on. When the counted documents exceed `sample_bytes`, the lowest level is forgotten and its documents are
    passed over from there on. So the sample ends between a half and the whole of `sample_bytes` (all of a smaller
    corpus), give or take a document, and is the same in whatever order the documents come. The highest level is never
    forgotten: where a single document is larger than `sample_bytes`, that is the sample.

    Memory is bounded too: when the distinct strings of one level exceed `max_distinct`, its rarest are forgotten, half
    or more.
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
        """The counts of all languages together, multiplied so that each has its share of the bytes.

        The bytes are as many as let no count shrink, but no more than can be counted in 32 bits. What is not a whole
        number is rounded up or down by a hash of the string, so that the shares are right however rare the strings are.
        """
        whole = min(_MOST_BYTES, max(counters[name].bytes / share for name, share in shares.items()))
        merged = cls(_MOST_BYTES)
        for name, counter in counters.items():
            merged.add_times(counter, shares[name] * whole / max(counter.bytes, 1))
        return merged

    def add_times(self, other: WordCounter, factor: float) -> None:
        """Add the counts of another sample, multiplied; its documents and bytes count as they are."""
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
        """Documents in the sample."""
        return self._documents.total()

    @property
    def bytes(self) -> int:
        """Bytes of UTF-8 in the sample."""
        return self._bytes.total()

    def add(self, text: str) -> None:
        """Count one document, if it belongs to the sample; an error if it holds half a surrogate pair."""
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
        """Occurrences of each word in the sample; `cut` gives the words of a string that holds no space."""
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
    # a person string, so that this hash has nothing to do with the one that splits train from validation
    digest = hashlib.blake2b(encoded, digest_size=_HASH_BITS // 8, person=b"vocab sample").digest()
    return _HASH_BITS - int.from_bytes(digest, "big").bit_length()


def normalized_words(backend: Tokenizer) -> Callable[[str], list[str]]:
    """Cuts a string into words as `backend` does before it looks for pieces: cleaned, lowercased or not, cut."""
    normalizer, pre_tokenizer = backend.normalizer, backend.pre_tokenizer

    def cut(string: str) -> list[str]:
        text = string if normalizer is None else normalizer.normalize_str(string)
        return [text] if pre_tokenizer is None else [word for word, _ in pre_tokenizer.pre_tokenize_str(text)]

    return cut


def plain_words() -> Callable[[str], list[str]]:
    """Cuts a string into words that are the same for any two tokenizers.

    They are what BERT's pre-tokenizer finds in the text as it stands (case and accents kept), as far as they hold a
    letter or a digit: punctuation is one piece in every vocabulary and would only dilute a comparison.
    """
    pre_tokenize = BertPreTokenizer().pre_tokenize_str
    return lambda string: [word for word, _ in pre_tokenize(string) if any(map(str.isalnum, word))]


def count_words(strings: Mapping[str, int], cut: Callable[[str], list[str]]) -> Counter[str]:
    """Cut each string with `cut` and count the words, each as often as its string occurs."""
    words: Counter[str] = Counter()
    for string, count in strings.items():
        for word in cut(string):
            words[word] += count
    return words
