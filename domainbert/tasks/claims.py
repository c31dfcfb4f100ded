"""Claims of a model about one text, as functions of its logits that have a gradient: attributions explain them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from domainbert.encoders.crf import NEVER, Crf, WordGrid


@dataclass(frozen=True)
class Claim:
    """A label of a text, or of some of its words."""

    label: str
    strength: Callable[[Tensor], Tensor]
    """From the logits (N, C) of a batch of this one text to how much the model says so: a scalar, in `unit`."""
    words: tuple[int, int] | None = None
    """The first word and the one after the last; None where it is said of the whole text."""
    unit: str = "log-probability"


def log_probability(
    field: Crf, logits: Tensor, batch: Mapping[str, Any], allowed: Mapping[int, Sequence[bool]]
) -> Tensor:
    """Logarithm of the probability that some words of the one sentence in a batch have labels that they are allowed.

    It is that of the label sequences that a CRF leaves, of all those it has (Culotta and McCallum 2004, section 3).

    Args:
        field: the CRF; of a linear head one that scores alike all sequences that are valid.
        logits: (N, C) at the batch's positions.
        allowed: for each of these words which labels (C,); the others may have any.
    """
    sentence = WordGrid(batch["example"], batch["outputs"])
    emissions = sentence.fill(logits.double())  # (1, L, C)
    ruled_out = torch.zeros_like(emissions, dtype=torch.bool)
    for word, labels in allowed.items():
        ruled_out[0, word] = ~torch.tensor(labels, device=logits.device)
    held, free = (
        field.log_partition(one, sentence.lengths) for one in (emissions.masked_fill(ruled_out, NEVER), emissions)
    )
    return (held - free).squeeze(0)
