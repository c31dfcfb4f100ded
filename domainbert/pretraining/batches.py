"""Batches of packed, masked rows as a pure function of (seed, step), sliced by rank."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch.utils.data import Dataset

from domainbert.data.order import GlobalOrder
from domainbert.data.packing import RowPlan, fill_rows, text_numbers
from domainbert.data.prepared import PreparedSplit
from domainbert.data.types import Batch, Share
from domainbert.pretraining.masking import Masker
from domainbert.tokenization.load import DomainTokenizer

_VALIDATION_SEED = 0


class PackedRowsReader:
    """Reads rows of a prepared corpus as the plan lays them out."""

    def __init__(self, split: PreparedSplit, plan: RowPlan, tokenizer: DomainTokenizer, masker: Masker) -> None:
        self.split, self.plan, self.masker = split, plan, masker
        self.template, self.pad_id = tokenizer.template, tokenizer.pad_id

    def describe(self, rows: NDArray[np.int64]) -> dict[str, list[int]]:
        """The rows as plain values, with the numbers of the documents (from 0, in the split) that stand in them."""
        plan = self.plan
        pieces = np.concatenate([np.arange(plan.row_offsets[row], plan.row_offsets[row + 1]) for row in rows])
        documents = np.searchsorted(self.split.document_offsets, plan.starts[pieces], side="right") - 1
        return {"rows": rows.tolist(), "documents": np.unique(documents).tolist()}

    def batch(self, rows: NDArray[np.int64], epochs: NDArray[np.int64], seed: int) -> Batch:
        """Masked rows as `input_ids`, `position_ids`, `segment_ids` (R, S), `positions` and `targets` (R * K,)."""
        plan = self.plan
        places = [
            [(int(plan.starts[p]), int(plan.starts[p] + plan.lengths[p])) for p in range(first, last)]
            for first, last in zip(plan.row_offsets[rows].tolist(), plan.row_offsets[rows + 1].tolist(), strict=True)
        ]
        texts = [[self.split.take(*place) for place in row] for row in places]
        packed = fill_rows(texts, plan.row_length, self.template, self.pad_id)
        starts_word = np.zeros(packed.input_ids.size, dtype=np.bool_)
        for (start, stop), first in zip((p for row in places for p in row), packed.first_positions + 1, strict=True):
            starts_word[first : first + stop - start] = self.split.take_starts(start, stop)
        masked = self.masker.mask(packed.input_ids, starts_word.reshape(len(rows), -1), rows, epochs, seed)
        row_starts = np.arange(len(rows))[:, None] * plan.row_length
        return {
            "input_ids": masked.input_ids,
            "position_ids": packed.position_ids,
            "segment_ids": packed.segment_ids,
            "positions": (masked.positions + row_starts).ravel(),
            "targets": masked.labels.ravel(),
        }


class MaskedLMTrainBatches(Dataset[Batch]):
    """Micro-batch i of training, for any i: nothing is remembered between batches.

    Args:
        reader: of the rows.
        order: which rows belong to which optimiser step.
        share: this rank's part.
        steps: the optimiser steps to make, numbered from 0; a resumed training begins further on.
    """

    def __init__(self, reader: PackedRowsReader, order: GlobalOrder, share: Share, steps: range) -> None:
        self.reader, self.order, self.share, self.steps = reader, order, share, steps

    def __len__(self) -> int:
        """Micro-batches of all the steps."""
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`: `step` and `micro_batch` say which; `texts` numbers the texts in its rows; `num_targets`
        (masked tokens) and `num_tokens` are those of the *global* batch."""
        step, micro_batch = self.steps[index // self.share.accumulation], index % self.share.accumulation
        epochs, rows = self.order.batch(step)
        here, plan = self.share.of(rows, micro_batch), self.reader.plan
        batch = self.reader.batch(here, self.share.of(epochs, micro_batch), self.order.seed)
        counts = plan.row_offsets[here + 1] - plan.row_offsets[here]
        return batch | {
            "texts": text_numbers(self.share.places(len(rows), micro_batch), counts),
            "step": step,
            "micro_batch": micro_batch,
            "num_targets": int(self.reader.masker.num_masked(plan.maskable_tokens[rows]).sum()),
            "num_tokens": int(plan.text_tokens[rows].sum()),
        }


class MaskedLMValidationBatches(Dataset[Batch]):
    """Every validation row once over all ranks, `batch_size` at once, with the same masks in every run."""

    def __init__(self, reader: PackedRowsReader, batch_size: int, share: Share) -> None:
        rows = np.arange(reader.plan.num_rows)[share.rank :: share.world_size]
        self.reader = reader
        self.batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]

    def __len__(self) -> int:
        """Batches of this rank."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Batch `index`."""
        rows = self.batches[index]
        return self.reader.batch(rows, np.zeros_like(rows), _VALIDATION_SEED)
