"""Batches of packed rows as a pure function of (seed, step), divided by rank; the objective defines their content."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from domainbert.base.errors import DomainbertError
from domainbert.data.batches import GlobalOrder, Share, SharesOrder, WindowedOrder
from domainbert.data.packing import Batch
from domainbert.data.parts import PartedPlan
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.pretraining.languages import RowLanguages
from domainbert.pretraining.objective import Key, Objective, RowSources

_VALIDATION_SEED = 0
_ROWS_PER_CHECK = 64  # rows whose maskable tokens are counted at once


class PackedRowsReader:
    """Reads batches of rows of `max_length` tokens from a split of a prepared corpus, masked by the objective.

    Raises:
        DomainbertError: no token of the split can be masked.
    """

    def __init__(self, split: PreparedSplit, objective: Objective[Any], max_length: int) -> None:
        self.split, self.objective = split, objective
        self.plan = objective.layout_rows(split, max_length)
        self.rows: Sequence[int] = range(self.plan.num_rows)  # numbers of the rows that validation reads
        self.languages = RowLanguages.of(split, self.plan)
        self._check_maskable()

    def order(self, batch_size: int, seed: int, first_step: int = 0, first_pass: int = 0) -> GlobalOrder:
        """Return the training order of the rows: the rows of each optimiser step, from `first_step` on.

        A corpus in parts is shuffled in windows of several parts. A corpus with languages is sampled, so that each
        language gets its share of the tokens. `first_pass` is the number of passes before `first_step`.
        """
        arguments = (batch_size, seed, first_step, first_pass)
        if isinstance(self.plan, PartedPlan):
            return WindowedOrder(self.plan.rows_of_parts, self.plan.window, *arguments)
        if self.languages is None:
            return GlobalOrder(self.plan.num_rows, *arguments)
        return SharesOrder(self.languages.row_languages, self.languages.row_shares, *arguments)

    @property
    def tokens_per_pass(self) -> float:
        """Expected number of tokens in one pass: all tokens of the split, unless languages are sampled."""
        return self.split.num_tokens if self.languages is None else self.languages.tokens_per_pass

    def by_language(self) -> dict[str, PackedRowsReader]:
        """Return a reader of the rows of each language that has rows, by name; {} for a corpus without languages."""
        if self.languages is None:
            return {}
        readers = {}
        for language, name in enumerate(self.languages.sampling.names):
            rows = np.flatnonzero(self.languages.row_languages == language).tolist()
            if rows:
                readers[name] = copy(self)  # shares the split and the plan
                readers[name].rows = rows
        return readers

    def _check_maskable(self) -> None:
        num_rows, size = self.plan.num_rows, _ROWS_PER_CHECK
        blocks = (np.arange(start, min(start + size, num_rows)) for start in range(0, num_rows, size))
        # usually the first block has maskable tokens, and `any` stops there
        if not any(self.plan.maskable_tokens[rows].any() for rows in blocks):
            raise DomainbertError(
                f"all {self.split.num_tokens:,} tokens of a split are unknown to the vocabulary or special",
                where="prepared",
                expected="some tokens that can be masked: check `tokenizer` and `corpus` of `prepare`",
            )

    def describe(self, key: Key) -> dict[str, list[int]]:
        """Return `rows` and `documents` of a key: their numbers in the split, from 0, as lists that JSON can store."""
        pieces = self.objective.pieces_read(self.plan, key)
        documents = np.unique(self.split.documents_at(self.plan.starts[pieces]))
        return {"rows": key.rows.tolist(), "documents": documents.tolist()}

    def batch(self, key: Key) -> Batch:
        """Return `position_ids` and `segment_ids` (R, S) of the rows of a key, and the inputs of the objective."""
        rows = self.objective.read(self.split, self.plan, key)
        layout = {"position_ids": rows.packed.position_ids, "segment_ids": rows.packed.segment_ids}
        return {**layout, **self.objective.corrupt(rows, key)}


def validation_reader(corpus: PreparedCorpus, objective: Objective[Any], max_length: int) -> PackedRowsReader:
    """Return a reader of the validation split, masked in the same way in every run."""
    return PackedRowsReader(corpus.validation, objective.for_validation(), max_length)


class TrainRows(Dataset[Batch]):
    """Training micro-batches with random access: no state between batches.

    `order` assigns rows to optimiser steps, `share` selects the rows of this rank. `steps` is numbered from 0 and ends
    with the run; a resumed training begins at a later step.
    """

    def __init__(self, reader: PackedRowsReader, order: GlobalOrder, share: Share, steps: range) -> None:
        self.reader, self.order, self.share, self.steps = reader, order, share, steps

    def __len__(self) -> int:
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Return micro-batch `index`, with its numbers `step` and `micro_batch`. The counts of the objective and
        `num_tokens` refer to the *global* batch."""
        step = self.steps[index // self.share.accumulation]
        micro_batch = index % self.share.accumulation
        epochs, rows = self.order.batch(step)  # of the global batch
        global_key = Key(self.order.seed, step, epochs, rows, progress=step / self.steps.stop)
        local_epochs, local_rows = (self.share.select(values, micro_batch) for values in (epochs, rows))
        batch = self.reader.batch(global_key._replace(epochs=local_epochs, rows=local_rows))
        plan = self.reader.plan
        return batch | {
            "step": step,
            "micro_batch": micro_batch,
            **self.reader.objective.counts(plan, global_key),
            "num_tokens": int(plan.text_tokens[rows].sum()),
        }


class ValidationRows(Dataset[Batch]):
    """Validation batches of `batch_size` rows: each row of a reader once over all ranks, the same in every run. Batches
    have the `sources`, if there are any."""

    def __init__(
        self, reader: PackedRowsReader, batch_size: int, share: Share, sources: RowSources | None = None
    ) -> None:
        row_numbers = np.asarray(reader.rows[share.rank :: share.world_size], np.int64)  # of this rank
        self.reader, self.sources = reader, sources
        self.batches = [row_numbers[start : start + batch_size] for start in range(0, len(row_numbers), batch_size)]

    def __len__(self) -> int:
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        rows = self.batches[index]
        key = Key(_VALIDATION_SEED, step=0, epochs=np.zeros_like(rows), rows=rows)  # the same masks in every run
        batch = self.reader.batch(key)
        return batch if self.sources is None else batch | {"sources": self.sources}
