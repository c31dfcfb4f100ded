"""Sentences with a label for each word in CoNLL or JSONL. Free of torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from domainbert.base.errors import Problems
from domainbert.corpus.rows import Rows
from domainbert.labelled.items import Notes, in_words, label_counts
from domainbert.labelled.label_names import is_visible
from domainbert.labelled.row_values import shown
from domainbert.labelled.rows import file_kind
from domainbert.labelled.sets import path_of
from domainbert.labelled.tagged_files import (
    TaggedFile,
    TaggedRows,
    TaggedSentence,
    TaggedTable,
    list_keys,
    read_columns,
    read_lists,
    sentence_rows,
)
from domainbert.tasks.token_labels.config import TokenLabels


@dataclass(frozen=True)
class TokenLabelFile(TaggedFile[TaggedSentence]):
    """Contents of a file of labelled words, and how it was read."""

    @property
    def summary(self) -> str:
        """A line with sizes, layout, and the words of each label."""
        counts = label_counts(self.items)
        return f"{self.path}: {self.sizes}; {len(counts)} labels ({in_words(counts)})"


def read(config: TokenLabels, path: Path | Rows) -> TokenLabelFile:
    """See `TaskConfig.read`.

    Raises:
        DomainbertError: a file whose kind cannot be told, or that `read_columns` or `read_lists` refuses; no sentence;
            a label with white space around it or invisible characters in it, or at a line that begins a document.
    """
    format = config.format
    kind = file_kind(path, format.kind, ("conll", "jsonl"), "format.kind").kind
    problems, notes = Problems(str(path)), Notes()
    if kind != "conll" or isinstance(path, Rows):
        rows = sentence_rows(path, problems, notes.left_out)
        table = read_lists(path, rows, problems, list_keys(f"{path}:{rows[0][0]}", rows[0][1], format), format)
    else:
        table = read_columns(path, format.token_column, format.tag_column)
    _check_labels(path, table.rows, problems)
    _check_marks(path, table, config.outside, problems)
    problems.raise_if_any()
    sentences = [TaggedSentence(row.words, row.tags, row.line, row.document) for row in table.rows]
    lines, names = [mark.line for mark in table.marks], [mark.name for mark in table.marks]
    return TokenLabelFile(path_of(path), sentences, kind, table.layout, lines, mark_names=names, notes=notes)


def _check_labels(path: Path | Rows, rows: Sequence[TaggedRows], problems: Problems) -> None:
    for row in rows:
        for label, line in zip(row.tags, row.lines, strict=True):
            if not is_visible(label):
                expected = "expected visible characters and no white space around them"
                problems.add(f"{path}:{line}: label {shown(label)}; {expected}")


def _check_marks(path: Path | Rows, table: TaggedTable, outside: str | None, problems: Problems) -> None:
    """The `-DOCSTART-` lines are no words, so that a label there would be lost."""
    known = {label for row in table.rows for label in row.tags} - {outside}
    for mark in table.marks if outside is not None else ():
        if mark.tag in known:
            problems.add(f"{path}:{mark.line}: -DOCSTART- has the label {mark.tag!r}; expected {outside}")
