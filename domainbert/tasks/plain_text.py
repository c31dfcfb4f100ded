"""The words or texts of any labelled file, whatever its labels. Free of torch."""

from __future__ import annotations

from pathlib import Path

from domainbert.base.errors import Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.columns import read_words
from domainbert.corpus.file_kind import look, tell_kind
from domainbert.corpus.json_values import problem_with_strings, problem_with_text
from domainbert.corpus.rows import json_rows
from domainbert.tasks.text_files import column_rows


def read_words_or_texts(path: Path) -> list[str]:
    """The words of a tagged file, or the texts of one with classes or entities, whatever its labels.

    They stand where they usually do: in the first column of CoNLL, under "tokens" or "text" in JSONL, "text" in CSV.

    Raises:
        DomainbertError: a file whose kind cannot be told, or that cannot be read.
    """
    check_regular(path)
    kind = tell_kind(path, look(path), ("conll", "jsonl", "csv", "tsv"))
    print(f"{path}: read as {kind}")
    if kind.kind == "conll":
        return [word for sentence in read_words(path) for word in sentence]
    problems = Problems(str(path))
    found: list[str] = []
    is_json = kind.kind == "jsonl"
    for line, row in json_rows(path, problems) if is_json else column_rows(path, kind.kind, ["text"], problems):
        with_words = is_json and "tokens" in row
        problem = problem_with_strings(row, "tokens") if with_words else problem_with_text(row, "text", True)
        if problem:
            problems.add(f"{path}:{line}: {problem}")
        else:
            found += row["tokens"] if with_words else [row["text"]]
    problems.raise_if_any()
    return found
