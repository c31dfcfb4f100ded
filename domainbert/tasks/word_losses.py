"""Losses for labels of words."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from domainbert.data.types import IGNORE_INDEX
from domainbert.encoders.crf import Crf, SizedGrid
from domainbert.tasks.task import Batch


def word_loss(logits: Tensor, batch: Batch, crf: Crf | None = None) -> Tensor:
    """Return the summed cross-entropy of the pre-tokens, or for a CRF the negative log-likelihood of the words' labels
    plus the cross-entropy of pieces that continue a word, which are not part of the CRF's sequence."""
    targets = batch["targets"]
    if crf is None:
        return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")
    words = (batch["outputs"] >= 0) & (targets != IGNORE_INDEX)
    others = targets.masked_fill(batch["outputs"] >= 0, IGNORE_INDEX)
    with torch.autocast(logits.device.type, enabled=False):
        summed = functional.cross_entropy(logits.float(), others, ignore_index=IGNORE_INDEX, reduction="sum")
        longest = batch["longest"] if "longest" in batch else max(0, int(batch["outputs"].max())) + 1
        sizes = (len(batch["items"]), longest)
        chosen = SizedGrid(batch["example"], batch["outputs"].masked_fill(~words, -1), *sizes)
        emissions, labels = chosen.fill(logits.float()), chosen.fill(targets)
        losses = crf.log_partition(emissions, chosen.lengths) - crf.score(emissions, labels, chosen.lengths)
    return summed + losses.where(chosen.lengths > 0, 0.0).sum()
