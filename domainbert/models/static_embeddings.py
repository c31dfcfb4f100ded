"""Static embeddings of vocabulary entries, computed from co-occurrences in a corpus.

`transfer` finds entries of similar meaning with them, and `pretrain` can start from them. FOCUS uses fastText; here a
matrix of positive pointwise mutual information is factorised, as word2vec does implicitly (Levy and Goldberg 2014,
"Neural Word Embedding as Implicit Matrix Factorization"), which needs no further package, epochs or threads. The
settings follow Levy, Goldberg and Dagan (2015), "Improving Distributional Similarity": context smoothing 0.75 (section
3.1) and square root of the singular values (section 3.3).
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.base.progress import Progress

WINDOW = 5
"""Largest distance, in tokens, of two entries that occur together."""

MIN_COUNT = 10
"""Least number of occurrences of an entry with an embedding, as in the published code of FOCUS."""

ENOUGH_TOKENS = 20_000_000
"""Approximate number of tokens of a corpus in which contexts are counted; it limits time and memory."""

_DIMENSIONS, _OVERSAMPLING, _POWER_ITERATIONS = 300, 20, 4
_CONTEXT_SMOOTHING = 0.75  # exponent of context frequencies
_BATCH_TOKENS = 1_000_000


class Cooccurrences:
    """Counts how often two entries occur at most `WINDOW` tokens apart in the same document."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._counts = np.zeros(vocab_size, dtype=np.int64)
        self._documents: list[NDArray[np.int64]] = []
        self._pending_tokens = 0
        self._pair_keys = np.zeros(0, dtype=np.int64)  # first entry * vocab_size + second entry, sorted
        self._pair_counts = np.zeros(0, dtype=np.int64)

    def add(self, input_ids: Sequence[int] | NDArray[np.integer]) -> None:
        """Add the token ids of one document; they are counted in batches of a million tokens."""
        self._documents.append(np.asarray(input_ids, dtype=np.int64))
        self._pending_tokens += len(input_ids)
        if self._pending_tokens >= _BATCH_TOKENS:
            self._count()

    @property
    def counts(self) -> NDArray[np.int64]:
        """Number of occurrences of each entry, (vocab_size,)."""
        self._count()
        return self._counts

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Return first entry, second entry and number of co-occurrences, (pairs,) each; pairs are in both orders."""
        self._count()
        first, second = np.divmod(self._pair_keys, self.vocab_size)
        both_orders = np.concatenate([self._pair_keys, second * self.vocab_size + first])
        keys, counts = _sum_by_key(both_orders, np.concatenate([self._pair_counts, self._pair_counts]))
        return keys // self.vocab_size, keys % self.vocab_size, counts

    def _count(self) -> None:
        """Count entries and pairs of entries in the documents that were added since the last call."""
        # ids of all tokens, and the number of the document of each token
        ids = np.concatenate([np.zeros(0, np.int64), *self._documents])
        document = np.repeat(np.arange(len(self._documents)), [len(part) for part in self._documents])
        self._documents, self._pending_tokens = [], 0
        self._counts += np.bincount(ids, minlength=self.vocab_size)

        # keys of the pairs of earlier calls, with their counts, then keys of all new pairs, with count 1
        keys = [self._pair_keys]
        for distance in range(1, WINDOW + 1):
            same_document = document[:-distance] == document[distance:]
            keys.append((ids[:-distance] * self.vocab_size + ids[distance:])[same_document])
        counts = np.ones(sum(map(len, keys)), dtype=np.int64)
        counts[: len(self._pair_keys)] = self._pair_counts
        self._pair_keys, self._pair_counts = _sum_by_key(np.concatenate(keys), counts)


def count_contexts(vocab_size: int, documents: Iterable[Sequence[int] | NDArray[np.integer]]) -> Cooccurrences:
    """Count and return the co-occurrences in documents; a document is the ids of its tokens."""
    cooccurrences = Cooccurrences(vocab_size)
    with Progress("count contexts", unit="tokens") as progress:
        for ids in documents:
            cooccurrences.add(ids)
            progress.advance(len(ids))
    return cooccurrences


def _sum_by_key(keys: NDArray[np.int64], counts: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct keys, ascending, with the sum of their counts: 3, 7 with 2, 5 for 7, 3, 7 with 1, 2, 4."""
    if not len(keys):
        return keys, counts
    order = np.argsort(keys, kind="stable")
    keys, counts = keys[order], counts[order]
    is_first = np.concatenate([np.ones(1, bool), keys[1:] != keys[:-1]])  # of equal keys
    starts = np.flatnonzero(is_first)
    return keys[starts], np.add.reduceat(counts, starts)


def static_embeddings(cooccurrences: Cooccurrences, generator: torch.Generator) -> Tensor:
    """Return the embeddings (vocab_size, D) of all entries, of length 1, with D at most 300.

    The row of an entry is 0 if the entry is rarer than `MIN_COUNT`, or has no positive PMI (pointwise mutual
    information) with another entry. `generator` draws the random projection.
    """
    frequent = cooccurrences.counts >= MIN_COUNT
    first, second, counts = cooccurrences.pairs()
    usable = frequent[first] & frequent[second]
    matrix = _positive_pmi(first[usable], second[usable], counts[usable], cooccurrences.vocab_size)
    embeddings = _factors(matrix, min(_DIMENSIONS, int(frequent.sum())), generator)
    present = torch.zeros(len(embeddings), 1)
    present[matrix.indices()[0]] = 1  # the factors of an empty row are rounding errors, not zeros
    return torch.nn.functional.normalize(embeddings, dim=1) * present


def _positive_pmi(
    first: NDArray[np.int64], second: NDArray[np.int64], counts: NDArray[np.int64], vocab_size: int
) -> Tensor:
    """Return the positive PMI of pairs, max(0, log P(second | first) / Q(second)) with the smoothed frequency Q, as a
    sparse matrix (vocab_size, vocab_size), float32."""
    entry = np.bincount(first, weights=counts, minlength=vocab_size)
    context = entry**_CONTEXT_SMOOTHING
    context /= max(context.sum(), 1)
    pmi = np.log(counts / (entry[first] * context[second]))  # counts / entry[first] is P(second | first)
    positive = pmi > 0
    indices = torch.from_numpy(np.stack([first[positive], second[positive]]))
    values = torch.from_numpy(pmi[positive].astype(np.float32))
    return torch.sparse_coo_tensor(indices, values, (vocab_size, vocab_size), check_invariants=False).coalesce()


def _to_csr(matrix: Tensor) -> Tensor:
    # products with CSR take a quarter of the time
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")  # torch warns that CSR is in beta
        return matrix.to_sparse_csr()


@contextmanager
def _one_thread() -> Iterator[None]:
    # with one thread, sums have the same order on all machines and in all processes
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def _factors(matrix: Tensor, dimensions: int, generator: torch.Generator) -> Tensor:
    """Return U S^0.5 (vocab_size, dimensions) of the largest singular values of a matrix, by random projection (Halko
    et al. 2011, algorithms 4.4 and 5.1).

    The sign of each column, which the decomposition does not determine, makes its sum positive."""
    size = len(matrix)
    width = min(dimensions + _OVERSAMPLING, size)
    rows, columns = _to_csr(matrix), _to_csr(matrix.t().coalesce())
    basis = torch.linalg.qr(rows @ torch.randn(size, width, generator=generator)).Q
    for _ in range(_POWER_ITERATIONS):
        basis = torch.linalg.qr(rows @ torch.linalg.qr(columns @ basis).Q).Q
    left, singular, _ = torch.linalg.svd((columns @ basis).T, full_matrices=False)
    factors = (basis @ left)[:, :dimensions] * singular[:dimensions].sqrt()
    return torch.where(factors.sum(dim=0) < 0, -factors, factors)


@torch.no_grad()
def initialise_table(table: Tensor, embeddings: Tensor) -> None:
    """Initialise a table of random numbers (vocab_size, E) with static embeddings (vocab_size, D), in place.

    The first E dimensions, which belong to the largest singular values, are used; further columns of a wider table stay
    random. The mean of all embeddings is subtracted, because it does not distinguish entries (Mu and Viswanath 2018,
    "All-but-the-Top", section 2). Each vector is scaled to the expected length of the random numbers that it replaces.
    An entry without an embedding keeps its random numbers.
    """
    present = embeddings.any(dim=1)  # (vocab_size,) whether an entry has an embedding
    width = min(embeddings.shape[1], table.shape[1])
    if not present.any():
        return
    values = embeddings[present, :width]  # (present entries, width)
    values = torch.nn.functional.normalize(values - values.mean(dim=0), dim=1)
    deviation = table[present, :width].std(correction=0)
    table[present.nonzero(), torch.arange(width)] = values * deviation * width**0.5
