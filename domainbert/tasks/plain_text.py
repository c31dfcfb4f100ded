"""The words or texts of any labelled file, whatever its labels. Free of torch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from domainbert.base.errors import Problems
from domainbert.corpus.columns import read_words
from domainbert.corpus.json_values import problem_with_strings, problem_with_text
from domainbert.tasks.text_files import file_kind, parsed, refuse, rows_of


def read_words_or_texts(path: Path) -> list[str]:
    """The words of a tagged file, or the texts of one with classes or entities, whatever its labels.

    They stand where they usually do: in the first column of CoNLL, under "tokens" or "text" in JSONL, "text" in CSV.

    Raises:
        DomainbertError: a file whose kind cannot be told, or that cannot be read.
    """
    kind = file_kind(path, "auto", ("conll", "jsonl", "csv", "tsv"))
    print(f"{path}: read as {kind}")
    if kind.kind == "conll":
        return [word for sentence in read_words(path) for word in sentence]
    problems = Problems(str(path))

    def words_of(row: dict[str, Any], _: int) -> list[str]:
        if kind.kind == "jsonl" and "tokens" in row:
            refuse(problem_with_strings(row, "tokens"))
            words: list[str] = row["tokens"]
            return words
        refuse(problem_with_text(row, "text", may_be_empty=True))
        return [row["text"]]

    found = parsed(rows_of(path, kind.kind, ["text"], problems), problems, words_of)
    problems.raise_if_any()
    return [word for words in found for word in words]
