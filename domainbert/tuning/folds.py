"""Cross-validation for small data: a training file in parts, each of which validates what the others train."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from itertools import pairwise
from pathlib import Path

from domainbert.corpus.files import format_suffix, read_lines
from domainbert.data.labelled import read_classification, read_ner
from domainbert.errors import DomainbertError
from domainbert.objectives.task_config import Classification, Ner, TaskConfig


@dataclass(frozen=True)
class Fold:
    """The files of one fold."""

    train: Path
    validation: Path


@dataclass(frozen=True)
class _Unit:
    """What is not divided: a document of sentences, or a text."""

    line: int
    """Where it begins in the file, from 1."""
    label: str
    """Folds get the same share of each."""


def write_folds(train: Path, task: TaskConfig, num_folds: int, seed: int, out: Path) -> list[Fold]:
    """Split a training file; sentences of a document stay together, classes are spread evenly.

    The lines are those of the file, in its order.

    Args:
        train: the training file.
        task: how it is read.
        num_folds: how many parts.
        seed: of the order in which units are dealt out.
        out: where `fold-1/`, `fold-2/`, ... are written.

    Raises:
        DomainbertError: fewer units than folds; a task whose files are unknown here.
    """
    units, header = _units(train, task)
    if len(units) < num_folds:
        raise DomainbertError(f"k_folds: {num_folds}, but {train} has {len(units)} documents; expected as many or more")
    lines = [f"{line}\n" for _, line in read_lines(train)]
    starts = [header, *(unit.line - 1 for unit in units[1:]), len(lines)]
    texts = ["".join(lines[start:end]) for start, end in pairwise(starts)]
    part = _deal(units, num_folds, seed)
    folds = []
    for number in range(num_folds):
        fold = _fold(out / f"fold-{number + 1}", format_suffix(train))
        head = "".join(lines[:header])
        _write(fold.train, head + "".join(text for text, one in zip(texts, part, strict=True) if one != number))
        _write(fold.validation, head + "".join(text for text, one in zip(texts, part, strict=True) if one == number))
        folds.append(fold)
    return folds


def _fold(folder: Path, suffix: str) -> Fold:
    return Fold(folder / f"train{suffix}", folder / f"validation{suffix}")


def _units(train: Path, task: TaskConfig) -> tuple[list[_Unit], int]:
    """The units of a file, and how many lines stand before the first."""
    if isinstance(task, Classification):
        texts = read_classification(train, task.format.text_key, task.format.label_key)
        return [_Unit(text.line, text.label) for text in texts], texts[0].line - 1
    if not isinstance(task, Ner):
        raise DomainbertError(f"k_folds: the files of {task.name} cannot be split; expected Ner or Classification")
    with redirect_stdout(StringIO()):  # repairs are listed by the trials
        file = read_ner(train, task.format)
    firsts = [
        sentence
        for before, sentence in zip([None, *file.sentences], file.sentences, strict=False)
        if before is None or before.document != sentence.document
    ]
    if not file.marks_documents:
        return [_Unit(sentence.line, "") for sentence in firsts], firsts[0].line - 1
    marks = [number for number, line in read_lines(train) if line.lstrip(" ").startswith("-DOCSTART-")]
    return [_Unit(_mark_before(sentence.line, marks), "") for sentence in firsts], marks[0] - 1


def _mark_before(line: int, marks: Sequence[int]) -> int:
    """The last `-DOCSTART-` before a line, or the line itself."""
    return max((mark for mark in marks if mark < line), default=line)


def _deal(units: Sequence[_Unit], num_folds: int, seed: int) -> list[int]:
    """The fold of each unit: shuffled, then dealt out label by label, so that folds differ by one of each at most."""
    order = list(range(len(units)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda number: units[number].label)
    part = [0] * len(units)
    for position, number in enumerate(order):
        part[number] = position % num_folds
    return part


def _write(path: Path, text: str) -> None:
    """As a whole or not at all: several workers may write the same."""
    if path.is_file() and path.read_text(encoding="utf-8") == text:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.tmp")
    temporary.write_text(text, encoding="utf-8", newline="")
    temporary.replace(path)
