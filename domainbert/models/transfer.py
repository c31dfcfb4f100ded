"""Computes the vectors of a new vocabulary as weighted means of old vectors: a sparse matrix whose rows sum to 1.

The same matrix is used for the word embeddings and for the bias of a masked-LM head.

FOCUS (Dobler and de Melo 2023, EMNLP, section 3): a new entry is a weighted mean of similar shared entries. Similarity
is the cosine of static embeddings trained on the corpus with the new tokenizer, and the weights are its sparsemax.
There are two differences from the paper: the static embeddings (`static_embeddings`), and an entry too rare for an
embedding is the mean of its pieces, which the paper draws at random.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from domainbert.tokenization.surfaces import Origin

_COMPARED_ROWS = 512  # new entries compared with all shared entries at once
_MIXED_ROWS = 4096  # new entries whose vectors are summed at once

Weights = Mapping[int, float]
"""Weights of old entries for one new entry: old id to weight, with sum 1; empty for a random vector."""


@dataclass(frozen=True)
class Mixing:
    """Weights of old entries for all new entries: a sparse matrix (new entries x old entries) in CSR format.

    Attributes:
        offsets: (rows + 1,) start of each row in `columns` and `weights`; the vector of an empty row is random.
        columns: (n,) old ids.
        weights: (n,) float64.
    """

    offsets: NDArray[np.int64]
    columns: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def num_rows(self) -> int:
        """Number of entries of the new vocabulary."""
        return len(self.offsets) - 1

    @property
    def random_rows(self) -> NDArray[np.int64]:
        """Indices of the empty rows, whose vectors are random."""
        return np.flatnonzero(np.diff(self.offsets) == 0)


def build_mixing(rows: Sequence[Weights]) -> Mixing:
    """Return the matrix with these rows, one for each new entry."""
    sizes = np.array([len(row) for row in rows], dtype=np.int64)
    columns = np.array([column for row in rows for column in row], dtype=np.int64)
    weights = np.array([weight for row in rows for weight in row.values()], dtype=np.float64)
    return Mixing(np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes)]), columns, weights)


def mean_weights(origin: Origin) -> dict[int, float]:
    """Return the weight 1 / N for each of the N old pieces of an entry, 2 / N if a piece occurs twice; {} if N is 0."""
    weights: dict[int, float] = {}
    for piece in origin.pieces:
        weights[piece] = weights.get(piece, 0.0) + 1 / len(origin.pieces)
    return weights


def mean_mixing(origins: Sequence[Origin]) -> Mixing:
    """Return the mixing that copies shared entries; others are the mean of their pieces: methods `mean` and `fvt`."""
    return build_mixing([mean_weights(origin) for origin in origins])


def random_mixing(origins: Sequence[Origin]) -> Mixing:
    """Return the mixing that copies shared entries and draws the others at random: the method `random`."""
    return build_mixing([mean_weights(origin) if origin.kind == "copied" else {} for origin in origins])


def sparsemax(scores: Tensor) -> Tensor:
    """Return the sparsemax (N, M) of each row of `scores`: weights with sum 1, many of them 0 (Martins and Astudillo
    2016, algorithm 1)."""
    ordered = scores.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1)
    ranks = torch.arange(1, scores.shape[-1] + 1).to(scores)
    num_positive = (1 + ranks * ordered > sums).sum(dim=-1, keepdim=True)  # (N, 1) weights above 0
    threshold = (sums.gather(-1, num_positive - 1) - 1) / num_positive
    return (scores - threshold).clamp(min=0)


def similarity_mixing(origins: Sequence[Origin], embeddings: Tensor) -> Mixing:
    """Return the mixing that copies shared entries and mixes others from similar shared entries: the method `focus`.

    Similarity is computed from `embeddings` (entries, D), static vectors of the new entries with length 1. An entry
    without a vector has zeros there, and becomes the mean of its pieces.
    """
    has_embedding = embeddings.norm(dim=1) > 0
    shared = [index for index, origin in enumerate(origins) if origin.kind == "copied" and has_embedding[index]]
    not_shared = [index for index, origin in enumerate(origins) if origin.kind != "copied" and has_embedding[index]]
    rows: list[Weights] = [mean_weights(origin) for origin in origins]  # replaced below for `not_shared`
    if not shared:
        return build_mixing(rows)
    anchors = embeddings[shared].double()
    for start in range(0, len(not_shared), _COMPARED_ROWS):
        indices = not_shared[start : start + _COMPARED_ROWS]
        weights = sparsemax(embeddings[indices].double() @ anchors.T)
        for index, row in zip(indices, weights, strict=True):
            rows[index] = _weights_by_old_id(row, shared, origins)
    return build_mixing(rows)


def _weights_by_old_id(row: Tensor, shared: Sequence[int], origins: Sequence[Origin]) -> dict[int, float]:
    # two shared entries may be copies of the same old entry ("Bank", "bank")
    weights: dict[int, float] = {}
    for index in row.nonzero().flatten().tolist():
        old = origins[shared[index]].pieces[0]
        weights[old] = weights.get(old, 0.0) + float(row[index])
    return weights


def mix_vectors(mixing: Mixing, table: Tensor, generator: torch.Generator) -> Tensor:
    """Return the table of the new entries, (new entries, H) or (new entries,), from word embeddings (old entries, H) or
    a bias (old entries,).

    Sums are computed in float64; a row with a single weight of 1 is copied bit by bit. Rows without weights are drawn
    from the normal distribution with the mean and standard deviation of each column, as Dobler and de Melo (2023),
    "FOCUS", draw tokens without any information.
    """
    columns, weights = torch.from_numpy(mixing.columns), torch.from_numpy(mixing.weights)
    flat = table.reshape(len(table), -1)
    result = torch.empty(mixing.num_rows, flat.shape[1], dtype=table.dtype)

    # weighted sums of old vectors, for some rows at a time
    for start in range(0, mixing.num_rows, _MIXED_ROWS):
        offsets = torch.from_numpy(mixing.offsets[start : start + _MIXED_ROWS + 1])
        first, stop = int(offsets[0]), int(offsets[-1])
        terms = flat[columns[first:stop]].double() * weights[first:stop, None]
        summed = torch.segment_reduce(terms, "sum", offsets=offsets - first, axis=0)
        result[start : start + len(offsets) - 1] = summed.to(table.dtype)

    # rows with a single weight of 1 are copied, because a sum turns -0.0 into 0.0
    single = np.flatnonzero(np.diff(mixing.offsets) == 1)
    copied = single[mixing.weights[mixing.offsets[single]] == 1]
    old_ids = columns[torch.from_numpy(mixing.offsets[copied])]
    result[torch.from_numpy(copied)] = flat[old_ids]
    result[torch.from_numpy(mixing.random_rows)] = _draw_vectors(flat, len(mixing.random_rows), generator)
    return result.reshape(mixing.num_rows, *table.shape[1:])


def _draw_vectors(table: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return `count` random vectors (count, H) with the mean and standard deviation of each column of `table`."""
    deviation, mean = torch.std_mean(table.double(), dim=0, correction=0)
    noise = torch.randn(count, table.shape[1], generator=generator, dtype=torch.float64)
    return (mean + deviation * noise).to(table.dtype)
