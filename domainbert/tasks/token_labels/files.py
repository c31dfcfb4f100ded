"""Reader of sentences with a label per word in CoNLL or JSONL. Free of torch."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from domainbert.base.errors import Problems
from domainbert.corpus.rows import Rows, open_file
from domainbert.labelled.conll import TaggedTable, read_columns, refuse_names_for_conll
from domainbert.labelled.items import ReaderCounts, describe_labels
from domainbert.labelled.row_values import is_visible, shown
from domainbert.labelled.tagged_files import TaggedFile, TaggedSentence, read_lists, sentence_rows, word_and_tag_keys
from domainbert.tasks.token_labels.config import TokenLabels


@dataclass(frozen=True)
class TokenLabelFile(TaggedFile[TaggedSentence]):
    """A file of labelled words."""

    @property
    def summary(self) -> str:
        """Return a line with sizes, layout, and the number of words per label."""
        return f"{self.path}: {self.size_summary}; {self.layout}; {describe_labels(self.items, 'labels')}"


def read(config: TokenLabels, file: Path | Rows) -> TokenLabelFile:
    """Return the sentences of a file, for `TaskConfig.read`.

    Raise `DomainbertError` as `read_columns` and `read_lists`, for label names set for CoNLL, and for a label with
    surrounding white space, with invisible characters, or in a line that begins a document.
    """
    format, path = config.format, Path(str(file))
    opened = open_file(file, format.kind, ("conll", "jsonl"))
    problems, notes = Problems(str(file)), ReaderCounts()
    if opened.kind == "conll":
        refuse_names_for_conll(format, file)
        table = read_columns(path, opened.lines, format)
    else:
        rows = sentence_rows(opened, problems, notes.left_out)
        line, first_row = rows[0]
        table = read_lists(opened, rows, problems, word_and_tag_keys(f"{file}:{line}", first_row, format), format)
    _check_labels(table, config.outside, problems)
    sentences = [TaggedSentence(row.words, row.tags, row.line, row.document) for row in table.rows]
    return TokenLabelFile(path, sentences, table.kind, table.layout, table.marks, notes=notes)


def _check_labels(table: TaggedTable, outside: str | None, problems: Problems) -> None:
    """Check the labels of words and of `-DOCSTART-` lines, which are not words, so that their labels would be lost.

    There, the label `outside`, and a tag that no word has (such as -X-), are accepted; without `outside`, any label is.
    """
    for row in table.rows:
        for label, line in zip(row.tags, row.lines, strict=True):
            if not is_visible(label):
                expected = "visible characters and no white space around them"
                problems.add(f"label {shown(label)}", file=problems.subject, line=line, expected=expected)
    word_labels = {label for row in table.rows for label in row.tags} - {outside}
    for mark in table.marks if outside is not None else ():
        if mark.tag in word_labels:
            found, expected = f"-DOCSTART- has the label {mark.tag!r}", f"{outside!r}, the value of task.outside"
            problems.add(found, file=problems.subject, line=mark.line, expected=expected)
    problems.raise_if_any()
