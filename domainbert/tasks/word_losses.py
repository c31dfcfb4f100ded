"""Losses for labels of words."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional

from domainbert.data.packing import IGNORE_INDEX
from domainbert.encoders.crf import Crf, SizedGrid
from domainbert.tasks.task import Batch


def word_loss(logits: Tensor, batch: Batch, crf: Crf | None = None) -> Tensor:
    """Return the loss of word labels summed over a batch, a scalar, from logits (N, labels) at the positions.

    It is the cross-entropy of the pre-tokens, or for a CRF the negative log-likelihood of the words' labels plus the
    cross-entropy of positions that continue a word, which are not part of the CRF's sequence.
    """
    targets = batch["targets"]
    if crf is None:
        return functional.cross_entropy(logits.float(), targets, ignore_index=IGNORE_INDEX, reduction="sum")
    is_labelled_word = (batch["outputs"] >= 0) & (targets != IGNORE_INDEX)
    continuation_targets = targets.masked_fill(batch["outputs"] >= 0, IGNORE_INDEX)
    with torch.autocast(logits.device.type, enabled=False):
        continuations = functional.cross_entropy(
            logits.float(), continuation_targets, ignore_index=IGNORE_INDEX, reduction="sum"
        )
        longest = batch["longest"] if "longest" in batch else max(0, int(batch["outputs"].max())) + 1
        sizes = (len(batch["items"]), longest)
        grid = SizedGrid(batch["example"], batch["outputs"].masked_fill(~is_labelled_word, -1), *sizes)
        emissions, labels = grid.fill(logits.float()), grid.fill(targets)
        losses = crf.log_partition(emissions, grid.lengths) - crf.score(emissions, labels, grid.lengths)
    return continuations + losses.where(grid.lengths > 0, 0.0).sum()
