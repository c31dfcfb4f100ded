"""Comparison of corpora for a task: how well the same number of words of each corpus predicts the text of the task."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress
from domainbert.checks.word_model import Predicted, WordModel
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import clean, read_documents
from domainbert.corpus.ngrams import words_of_text

WORDS = 5_000_000
"""Maximum number of words read from each corpus."""

_NORMAL = 1.959964  # standard deviations on each side of the mean that cover 95 % of a normal distribution


def compare_corpora(
    corpora: Mapping[str, CorpusConfig],
    texts: Iterable[str],
    most_words: int = WORDS,
    max_characters: int | None = None,
) -> dict[str, Any]:
    """Measure how well each corpus predicts the texts of a task, for `check.json`; the best corpus comes first.

    The same number of words is taken from each corpus: `most_words`, or the size of the smallest corpus. The sample
    is the training documents with the lowest hashes, so it does not depend on the order of the files, and memory is
    bounded. `max_characters` limits how much of each corpus is read (see `Excerpt`).

    Returns:
        `words` of each corpus, `task_words`, `task_texts`, and for each of the `corpora` `bits_per_word` (see
        `word_model`), `unknown_share` of the task's words, `seen_pairs_share` of its word bigrams, and
        `above_nearest`: the difference in `bits_per_word` to the best corpus with its 95 % `interval`, which covers
        the sampling of the task's texts; None for the best corpus.

    Raises:
        DomainbertError: a corpus cannot be read, or a corpus or the texts have no words.
    """
    task = [words for text in texts if (words := words_of_text(clean(text).text))]
    if not task:
        raise DomainbertError("fit: the text of the task has no words; expected at least one")
    samples = {name: sample_documents(config, most_words, name, max_characters) for name, config in corpora.items()}
    size = min(most_words, *(_size(name, sample) for name, sample in samples.items()))
    predictions = {name: _predict(sample, size, task) for name, sample in samples.items()}
    order = sorted(predictions, key=lambda name: sum(text.bits for text in predictions[name]))
    return {
        "words": size,
        "task_words": sum(map(len, task)),
        "task_texts": len(task),
        "corpora": {name: _facts(predictions[name], predictions[order[0]]) for name in order},
    }


def sample_documents(corpus: CorpusConfig, most_words: int, name: str, max_characters: int | None = None) -> list[str]:
    """Training documents with the lowest hashes, in that order, until they have `most_words` words in total.

    A smaller corpus is returned whole. Only documents that can still enter the sample are split into words.
    """
    heap: list[tuple[int, str, int]] = []  # the document with the highest hash comes first
    total = 0
    with Progress(f"fit: read {name}") as progress:
        for document in read_documents(corpus, max_characters=max_characters):
            progress.advance()
            rank = -_hash(document.text)
            if document.split != "train" or (total >= most_words and rank <= heap[0][0]):
                continue
            count = len(words_of_text(document.text))
            heapq.heappush(heap, (rank, document.text, count))
            total += count
            while total - heap[0][2] >= most_words:
                total -= heapq.heappop(heap)[2]
    return [text for _, text, _ in sorted(heap, reverse=True)]


def first_words(texts: Iterable[str], count: int) -> Iterator[list[str]]:
    """Yield the words of each text until `count` words are reached; the last text is truncated."""
    for text in texts:
        if count <= 0:
            return
        words = words_of_text(text)[:count]
        count -= len(words)
        yield words


def fit_lines(facts: Mapping[str, Any]) -> list[str]:
    """Lines of the result of `fit` for a terminal."""
    lines = [
        f"the task's {facts['task_words']:,} words, predicted from {facts['words']:,} words of each corpus:",
        "bits a word  unknown  pairs seen  corpus",
    ]
    for name, corpus in facts["corpora"].items():
        shares = f"{100 * corpus['unknown_share']:>6.2f} % {100 * corpus['seen_pairs_share']:>9.2f} %"
        above = corpus["above_nearest"]
        more = "" if above is None else "  {:+.2f} [{:.2f}, {:.2f}]".format(above["bits_per_word"], *above["interval"])
        lines.append(f"{corpus['bits_per_word']:>11.2f} {shares}  {name}{more}")
    return lines


def _hash(text: str) -> int:
    # the person string makes this hash independent of the hash that splits train from validation
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"fit sample").digest(), "big")


def _size(name: str, sample: Iterable[str]) -> int:
    size = sum(len(words_of_text(text)) for text in sample)
    if not size:
        raise DomainbertError(f"fit: the training documents of {name} have no words; expected at least one")
    return size


def _predict(sample: Iterable[str], size: int, task: Sequence[Sequence[str]]) -> list[Predicted]:
    model = WordModel(first_words(sample, size))
    return [model.predict(words) for words in task]


def _facts(texts: Sequence[Predicted], nearest: Sequence[Predicted]) -> dict[str, Any]:
    words = sum(text.words for text in texts)
    return {
        "bits_per_word": sum(text.bits for text in texts) / words,
        "unknown_share": sum(text.unknown for text in texts) / words,
        "seen_pairs_share": sum(text.seen_pairs for text in texts) / max(words - len(texts), 1),
        "above_nearest": None if texts is nearest else _above(texts, nearest),
    }


def _above(texts: Sequence[Predicted], nearest: Sequence[Predicted]) -> dict[str, Any]:
    """Difference in bits per word with its interval, by the variance of a ratio (Cochran 1977, section 6.4)."""
    bits = np.array([text.bits - other.bits for text, other in zip(texts, nearest, strict=True)])
    words = np.array([text.words for text in texts])
    mean = float(bits.sum() / words.sum())
    error = float(np.sqrt(((bits - mean * words) ** 2).sum()) / words.sum())
    return {"bits_per_word": mean, "interval": [mean - _NORMAL * error, mean + _NORMAL * error]}
