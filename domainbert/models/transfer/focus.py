"""FOCUS: a new entry is a mix of the shared entries that are like it (Dobler and de Melo 2023, EMNLP, section 3).

Likeness is the cosine of static embeddings trained on the corpus cut by the new vocabulary, and the weights are its
sparsemax. What differs from the paper: the static embeddings (`static_embeddings`), and that an entry too rare to have
one is composed of its pieces, where the paper draws it at random.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from domainbert.models.transfer.mixing import Mixing, Weights, mean_weights, mixing_of
from domainbert.tokenization.matching import Origin

_ROWS_AT_ONCE = 512


def sparsemax(scores: Tensor) -> Tensor:
    """The nearest point of the simplex to each row of `scores` (N, M) (Martins and Astudillo 2016, algorithm 1)."""
    ordered = scores.sort(dim=-1, descending=True).values
    sums = ordered.cumsum(dim=-1)
    ranks = torch.arange(1, scores.shape[-1] + 1, dtype=scores.dtype)
    size = (1 + ranks * ordered > sums).sum(dim=-1, keepdim=True)
    threshold = (sums.gather(-1, size - 1) - 1) / size
    return (scores - threshold).clamp(min=0)


def similarity_mix(origins: Sequence[Origin], embeddings: Tensor) -> Mixing:
    """Copies where an entry is shared, else the mix of the shared ones that are like it, by static embeddings
    (entries, D) of length 1; zeros for an entry without one.
    """
    present = embeddings.norm(dim=1) > 0
    shared = [number for number, origin in enumerate(origins) if origin.kind == "copied" and present[number]]
    wanted = [number for number, origin in enumerate(origins) if origin.kind != "copied" and present[number]]
    rows: list[Weights] = [mean_weights(origin) for origin in origins]
    anchors = embeddings[shared].double()
    for start in range(0, len(wanted) if shared else 0, _ROWS_AT_ONCE):
        numbers = wanted[start : start + _ROWS_AT_ONCE]
        weights = sparsemax(embeddings[numbers].double() @ anchors.T)
        for number, row in zip(numbers, weights, strict=True):
            rows[number] = _by_old_id(row, shared, origins)
    return mixing_of(rows)


def _by_old_id(row: Tensor, shared: Sequence[int], origins: Sequence[Origin]) -> dict[int, float]:
    """The weights of old entries; two shared entries may be copies of the same one ("Bank", "bank")."""
    weights: dict[int, float] = {}
    for place in row.nonzero().flatten().tolist():
        old = origins[shared[place]].pieces[0]
        weights[old] = weights.get(old, 0.0) + float(row[place])
    return weights
