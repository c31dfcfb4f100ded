"""Batches for distillation: with the counts that its losses are means over, all of the *global* batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from domainbert.data.examples import Example, collate
from domainbert.data.order import GlobalOrder
from domainbert.data.types import Batch, Share
from domainbert.pretraining.batches import TrainRows
from domainbert.tokenization.load import DomainTokenizer


class LogitRows(Protocol):
    """Logits that a teacher gave before the training; see `soft_labels.SoftLabels`."""

    def rows(self, items: Sequence[int]) -> NDArray[np.float32]:
        """The logits of the outputs of some items, one after the other: (outputs, labels)."""


def segment_counts(lengths: NDArray[np.int64]) -> dict[str, int]:
    """The counts of packed segments of so many tokens, special ones included: segments, tokens, pairs of tokens."""
    return {
        "num_segments": len(lengths),
        "num_real_tokens": int(lengths.sum()),
        "num_pairs": int((lengths**2).sum()),
    }


def batch_counts(position_ids: Tensor, segment_ids: Tensor) -> dict[str, Tensor]:
    """The same of a batch (B, S) alone, on its device."""
    real = segment_ids > 0
    same = (segment_ids.unsqueeze(-1) == segment_ids.unsqueeze(-2)) & real.unsqueeze(-1)
    return {
        "num_segments": ((position_ids == 0) & real).sum(),
        "num_real_tokens": real.sum(),
        "num_pairs": same.sum(),
    }


class CountedRows(Dataset[Batch]):
    """Micro-batches of masked LM with the counts of their global batches."""

    def __init__(self, batches: TrainRows) -> None:
        self.batches = batches

    def __len__(self) -> int:
        """See `TrainRows`."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`."""
        batch, plan = self.batches[index], self.batches.reader.plan
        rows = self.batches.order.batch(batch["step"])[1]
        pieces = np.concatenate([np.arange(plan.row_offsets[row], plan.row_offsets[row + 1]) for row in rows])
        return batch | segment_counts(plan.lengths[pieces] + plan.extra)


class DistillationBatches(Dataset[Batch]):
    """Micro-batch i of task distillation: labelled examples and, beside them, unlabelled ones.

    Args:
        examples: the labelled ones and, after these, the unlabelled ones.
        tokenizer: for the special tokens.
        orders: which labelled and, if there are any, which unlabelled examples belong to which optimiser step; the
            latter are numbered from 0 too.
        share: this rank's part.
        steps: the optimiser steps to make, numbered from 0; a resumed training begins further on.
        logits: what the teachers said of each example; None where they are asked while training.
    """

    def __init__(
        self,
        examples: Sequence[Example],
        tokenizer: DomainTokenizer,
        orders: Sequence[GlobalOrder],
        share: Share,
        steps: range,
        logits: LogitRows | None = None,
    ) -> None:
        self.examples, self.tokenizer, self.logits = examples, tokenizer, logits
        self.orders, self.share, self.steps = orders, share, steps

    def __len__(self) -> int:
        """Micro-batches of all the steps."""
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`, as `collate` makes it; with `output_index` (N,), the place of each position that the
        head reads among the outputs of the micro-batch (-1 for none), and the counts of the *global* batch."""
        step, micro_batch = self.steps[index // self.share.accumulation], index % self.share.accumulation
        starts = [0, self.orders[0].size]
        global_items = [order.batch(step)[1] + start for order, start in zip(self.orders, starts, strict=False)]
        items = np.concatenate([self.share.of(part, micro_batch) for part in global_items]).tolist()
        offsets = [0, self.orders[0].batch_size]
        places = [
            self.share.places(len(part), micro_batch) + start
            for part, start in zip(global_items, offsets, strict=False)
        ]
        chosen = [self.examples[i] for i in items]
        batch: Batch = dict(collate(chosen, items, self.tokenizer, np.concatenate(places)))
        everything = [self.examples[i] for i in np.concatenate(global_items).tolist()]
        batch |= self._outputs(batch, items) | _counts(everything, len(global_items[0]))
        return batch | {"step": step, "micro_batch": micro_batch}

    def _outputs(self, batch: Batch, items: Sequence[int]) -> dict[str, Any]:
        sizes = [self.examples[i].num_outputs for i in items]
        index = output_index(batch["example"], batch["outputs"], sizes)
        found: dict[str, Any] = {"output_index": index, "num_outputs_here": sum(sizes)}
        if self.logits is not None:
            found["teacher_logits"] = self.logits.rows(items)
        return found


def output_index(example: NDArray[np.int64], outputs: NDArray[np.int64], sizes: Sequence[int]) -> NDArray[np.int64]:
    """The place of each position among the outputs of all examples, one after the other; -1 where it decides none.

    Args:
        example: (N,) the example each position belongs to.
        outputs: (N,) which of its outputs it decides, or -1.
        sizes: outputs of each example.
    """
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]]).astype(np.int64)
    return np.where(outputs >= 0, starts[example] + outputs, -1)


def output_logits(logits: Tensor, index: Tensor, num_outputs: int) -> Tensor:
    """Logits (N, C) at positions as those of outputs (words, or texts), the mean where several windows decide one.

    Args:
        logits: of the positions that the head read.
        index: (N,) from `output_index`.
        num_outputs: of all examples together.
    """
    decides = (index >= 0).nonzero().flatten()
    summed = torch.zeros(num_outputs, logits.shape[-1], dtype=torch.float32, device=logits.device)
    summed = summed.index_add(0, index[decides], logits[decides].float())
    return summed / torch.bincount(index[decides], minlength=num_outputs).clamp(min=1).unsqueeze(-1)


def _counts(examples: Sequence[Example], num_labelled: int) -> dict[str, int]:
    """The counts of a global batch, of which the first examples are labelled."""
    windows = [window for example in examples for window in example.windows]
    lengths = np.asarray([window.num_tokens for window in windows], dtype=np.int64)
    targets = [len(window.targets) for example in examples[:num_labelled] for window in example.windows]
    return segment_counts(lengths) | {
        "num_outputs": sum(example.num_outputs for example in examples),
        "num_targets": sum(targets),
        "num_examples": num_labelled,
        "num_tokens": sum(len(window.input_ids) for window in windows),
    }
