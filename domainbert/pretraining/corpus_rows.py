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
    return rows_of_split(corpus.train, objective, max_length), validation_rows(corpus, objective, max_length)


def validation_rows(corpus: PreparedCorpus, objective: Objective[Any], max_length: int) -> PackedRowsReader:
    """The rows of the validation split alone, as of a held-out text."""
    return rows_of_split(corpus.validation, objective.for_validation(), max_length)


def rows_of_split(split: PreparedSplit, objective: Objective[Any], max_length: int) -> PackedRowsReader:
    """The rows of a split, as an objective lays them out."""
    return PackedRowsReader(split, objective.lay_out(split, max_length), objective)
