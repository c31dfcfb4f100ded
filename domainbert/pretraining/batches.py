"""Batches of packed rows as a pure function of (seed, step), sliced by rank; an objective says what is in them."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
from torch.utils.data import Dataset

from domainbert.base.errors import DomainbertError
from domainbert.data.order import GlobalOrder, SharesOrder, WindowedOrder
from domainbert.data.packing import text_numbers
from domainbert.data.parts import PartedPlan
from domainbert.data.splits import PreparedCorpus, PreparedSplit
from domainbert.data.types import Batch, Share
from domainbert.pretraining.languages import RowLanguages
from domainbert.pretraining.objective import Key, Objective

_VALIDATION_SEED = 0


_ROWS_AT_A_TIME = 64


class PackedRowsReader:
    """Reads rows of `max_length` tokens of a prepared corpus, as the objective lays them out; `DomainbertError` if no
    token of them can be hidden."""

    def __init__(self, split: PreparedSplit, objective: Objective[Any], max_length: int) -> None:
        self.split, self.objective = split, objective
        self.plan = objective.lay_out(split, max_length)
        self.rows: Sequence[int] = range(self.plan.num_rows)  # those that validation reads
        self.languages = RowLanguages.of(split, self.plan)
        self._check_maskable()

    def order(self, batch_size: int, seed: int, first_step: int = 0, first_pass: int = 0) -> GlobalOrder:
        """The order of the rows in training, see `GlobalOrder`; each language has its share of the tokens."""
        how = (batch_size, seed, first_step, first_pass)
        if isinstance(self.plan, PartedPlan):
            return WindowedOrder(self.plan.rows_of_parts, self.plan.window, *how)
        if self.languages is None:
            return GlobalOrder(self.plan.num_rows, *how)
        return SharesOrder(self.languages.of_row, self.languages.row_shares, *how)

    @property
    def tokens_per_pass(self) -> float:
        """Tokens of as many rows as there are, as the order draws them: all tokens, unless there are languages."""
        return self.split.num_tokens if self.languages is None else self.languages.tokens_per_pass

    def by_language(self) -> dict[str, PackedRowsReader]:
        """For each language that has rows a reader of these rows, of which validation reads those in it."""
        if self.languages is None:
            return {}
        found = {}
        for number, name in enumerate(self.languages.sampling.names):
            rows = np.flatnonzero(self.languages.of_row == number).tolist()
            if rows:
                found[name] = copy(self)
                found[name].rows = rows
        return found

    def _check_maskable(self) -> None:
        number = self.plan.num_rows
        blocks = (np.arange(start, min(start + _ROWS_AT_A_TIME, number)) for start in range(0, number, _ROWS_AT_A_TIME))
        # as a rule the first block has some, and no other is read
        if not any(self.plan.maskable_tokens[rows].any() for rows in blocks):
            raise DomainbertError(
                f"prepared: all {self.split.num_tokens:,} tokens are unknown to the vocabulary or special; expected "
                "some that can be hidden"
            )

    def describe(self, key: Key) -> dict[str, list[int]]:
        """The rows of a key as plain values, with the numbers of the documents (from 0, in the split) that are read."""
        pieces = self.objective.pieces_read(self.plan, key)
        documents = np.unique(self.split.documents_at(self.plan.starts[pieces]))
        return {"rows": key.rows.tolist(), "documents": documents.tolist()}

    def batch(self, key: Key) -> Batch:
        """The rows of a key as `position_ids` and `segment_ids` (R, S), and what the objective makes of them."""
        rows = self.objective.read(self.split, self.plan, key)
        places = {"position_ids": rows.packed.position_ids, "segment_ids": rows.packed.segment_ids}
        return {**places, **self.objective.corrupt(rows, key)}


def rows_of_corpus(
    corpus: PreparedCorpus, objective: Objective[Any], max_length: int
) -> tuple[PackedRowsReader, PackedRowsReader]:
    """The rows of the training and of the validation split; the latter become the same batches in every run."""
    return PackedRowsReader(corpus.train, objective, max_length), validation_rows(corpus, objective, max_length)


def validation_rows(corpus: PreparedCorpus, objective: Objective[Any], max_length: int) -> PackedRowsReader:
    """The rows of the validation split alone, as of a held-out text."""
    return PackedRowsReader(corpus.validation, objective.for_validation(), max_length)


class TrainRows(Dataset[Batch]):
    """Micro-batch i of training, for any i: nothing is remembered between batches.

    The `order` says which rows belong to which optimiser step, the `share` which of them this rank computes. The steps
    to make are numbered from 0, and their range ends with the run's; a resumed training begins further on.
    """

    def __init__(self, reader: PackedRowsReader, order: GlobalOrder, share: Share, steps: range) -> None:
        self.reader, self.order, self.share, self.steps = reader, order, share, steps

    def __len__(self) -> int:
        """Micro-batches of all the steps."""
        return len(self.steps) * self.share.accumulation

    def __getitem__(self, index: int) -> Batch:
        """Micro-batch `index`: `step` and `micro_batch` say which; `texts` numbers the texts in its rows; the counts of
        the objective and `num_tokens` are those of the *global* batch."""
        step, micro_batch = self.steps[index // self.share.accumulation], index % self.share.accumulation
        epochs, rows = self.order.batch(step)
        here, plan, seed = self.share.of(rows, micro_batch), self.reader.plan, self.order.seed
        whole = Key(seed, step, epochs, rows, step / self.steps.stop)
        batch = self.reader.batch(whole._replace(epochs=self.share.of(epochs, micro_batch), rows=here))
        texts = plan.row_offsets[here + 1] - plan.row_offsets[here]
        return batch | {
            "texts": text_numbers(self.share.places(len(rows), micro_batch), texts),
            "step": step,
            "micro_batch": micro_batch,
            **self.reader.objective.counts(plan, whole),
            "num_tokens": int(plan.text_tokens[rows].sum()),
        }


class ValidationRows(Dataset[Batch]):
    """Every row of a reader once over all ranks, `batch_size` at once, and the same in every run."""

    def __init__(self, reader: PackedRowsReader, batch_size: int, share: Share) -> None:
        rows = np.asarray(reader.rows[share.rank :: share.world_size], np.int64)
        self.reader = reader
        self.batches = [rows[start : start + batch_size] for start in range(0, len(rows), batch_size)]

    def __len__(self) -> int:
        """Batches of this rank."""
        return len(self.batches)

    def __getitem__(self, index: int) -> Batch:
        """Batch `index`."""
        rows = self.batches[index]
        return self.reader.batch(Key(_VALIDATION_SEED, 0, np.zeros_like(rows), rows))
