"""Comparison of corpora for a task: how well the same number of words of each corpus predicts the text of the task."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import clean, read_documents
from domainbert.corpus.ngrams import words_of_text

WORDS = 5_000_000
"""Maximum number of words read from each corpus."""

_Z_95 = 1.959964  # a normal distribution has 95 % of its mass within this number of standard deviations

UNKNOWN = 2.0**-20
"""Probability of a particular unknown word, given that the word is unknown."""

_WIDTH = 1 << 32  # id of a bigram: first word id * _WIDTH + second word id

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


def compare_corpora(
    corpora: Mapping[str, CorpusConfig],
    texts: Iterable[str],
    most_words: int = WORDS,
    max_characters: int | None = None,
) -> dict[str, Any]:
    """Return how well each corpus predicts the texts of a task, for `check.json`; the best corpus comes first.

    The same number of words is taken from each corpus: `most_words`, or the size of the smallest corpus. The sample
    is the training documents with the lowest hashes, so it does not depend on the order of the files, and memory is
    bounded. `max_characters` limits how much of each corpus is read (see `Excerpt`).

    Returns:
        `words` of each corpus, `task_words`, `task_texts`, and for each of the `corpora` `bits_per_word` (see
        `WordModel`), `unknown_share` of the task's words, `seen_pairs_share` of its word bigrams, and
        `above_nearest`: the difference in `bits_per_word` to the best corpus with its 95 % `interval`, which covers
        the sampling of the task's texts; None for the best corpus.

    Raises:
        DomainbertError: a corpus cannot be read, or a corpus or the texts have no words.
    """
    task = [words for text in texts if (words := words_of_text(clean(text).text))]
    if not task:
        raise DomainbertError("labelled: the labelled texts have no words; expected at least one word")
    samples = {name: sample_documents(config, most_words, name, max_characters) for name, config in corpora.items()}
    size = min(most_words, *(_count_words(name, sample) for name, sample in samples.items()))
    predictions = {name: _predict_texts(sample, size, task) for name, sample in samples.items()}
    names = sorted(predictions, key=lambda name: sum(text.bits for text in predictions[name]))  # the best first
    best = predictions[names[0]]
    return {
        "words": size,
        "task_words": sum(map(len, task)),
        "task_texts": len(task),
        "corpora": {name: _prediction_statistics(predictions[name], best) for name in names},
    }


def sample_documents(corpus: CorpusConfig, most_words: int, name: str, max_characters: int | None = None) -> list[str]:
    """Return the training documents with the lowest hashes, in that order, until they have `most_words` words in total.

    All training documents of a smaller corpus are returned. `name` is the name of the corpus, for the
    progress line. Only documents that can still enter the sample are split into words.
    """
    heap: list[tuple[int, str, int]] = []  # (-hash, text, number of words): the highest hash comes first
    total_words = 0
    with Progress(f"fit: read {name}") as progress:
        for document in read_documents(corpus, max_characters=max_characters):
            progress.advance()
            negative_hash = -_sample_hash(document.text)
            is_full = total_words >= most_words
            if document.split != "train" or (is_full and negative_hash <= heap[0][0]):
                continue
            num_words = len(words_of_text(document.text))
            heapq.heappush(heap, (negative_hash, document.text, num_words))
            total_words += num_words
            while total_words - heap[0][2] >= most_words:  # enough words without the document of the highest hash
                total_words -= heapq.heappop(heap)[2]
    return [text for _, text, _ in sorted(heap, reverse=True)]  # reverse: the hashes are negative


def _first_words(texts: Iterable[str], num_words: int) -> Iterator[list[str]]:
    """Yield the words of each text until `num_words` words are reached; the last text is truncated."""
    for text in texts:
        if num_words <= 0:
            return
        words = words_of_text(text)[:num_words]
        num_words -= len(words)
        yield words


def format_corpus_fit(facts: Mapping[str, Any]) -> str:
    """Format the result of `compare_corpora` for a terminal: two lines of heading, then one line per corpus.

    The line of each corpus except the best ends with `above_nearest` and its interval.
    """
    lines = [
        f"the task's {facts['task_words']:,} words, predicted from {facts['words']:,} words of each corpus:",
        "bits a word  unknown  pairs seen  corpus",
    ]
    for name, corpus in facts["corpora"].items():
        shares = f"{100 * corpus['unknown_share']:>6.2f} % {100 * corpus['seen_pairs_share']:>9.2f} %"
        line = f"{corpus['bits_per_word']:>11.2f} {shares}  {name}"
        if excess := corpus["above_nearest"]:
            line += "  {:+.2f} [{:.2f}, {:.2f}]".format(excess["bits_per_word"], *excess["interval"])
        lines.append(line)
    return "\n".join(lines)


def _sample_hash(text: str) -> int:
    # the argument `person` makes this hash independent of the hash that splits train from validation
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"fit sample").digest(), "big")


def _count_words(name: str, sample: Iterable[str]) -> int:
    """Return the number of words in a sample of the corpus `name`; raise `DomainbertError` if there are none."""
    num_words = sum(len(words_of_text(text)) for text in sample)
    if not num_words:
        raise DomainbertError(f"corpus {name!r}: the training documents contain no words; expected at least one word")
    return num_words


def _predict_texts(sample: Iterable[str], num_words: int, task: Sequence[Sequence[str]]) -> list[TextPrediction]:
    """Predict the texts of a task (lists of words) with a model of the first `num_words` words of a sample."""
    model = WordModel(_first_words(sample, num_words))
    return [model.predict(words) for words in task]


def _prediction_statistics(predictions: Sequence[TextPrediction], nearest: Sequence[TextPrediction]) -> dict[str, Any]:
    """Return the values of a corpus in the result of `compare_corpora`.

    `predictions` has, for each text, how well a bigram model of the corpus predicts it; `nearest` has the same for the
    corpus that predicts the texts best.
    """
    num_words = sum(text.words for text in predictions)
    num_pairs = num_words - len(predictions)  # a text of n words has n - 1 bigrams
    return {
        "bits_per_word": sum(text.bits for text in predictions) / num_words,
        "unknown_share": sum(text.unknown for text in predictions) / num_words,
        "seen_pairs_share": sum(text.seen_pairs for text in predictions) / max(num_pairs, 1),
        "above_nearest": None if predictions is nearest else _excess_bits(predictions, nearest),
    }


def _excess_bits(predictions: Sequence[TextPrediction], best: Sequence[TextPrediction]) -> dict[str, Any]:
    """Return the difference in bits per word to `best`, and its 95 % interval by the variance of a ratio (Cochran 1977,
    section 6.4)."""
    bits = np.array([text.bits - best_text.bits for text, best_text in zip(predictions, best, strict=True)])
    words = np.array([text.words for text in predictions])
    excess = float(bits.sum() / words.sum())
    standard_error = float(np.sqrt(((bits - excess * words) ** 2).sum()) / words.sum())
    margin = _Z_95 * standard_error
    return {"bits_per_word": excess, "interval": [excess - margin, excess + margin]}


@dataclass(frozen=True)
class TextPrediction:
    """How well a `WordModel` predicts a text."""

    words: int  # number of words
    bits: float  # code length: sum of -log2 P over the words
    unknown: int
    """Number of words that do not occur in the corpus."""
    seen_pairs: int
    """Number of bigrams, out of `words - 1`, that occur in the corpus."""


class WordModel:
    """Bigram language model of words with interpolated Kneser-Ney smoothing.

    Each document is a list of words, and bigrams do not cross documents. With c the counts in the corpus and N the
    number of distinct words at a position (`*`), the probability of w after v is

        P(w | v) = max(c(v w) - d, 0) / c(v *) + d N(v *) / c(v *) * Q(w)

        Q(w) = max(N(* w) - e, 0) / N(* *) + e N(distinct w after a word) / N(* *) * U

    (Chen and Goodman 1999, "An empirical study of smoothing techniques for language modeling", section 2.7): Q(w) is
    high if w follows many distinct words, not if w is frequent. After an unknown word v, P is Q. The discounts d (of
    bigrams) and e (of second words) are n1 / (n1 + 2 n2), where n1 and n2 are the numbers of items counted once and
    twice (Ney, Essen and Kneser 1994), with 1 added to n1 and 1/2 to n2. The first word of a text has the unigram
    probability, discounted in the same way. U = 2**-20 is the probability of an unknown word within the discounted
    mass, as in a vocabulary of a million words. So an unknown word costs 20 bits plus the bits of that mass.
    """

    def __init__(self, documents: Iterable[Sequence[str]]) -> None:
        self._ids: dict[str, int] = {}
        word_ids = [
            np.array([self._ids.setdefault(word, len(self._ids)) for word in doc], np.int64) for doc in documents
        ]
        bigrams, counts = np.unique(_concatenate(map(_bigram_ids, word_ids)), return_counts=True)
        first, second = np.divmod(bigrams, _WIDTH)  # word ids of each distinct bigram
        size = len(self._ids) + 1  # the last word id is for unknown words, which have no count
        # a sentinel above all bigram ids, so that every index from `searchsorted` in `predict` is valid
        self._bigrams, self._counts = np.append(bigrams, np.iinfo(np.int64).max), np.append(counts, 0)
        self._tokens = np.bincount(first, counts, size)  # c(v *): bigrams that begin with each word v
        self._types = np.bincount(first, minlength=size)  # N(v *): distinct bigrams that begin with each word v
        self._discount = discount(counts)
        self._unigram = _discounted(np.bincount(_concatenate(word_ids), minlength=size))  # P of the first word
        self._continuation = _discounted(np.bincount(second, minlength=size))  # Q, see `WordModel`

    def predict(self, words: Sequence[str]) -> TextPrediction:
        """Return the code length of a text in bits, its number of unknown words, and its number of known bigrams."""
        unknown_id = len(self._ids)
        ids = np.array([self._ids.get(word, unknown_id) for word in words], np.int64)
        bigrams = _bigram_ids(ids)
        indices = np.searchsorted(self._bigrams, bigrams)
        counts = np.where(self._bigrams[indices] == bigrams, self._counts[indices], 0)
        probabilities = np.concatenate([self._unigram[ids[:1]], self._conditional(ids[:-1], ids[1:], counts)])
        bits = -float(np.log2(probabilities).sum())
        unknown, seen_pairs = int((ids == unknown_id).sum()), int((counts > 0).sum())
        return TextPrediction(words=len(ids), bits=bits, unknown=unknown, seen_pairs=seen_pairs)

    def _conditional(self, before: Ints, words: Ints, counts: Ints) -> Floats:
        """Return P(words | before) as in `WordModel`, elementwise; `counts` are the counts of these bigrams.

        After a word that begins no bigram of the corpus, the probability does not depend on this word.
        """
        continuation, tokens = self._continuation[words], self._tokens[before]
        mass = np.maximum(counts - self._discount, 0) + self._discount * self._types[before] * continuation
        return np.where(tokens > 0, mass / np.maximum(tokens, 1), continuation)


def discount(counts: Ints) -> float:
    """Return the discount n1 / (n1 + 2 n2), see `WordModel`.

    n1 is the number of items counted once, plus 1; n2 is the number of items counted twice, plus 1/2.
    """
    once, twice = ((counts == count).sum() for count in (1, 2))
    return float((once + 1) / (once + 2 * twice + 2))


def _discounted(counts: Ints) -> Floats:
    """Return probabilities from discounted counts; each word also gets the share `UNKNOWN` of the discounted mass.

    If all counts are 0, each probability is `UNKNOWN`.
    """
    if not counts.any():
        return np.full(len(counts), UNKNOWN)
    subtracted = discount(counts)
    discounted_mass = subtracted * np.count_nonzero(counts)
    return (np.maximum(counts - subtracted, 0) + discounted_mass * UNKNOWN) / counts.sum()


def _bigram_ids(ids: Ints) -> Ints:
    """Return the bigram id of each two adjacent words."""
    return ids[:-1] * _WIDTH + ids[1:]


def _concatenate(arrays: Iterable[Ints]) -> Ints:
    # the empty array: NumPy raises an error without arrays
    return np.concatenate([np.zeros(0, np.int64), *arrays])
