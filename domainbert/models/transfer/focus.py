"""FOCUS: a new entry is a weighted mean of similar shared entries (Dobler and de Melo 2023, EMNLP, section 3).

Similarity is the cosine of static embeddings trained on the corpus with the new tokenizer, and the weights are its
sparsemax. There are two differences from the paper: the static embeddings (`static_embeddings`), and an entry too rare
for an embedding is the mean of its pieces, which the paper draws at random.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from domainbert.models.transfer.mixing import Mixing, Weights, build_mixing, mean_weights
from domainbert.tokenization.matching import Origin

_ROWS_AT_ONCE = 512


def sparsemax(scores: Tensor) -> Tensor:
    """Return the sparsemax (N, M) of each row of `scores`: weights with sum 1, many of them 0 (Martins and Astudillo
    2016, algorithm 1)."""
    ordered = scores.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1)
    ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    num_positive = (1 + ranks * ordered > sums).sum(dim=-1, keepdim=True)
    threshold = (sums.gather(-1, num_positive - 1) - 1) / num_positive
    return (scores - threshold).clamp(min=0)


def similarity_mixing(origins: Sequence[Origin], embeddings: Tensor) -> Mixing:
    """Return the mixing that copies shared entries and mixes the others from similar shared entries: the method
    `focus`.

    Similarity is computed from the static embeddings (entries, D) of the new entries, with length 1, or 0 for an entry
    without one, which is the mean of its pieces.
    """
    has_embedding = embeddings.norm(dim=1) > 0
    shared = [index for index, origin in enumerate(origins) if origin.kind == "copied" and has_embedding[index]]
    not_shared = [index for index, origin in enumerate(origins) if origin.kind != "copied" and has_embedding[index]]
    rows: list[Weights] = [mean_weights(origin) for origin in origins]
    anchors = embeddings[shared].double()
    for start in range(0, len(not_shared) if shared else 0, _ROWS_AT_ONCE):
        indices = not_shared[start : start + _ROWS_AT_ONCE]
        weights = sparsemax(embeddings[indices].double() @ anchors.T)
        for index, row in zip(indices, weights, strict=True):
            rows[index] = _weights_by_old_id(row, shared, origins)
    return build_mixing(rows)


def _weights_by_old_id(row: Tensor, shared: Sequence[int], origins: Sequence[Origin]) -> dict[int, float]:
    """Convert weights of shared entries (shared,) to weights by old id; two shared entries may be copies of the same
    old entry ("Bank", "bank")."""
    weights: dict[int, float] = {}
    for index in row.nonzero().flatten().tolist():
        old = origins[shared[index]].pieces[0]
        weights[old] = weights.get(old, 0.0) + float(row[index])
    return weights
