"""Rows of labelled sets: texts and labels in two files, and the slices that rows are in. Free of torch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import check_regular
from domainbert.corpus.files import read_lines
from domainbert.labelled.json_values import is_whole_number, problem_with_text
from domainbert.labelled.sets import LabelledFile, Single

Row = dict[str, Any]
_ANSWER, _NOT_ACCEPTED = "answer", ("reject", "ignore")  # of Prodigy, which keeps such texts in its export


def parallel_rows(texts: Path, labels: Path, text_key: str, label_key: str) -> Iterator[tuple[int, Row]]:
    """Rows of two files, line by line, under these keys; `DomainbertError` where one has more lines."""
    files = texts, labels
    for path in files:
        check_regular(path)
    columns = [[line for _, line in read_lines(path)] for path in files]
    if len(columns[0]) != len(columns[1]):
        (less, other), (more, longer) = sorted(zip(map(len, columns), files, strict=True))
        expected = "expected a label in each line for the text in the same line"
        raise DomainbertError(f"{longer}:{less + 1}: {more:,} lines, but {other} has {less:,}; {expected}")
    pairs = zip(*columns, strict=True)
    return ((line, {text_key: text, label_key: label}) for line, (text, label) in enumerate(pairs, 1))


def with_slices(rows: Iterator[tuple[int, Row]], file: LabelledFile, problems: Problems) -> Iterator[tuple[int, Row]]:
    """The rows with the slices of the whole file; a row that has a key of these itself is noted as a problem."""
    for line, row in rows:
        if twice := [key for key in file.by if key in row]:
            problems.add(f"{file}:{line}: {twice[0]!r} is in the row and in `by` of the file; expected one of them")
        yield line, {**row, **file.by}


def accepted(
    rows: Iterable[tuple[int, Row]], left_out: Counter[str], keys: Collection[str] = ()
) -> Iterator[tuple[int, Row]]:
    """The rows without the texts that an annotator rejected or ignored in Prodigy (`answer`), which are counted; all
    rows if `answer` is one of the `keys` that a task reads."""
    for line, row in rows:
        if _ANSWER not in keys and row.get(_ANSWER) in _NOT_ACCEPTED:
            left_out["texts that were not accepted"] += 1
        else:
            yield line, row


def is_answer(rows: Iterable[Row], key: str) -> bool:
    """Whether Prodigy has written the values of a key: what an annotator thought of the text, which is no label."""
    return key == _ANSWER and all(row.get(key) in ("accept", *_NOT_ACCEPTED) for row in rows)


def placed(problem: str, file: Single, line: int) -> str:
    """A problem with a label, with its place where labels have a file of their own; an empty string is none."""
    if not problem or isinstance(file, Path) or file.label is None:
        return problem
    return f"{problem} ({file.label}:{line})"


def problems_with_slices(row: Row, by: Sequence[str]) -> list[str]:
    """The reasons why a row is not in a slice of each key."""
    found = [problem_with_text(row, key) for key in by if not is_whole_number(row.get(key))]
    return [problem.replace("expected a string", "expected a string or whole number") for problem in found if problem]


def slices_of(row: Row, by: Sequence[str]) -> dict[str, str]:
    """The slices of a row without problems, by key."""
    return {key: str(row[key]) for key in by}
