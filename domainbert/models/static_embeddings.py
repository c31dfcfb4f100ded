"""Static embeddings of the entries of a vocabulary, from which entries occur near which in a corpus.

`transfer` finds entries of similar meaning by them, `pretrain` can start from them. FOCUS uses fastText; here they are
the factors of a matrix of positive pointwise mutual information, which word2vec implicitly factorises (Levy and
Goldberg 2014, "Neural Word Embedding as Implicit Matrix Factorization") and which needs no further package, no epochs
and no threads. Settings are those that Levy, Goldberg and Dagan (2015), "Improving Distributional Similarity",
recommend: contexts smoothed by 0.75 (section 3.1), square root of the singular values (section 3.3).
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
MIN_COUNT = 10
"""Rarer entries get no embedding, as in the published code of FOCUS."""

ENOUGH_TOKENS = 20_000_000
"""Contexts are counted in about so many tokens of a corpus, which bounds time and memory."""

_DIMENSIONS, _OVERSAMPLING, _POWER_ITERATIONS = 300, 20, 4
_SMOOTHING = 0.75
_BATCH_TOKENS = 1_000_000


class Cooccurrences:
    """Counts how often two entries stand at most `WINDOW` places apart in the same document."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size
        self._counts = np.zeros(vocab_size, dtype=np.int64)
        self._documents: list[NDArray[np.int64]] = []
        self._waiting = 0
        self._keys = np.zeros(0, dtype=np.int64)
        self._times = np.zeros(0, dtype=np.int64)

    def add(self, input_ids: Sequence[int] | NDArray[np.integer]) -> None:
        """Count one document's tokens."""
        self._documents.append(np.asarray(input_ids, dtype=np.int64))
        self._waiting += len(input_ids)
        if self._waiting >= _BATCH_TOKENS:
            self._count()

    @property
    def counts(self) -> NDArray[np.int64]:
        """(vocab_size,) Occurrences of each entry."""
        self._count()
        return self._counts

    def pairs(self) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """First entry, second entry and how often they meet, each (pairs,); both orders of a pair are there."""
        self._count()
        first, second = np.divmod(self._keys, self.vocab_size)
        both = np.concatenate([self._keys, second * self.vocab_size + first])
        keys, times = _summed(both, np.concatenate([self._times, self._times]))
        return keys // self.vocab_size, keys % self.vocab_size, times

    def _count(self) -> None:
        ids = np.concatenate([np.zeros(0, np.int64), *self._documents])
        document = np.repeat(np.arange(len(self._documents)), [len(part) for part in self._documents])
        self._documents, self._waiting = [], 0
        self._counts += np.bincount(ids, minlength=self.vocab_size)
        keys = [self._keys]
        for distance in range(1, WINDOW + 1):
            together = document[:-distance] == document[distance:]
            keys.append((ids[:-distance] * self.vocab_size + ids[distance:])[together])
        times = np.ones(sum(map(len, keys)), dtype=np.int64)
        times[: len(self._keys)] = self._times
        self._keys, self._times = _summed(np.concatenate(keys), times)


def count_contexts(vocab_size: int, documents: Iterable[Sequence[int] | NDArray[np.integer]]) -> Cooccurrences:
    """Co-occurrences in documents, each the ids of its tokens."""
    counted = Cooccurrences(vocab_size)
    with Progress("count contexts", unit="tokens") as progress:
        for ids in documents:
            counted.add(ids)
            progress.advance(len(ids))
    return counted


def _summed(keys: NDArray[np.int64], times: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Each key once, with the sum of its times."""
    if not len(keys):
        return keys, times
    order = np.argsort(keys, kind="stable")
    keys, times = keys[order], times[order]
    starts = np.flatnonzero(np.concatenate([np.ones(1, bool), keys[1:] != keys[:-1]]))
    return keys[starts], np.add.reduceat(times, starts)


def static_embeddings(cooccurrences: Cooccurrences, generator: torch.Generator) -> Tensor:
    """Embeddings (vocab_size, D) of length 1, D at most 300; zeros for an entry rarer than `MIN_COUNT`, or that nothing
    stands near more often than by chance; the generator is that of the random projection."""
    frequent = cooccurrences.counts >= MIN_COUNT
    first, second, times = cooccurrences.pairs()
    usable = frequent[first] & frequent[second]
    matrix = _positive_pmi(first[usable], second[usable], times[usable], cooccurrences.vocab_size)
    embeddings = _factors(matrix, min(_DIMENSIONS, int(frequent.sum())), generator)
    known = torch.zeros(len(embeddings), 1)
    known[matrix.indices()[0]] = 1  # the factors of an empty row are rounding errors, not zeros
    return torch.nn.functional.normalize(embeddings, dim=1) * known


def _positive_pmi(
    first: NDArray[np.int64], second: NDArray[np.int64], times: NDArray[np.int64], vocab_size: int
) -> Tensor:
    """max(0, log P(b | a) / Q(b)), Q being the smoothed frequency: sparse (vocab_size, vocab_size), float32."""
    entry = np.bincount(first, weights=times, minlength=vocab_size)
    context = entry**_SMOOTHING
    context /= max(context.sum(), 1)
    pmi = np.log(times / (entry[first] * context[second]))
    kept = pmi > 0
    indices = torch.from_numpy(np.stack([first[kept], second[kept]]))
    values = torch.from_numpy(pmi[kept].astype(np.float32))
    return torch.sparse_coo_tensor(indices, values, (vocab_size, vocab_size), check_invariants=False).coalesce()


def _by_rows(matrix: Tensor) -> Tensor:
    """As CSR, whose products take a quarter of the time; torch calls it beta and says so at length."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse")
        return matrix.to_sparse_csr()


@contextmanager
def _one_thread() -> Iterator[None]:
    """Sums in one order on any number of cores, so that all processes of a training start from the same numbers."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@_one_thread()
def _factors(matrix: Tensor, dimensions: int, generator: torch.Generator) -> Tensor:
    """U S^0.5 of the largest singular values, by random projection (Halko et al. 2011, algorithms 4.4 and 5.1); the sum
    of each column is positive, since a decomposition leaves signs open."""
    size = len(matrix)
    width = min(dimensions + _OVERSAMPLING, size)
    rows, columns = _by_rows(matrix), _by_rows(matrix.t().coalesce())
    basis = torch.linalg.qr(rows @ torch.randn(size, width, generator=generator)).Q
    for _ in range(_POWER_ITERATIONS):
        basis = torch.linalg.qr(rows @ torch.linalg.qr(columns @ basis).Q).Q
    left, singular, _ = torch.linalg.svd((columns @ basis).T, full_matrices=False)
    factors = (basis @ left)[:, :dimensions] * singular[:dimensions].sqrt()
    return torch.where(factors.sum(dim=0) < 0, -factors, factors)


@torch.no_grad()
def put_in(table: Tensor, embeddings: Tensor) -> None:
    """Put static embeddings (vocab_size, D) into the rows of a table of random numbers (vocab_size, E), as its start.

    Their first E dimensions are those of the largest singular values; of a wider table the rest stays random. What all
    have in common, their mean, is taken away, since it tells no two entries apart (Mu and Viswanath 2018,
    "All-but-the-Top", section 2), and each becomes as long as the random numbers in its place are expected to be. An
    entry without an embedding keeps its random numbers.

    """
    known, width = embeddings.any(dim=1), min(embeddings.shape[1], table.shape[1])
    if not known.any():
        return
    kept = embeddings[known, :width]
    kept = torch.nn.functional.normalize(kept - kept.mean(dim=0), dim=1)
    deviation = table[known, :width].std(correction=0)
    table[known.nonzero(), torch.arange(width)] = kept * deviation * width**0.5
