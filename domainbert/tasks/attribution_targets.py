"""Differentiable scores of predictions for one text, which attribution methods explain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from domainbert.encoders.crf import FORBIDDEN_SCORE, Crf, WordGrid


@dataclass(frozen=True)
class AttributionTarget:
    """A predicted label of a text or of a range of its words, with its differentiable score."""

    label: str
    score: Callable[[Tensor], Tensor]
    """Function of the logits (N, C) of a batch with only this text: returns the score of the label, a scalar tensor."""
    words: tuple[int, int] | None = None
    """First word and end (exclusive); None if the label is of the whole text."""
    unit: str = "log-probability"
    """Unit of the score, for messages."""


def log_probability(
    crf: Crf, logits: Tensor, batch: Mapping[str, Any], allowed: Mapping[int, Sequence[bool]]
) -> Tensor:
    """Return the log-probability, a scalar tensor, that words of the only sentence in a batch have allowed labels.

    It is the difference of two log-partition functions of a CRF: over the allowed label sequences, and over all
    (Culotta and McCallum 2004, section 3).

    Args:
        crf: the CRF of the head; for a linear head, a CRF that gives all valid sequences the same score.
        logits: (N, C) at the batch's positions.
        allowed: by word, a mask (C,) of its allowed labels; a word without an entry may have any label.
    """
    sentence = WordGrid(batch["example"], batch["outputs"])
    emissions = sentence.fill(logits.double())  # (1, L, C)
    forbidden = torch.zeros_like(emissions, dtype=torch.bool)
    for word, labels in allowed.items():
        forbidden[0, word] = ~torch.tensor(labels, device=logits.device)
    constrained = crf.log_partition(emissions.masked_fill(forbidden, FORBIDDEN_SCORE), sentence.lengths)
    return (constrained - crf.log_partition(emissions, sentence.lengths)).squeeze(0)
