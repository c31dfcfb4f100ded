"""Losses of labels of words."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from domainbert.data.types import IGNORED
from domainbert.encoders.crf import Crf, WordGrid
from domainbert.tasks.task import Batch


def word_loss(logits: Tensor, batch: Batch, crf: Crf | None = None) -> Tensor:
    """Cross-entropy summed over the pre-tokens; of a CRF the negative log-likelihood of the words' labels, with the
    cross-entropy of other pieces: those that continue a word learn from the emissions alone."""
    targets = batch["targets"]
    if crf is None:
        return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORED, reduction="sum")
    words = (batch["outputs"] >= 0) & (targets != IGNORED)
    others = targets.masked_fill(batch["outputs"] >= 0, IGNORED)
    with torch.autocast(logits.device.type, enabled=False):
        summed = functional.cross_entropy(logits.float(), others, ignore_index=IGNORED, reduction="sum")
        if bool(words.any()):
            chosen = WordGrid(batch["example"], batch["outputs"].masked_fill(~words, -1))
            emissions, labels = chosen.fill(logits.float()), chosen.fill(targets)
            likelihood = crf.score(emissions, labels, chosen.lengths)
            summed = summed + (crf.log_partition(emissions, chosen.lengths) - likelihood).sum()
    return summed
