"""Does a corpus fit a task: how well it predicts the task's text, beside other corpora, from as many words of each."""

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
from domainbert.corpus.ngrams import words_of

WORDS = 5_000_000
"""Words of each corpus that are looked at, at most."""

_NORMAL = 1.959964  # standard deviations on each side of a normal distribution that hold 95 % of it


def fit(
    corpora: Mapping[str, CorpusConfig],
    texts: Iterable[str],
    most_words: int = WORDS,
    most_characters: int | None = None,
) -> dict[str, Any]:
    """Measure how well corpora, by name, predict the texts of a task, as `check.json` holds it; the nearest comes
    first.

    Of each corpus the same number of words is taken, that of the smallest or `most_words`: of the training documents
    whose hashes come first. So the sample does not depend on the order of the files, and it bounds the memory.
    `most_characters` bounds what is read of each corpus, too (see `Excerpt`).

    Returns:
        `words` of each corpus, `task_words`, `task_texts`, and for each of the `corpora` `bits_per_word` (see
        `word_model`), `unknown_share` of the task's words, `seen_pairs_share` of its pairs of neighbours, and
        `above_nearest`: `bits_per_word` above those of the nearest corpus, and their 95 % `interval`, which covers the
        choice of the task's texts; None for the nearest.

    Raises:
        DomainbertError: a corpus cannot be read, or there is no word in it or in the texts.
    """
    task = [words for text in texts if (words := words_of(clean(text).text))]
    if not task:
        raise DomainbertError("fit: no words in the text of the task; expected some")
    samples = {name: sample_documents(config, most_words, name, most_characters) for name, config in corpora.items()}
    size = min(most_words, *(_size(name, sample) for name, sample in samples.items()))
    found = {name: _predicted(sample, size, task) for name, sample in samples.items()}
    order = sorted(found, key=lambda name: sum(one.bits for one in found[name]))
    return {
        "words": size,
        "task_words": sum(map(len, task)),
        "task_texts": len(task),
        "corpora": {name: _facts(found[name], found[order[0]]) for name in order},
    }


def sample_documents(corpus: CorpusConfig, most_words: int, name: str, most_characters: int | None = None) -> list[str]:
    """Training documents of a corpus in the order of their hashes, as many as `most_words` need; all of a smaller one.

    Only those that are still in question are cut into words.
    """
    heap: list[tuple[int, str, int]] = []  # the document whose hash comes last is the first
    total = 0
    with Progress(f"fit: read {name}") as progress:
        for document in read_documents(corpus, most_characters=most_characters):
            progress.advance()
            rank = -_hash(document.text)
            if document.split != "train" or (total >= most_words and rank <= heap[0][0]):
                continue
            count = len(words_of(document.text))
            heapq.heappush(heap, (rank, document.text, count))
            total += count
            while total - heap[0][2] >= most_words:
                total -= heapq.heappop(heap)[2]
    return [text for _, text, _ in sorted(heap, reverse=True)]


def first_words(texts: Iterable[str], count: int) -> Iterator[list[str]]:
    """So many words of the texts, each text's by themselves; the last text is cut."""
    for text in texts:
        if count <= 0:
            return
        words = words_of(text)[:count]
        count -= len(words)
        yield words


def fit_lines(facts: Mapping[str, Any]) -> list[str]:
    """Lines that tell what `fit` found."""
    lines = [
        f"the task's {facts['task_words']:,} words, as {facts['words']:,} words of each corpus predict them:",
        "bits a word  unknown  pairs seen  corpus",
    ]
    for name, found in facts["corpora"].items():
        shares = f"{100 * found['unknown_share']:>6.2f} % {100 * found['seen_pairs_share']:>9.2f} %"
        above = found["above_nearest"]
        more = "" if above is None else "  {:+.2f} [{:.2f}, {:.2f}]".format(above["bits_per_word"], *above["interval"])
        lines.append(f"{found['bits_per_word']:>11.2f} {shares}  {name}{more}")
    return lines


def _hash(text: str) -> int:
    # a person string, so that this hash has nothing to do with the one that splits train from validation
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"fit sample").digest(), "big")


def _size(name: str, sample: Iterable[str]) -> int:
    size = sum(len(words_of(text)) for text in sample)
    if not size:
        raise DomainbertError(f"fit: no words in the training documents of {name}; expected some")
    return size


def _predicted(sample: Iterable[str], size: int, task: Sequence[Sequence[str]]) -> list[Predicted]:
    model = WordModel(first_words(sample, size))
    return [model.predict(words) for words in task]


def _facts(found: Sequence[Predicted], nearest: Sequence[Predicted]) -> dict[str, Any]:
    words = sum(one.words for one in found)
    return {
        "bits_per_word": sum(one.bits for one in found) / words,
        "unknown_share": sum(one.unknown for one in found) / words,
        "seen_pairs_share": sum(one.seen_pairs for one in found) / max(words - len(found), 1),
        "above_nearest": None if found is nearest else _above(found, nearest),
    }


def _above(found: Sequence[Predicted], nearest: Sequence[Predicted]) -> dict[str, Any]:
    """The difference in bits per word, and its interval by the variance of a ratio (Cochran 1977, section 6.4)."""
    bits = np.array([one.bits - other.bits for one, other in zip(found, nearest, strict=True)])
    words = np.array([one.words for one in found])
    mean = float(bits.sum() / words.sum())
    error = float(np.sqrt(((bits - mean * words) ** 2).sum()) / words.sum())
    return {"bits_per_word": mean, "interval": [mean - _NORMAL * error, mean + _NORMAL * error]}
