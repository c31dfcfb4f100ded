"""Table about the texts of a task and about corpora: pieces of a vocabulary, and how well each corpus predicts the
task's words."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import chain, islice
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError
from domainbert.base.progress import Progress
from domainbert.base.table import Table, number_cell
from domainbert.corpus.config import CorpusConfig
from domainbert.corpus.documents import clean, read_documents
from domainbert.corpus.ngrams import words_of_text
from domainbert.tokenization.report import count_words_of_texts, word_statistics

if TYPE_CHECKING:
    from domainbert.tokenization.load import DomainTokenizer

WORDS = 5_000_000
"""Maximum number of words read from each corpus."""


def compare_corpora(
    corpora: Mapping[str, CorpusConfig],
    texts: Iterable[str],
    tokenizer: DomainTokenizer | None = None,
    most_words: int = WORDS,
    max_characters: int | None = None,
) -> dict[str, Any]:
    """Return how well each corpus predicts the texts of a task, for `check.json`; the best corpus comes first.

    The same number of words is taken from each corpus: `most_words`, or the size of the smallest corpus. The sample
    is the training documents with the lowest hashes, so it does not depend on the order of the files, and memory is
    bounded. `max_characters` limits how much of each corpus is read (see `Excerpt`).

    Returns:
        `words` of each corpus, `task_words`, `task_texts`, `task`, and for each of the `corpora` `bits_per_word` and
        `unseen_share`, see `_prediction`. With a tokenizer, `task` and the corpora have `pieces_per_word` and
        `unknown_share` of their own words, see `WordStatistics`.
    """
    texts = [clean(text).text for text in texts]
    task = Counter(_words(texts))
    if not task:
        raise DomainbertError("the labelled texts have no words", where="labelled", expected="at least one word")
    samples = {name: sample_documents(config, most_words, name, max_characters) for name, config in corpora.items()}
    size = min([most_words, *(_count_words(name, sample) for name, sample in samples.items())])
    counts = {name: Counter(islice(_words(sample), size)) for name, sample in samples.items()}
    num_distinct = len(set(task).union(*counts.values()))
    rows = {name: _prediction(task, words, num_distinct) for name, words in counts.items()}
    return {
        "words": size,
        "task_words": task.total(),
        "task_texts": len(texts),
        "task": _pieces(tokenizer, texts),
        "corpora": {
            name: {**rows[name], **_pieces(tokenizer, samples[name])}
            for name in sorted(rows, key=lambda name: rows[name]["bits_per_word"])
        },
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


def format_corpus_fit(facts: Mapping[str, Any]) -> str:
    """Format the result of `compare_corpora` for a terminal: two lines of heading, then one line for the texts of the
    task and one per corpus; a single line without corpora."""
    task_words = f"the task's {facts['task_words']:,} words"
    if not facts["corpora"]:
        pieces, unknown = facts["task"]["pieces_per_word"], 100 * facts["task"]["unknown_share"]
        return f"{task_words}: {pieces:.2f} pieces a word, {unknown:.2f} % of the words with [UNK]"
    title = f"{task_words}, predicted from {facts['words']:,} words of each corpus:"
    rows = [
        [
            number_cell(row.get("bits_per_word"), "{:.2f}"),
            number_cell(row.get("unseen_share"), "{:.2f} %", 100),
            number_cell(row.get("pieces_per_word"), "{:.4f}"),
            number_cell(row.get("unknown_share"), "{:.2f} %", 100),
            name,
        ]
        for name, row in {"the task": facts["task"], **facts["corpora"]}.items()
        if row
    ]
    return "\n".join([title, *Table(["bits a word", "unseen", "pieces a word", "with [UNK]", "text"], rows).lines()])


def _sample_hash(text: str) -> int:
    # the argument `person` makes this hash independent of the hash that splits train from validation
    return int.from_bytes(blake2b(text.encode(), digest_size=8, person=b"fit sample").digest(), "big")


def _words(texts: Iterable[str]) -> Iterator[str]:
    return chain.from_iterable(map(words_of_text, texts))


def _count_words(name: str, sample: Iterable[str]) -> int:
    num_words = sum(1 for _ in _words(sample))
    if not num_words:
        raise DomainbertError(
            "the training documents contain no words", where=f"corpus {name!r}", expected="at least one word"
        )
    return num_words


def _prediction(task: Counter[str], corpus: Counter[str], num_distinct: int) -> dict[str, float]:
    """Return `bits_per_word` of the task by a unigram model of the words of a corpus, and `unseen_share`, the share of
    the task's words that the corpus lacks.

    The model has add-one smoothing over `num_distinct` words: those of all corpora and of the task.
    """
    total = corpus.total() + num_distinct
    bits = sum(count * math.log2(total / (corpus[word] + 1)) for word, count in task.items())
    unseen = sum(count for word, count in task.items() if word not in corpus)
    return {"bits_per_word": bits / task.total(), "unseen_share": unseen / task.total()}


def _pieces(tokenizer: DomainTokenizer | None, texts: Sequence[str]) -> dict[str, float]:
    if tokenizer is None:
        return {}
    statistics = word_statistics(tokenizer, count_words_of_texts(texts))
    return {"pieces_per_word": statistics.pieces_per_word, "unknown_share": statistics.share_unknown}
