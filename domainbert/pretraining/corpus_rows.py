"""From a prepared corpus to the rows that an objective lays out."""

from __future__ import annotations

from typing import Any

from domainbert.data.prepared import PreparedCorpus, PreparedSplit
from domainbert.pretraining.batches import PackedRowsReader
from domainbert.pretraining.objective import Objective


def rows_of_corpus(
    corpus: PreparedCorpus, objective: Objective[Any], max_length: int
) -> tuple[PackedRowsReader, PackedRowsReader]:
    """The rows of the training and of the validation split; the latter become the same batches in every run.

    Args:
        corpus: the prepared corpus.
        objective: what is trained.
        max_length: tokens of a row.
    """

    def reader(split: PreparedSplit, learnt: Objective[Any]) -> PackedRowsReader:
        return PackedRowsReader(split, learnt.lay_out(split, max_length), learnt)

    return reader(corpus.train, objective), reader(corpus.validation, objective.for_validation())
