"""Reader of sentences with a label per word in CoNLL or JSONL. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from domainbert.base.errors import Problems, counted
from domainbert.corpus.rows import Rows, open_file
from domainbert.labelled.conll import TaggedRows, TaggedTable, read_columns
from domainbert.labelled.items import ReaderCounts, format_counts, label_counts
from domainbert.labelled.row_values import is_visible, shown
from domainbert.labelled.sets import path_of
from domainbert.labelled.tagged_files import (
    TaggedFile,
    TaggedSentence,
    read_lists,
    sentence_rows,
    word_and_tag_keys,
)
from domainbert.tasks.token_labels.config import TokenLabels


@dataclass(frozen=True)
class TokenLabelFile(TaggedFile[TaggedSentence]):
    """A file of labelled words."""

    @property
    def summary(self) -> str:
        """Return a line with sizes, layout, and the number of words per label."""
        counts = label_counts(self.items)
        return f"{self.path}: {self.size_and_layout}; {counted(len(counts), 'labels')} ({format_counts(counts)})"


def read(config: TokenLabels, path: Path | Rows) -> TokenLabelFile:
    """Return the sentences of a file, for `TaskConfig.read`.

    Raise `DomainbertError` as `read_columns` and `read_lists`, and for a label with surrounding white space, with
    invisible characters, or in a line that begins a document.
    """
    format = config.format
    file = open_file(path, format.kind, ("conll", "jsonl"))
    problems, notes = Problems(str(path)), ReaderCounts()
    if file.kind == "conll":
        table = read_columns(path_of(path), file.lines, format)
    else:
        rows = sentence_rows(file, problems, notes.left_out)
        line, first_row = rows[0]
        table = read_lists(file, rows, problems, word_and_tag_keys(f"{path}:{line}", first_row, format), format)
    _check_labels(path, table.rows, problems)
    _check_marks(path, table, config.outside, problems)
    problems.raise_if_any()
    sentences = [TaggedSentence(row.words, row.tags, row.line, row.document) for row in table.rows]
    return TokenLabelFile(path_of(path), sentences, table.kind, table.layout, table.marks, notes=notes)


def _check_labels(path: Path | Rows, rows: Sequence[TaggedRows], problems: Problems) -> None:
    for row in rows:
        for label, line in zip(row.tags, row.lines, strict=True):
            if not is_visible(label):
                expected = "visible characters and no white space around them"
                problems.add(f"label {shown(label)}", file=path, line=line, expected=expected)


def _check_marks(path: Path | Rows, table: TaggedTable, outside: str | None, problems: Problems) -> None:
    """Add `-DOCSTART-` lines with a label to `problems`: these lines are not words, so the label would be lost.

    The label `outside`, and a tag that no word has (such as -X-), are accepted; without `outside`, any label is.
    """
    if outside is None:
        return
    word_labels = {label for row in table.rows for label in row.tags} - {outside}
    for mark in table.marks:
        if mark.tag in word_labels:
            expected = f"{outside!r}, the value of task.outside"
            problems.add(f"-DOCSTART- has the label {mark.tag!r}", file=path, line=mark.line, expected=expected)
