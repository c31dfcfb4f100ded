"""Cross-validation for small data: a training file in parts; each part validates training on the others."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from domainbert.base.errors import DomainbertError
from domainbert.base.files import write_text
from domainbert.corpus.file_kind import Kind
from domainbert.corpus.files import read_lines
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.label_names import NAMES_KEY
from domainbert.tasks.labelled import Unit


@dataclass(frozen=True)
class Fold:
    """Contents of the files of one fold."""

    train: str
    validation: str


def split_folds(train: Path, task: TaskConfig, num_folds: int, seed: int) -> list[Fold]:
    """Split a training file; sentences of a document stay together, classes are spread evenly.

    The lines are those of the file, in its order; names of labels that stand in the first row of a JSONL file are
    repeated in the first row of each fold's files.

    Raises:
        DomainbertError: there are fewer units than folds, or the training of a fold would lack a label.
    """
    file = task.read(train)
    units = file.units()
    if len(units) < num_folds:
        raise DomainbertError(f"k_folds: {num_folds}, but {train} has {len(units)} documents; expected as many or more")
    part = _deal(units, num_folds, seed)
    _check_labels(units, part, train)

    @cache
    def lines() -> list[str]:
        return [f"{line}\n" for _, line in read_lines(train)]

    def joined(number: int, inside: bool) -> str:
        chosen = [unit for unit, one in enumerate(part) if (one == number) is inside]
        own = file.part(chosen)
        return _lines_of(lines(), units, chosen, file.kind) if own is None else own

    return [Fold(joined(number, inside=False), joined(number, inside=True)) for number in range(num_folds)]


def _lines_of(lines: Sequence[str], units: Sequence[Unit], chosen: Sequence[int], kind: Kind) -> str:
    """The lines of some units, below those that stand before the first unit."""
    header = units[0].line - 1
    starts = [header, *(unit.line - 1 for unit in units[1:]), len(lines)]
    text = "".join(line for unit in chosen for line in lines[starts[unit] : starts[unit + 1]])
    return "".join(lines[:header]) + (_named_as(lines[header], text) if kind == "jsonl" else text)


def write_folds(folds: Sequence[Fold], suffix: str, out: Path) -> dict[str, dict[str, str]]:
    """Write `fold-1/train...` and `fold-1/validation...`, `fold-2/...` and so on, with a suffix such as `.conll`.

    Returns:
        For each fold, by the name of its folder, the stage's settings that change.
    """
    changes: dict[str, dict[str, str]] = {}
    for number, fold in enumerate(folds, 1):
        name = f"fold-{number}"
        paths = {key: out / name / f"{key}{suffix}" for key in ("train", "validation")}
        _write(paths["train"], fold.train)
        _write(paths["validation"], fold.validation)
        changes[name] = {key: str(path) for key, path in paths.items()}
    return changes


def _named_as(first: str, rows: str) -> str:
    """Rows of JSONL with the names of labels of `first`, the first row of the whole file, in their first row."""
    line, _, rest = rows.partition("\n")
    names, row = json.loads(first).get(NAMES_KEY), json.loads(line)
    if row.pop(NAMES_KEY, None) == names:
        return rows
    return f"{json.dumps(row if names is None else {**row, NAMES_KEY: names})}\n{rest}"


def _check_labels(units: Sequence[Unit], part: Sequence[int], train: Path) -> None:
    """Refuse a label that is in the documents of one fold only: training without them would not know it."""
    folds: dict[str, set[int]] = {}
    for unit, number in zip(units, part, strict=True):
        for label in unit.labels:
            folds.setdefault(label, set()).add(number)
    alone = [f"{label!r} in fold {min(found) + 1} only" for label, found in sorted(folds.items()) if len(found) == 1]
    if alone:
        raise DomainbertError(
            f"k_folds: {train} has {', '.join(alone)}, whose training would not know it; "
            "expected fewer folds, or labels that occur in more documents"
        )


def _deal(units: Sequence[Unit], num_folds: int, seed: int) -> list[int]:
    """The fold of each unit: shuffled, then dealt out by strata, so that folds differ by one of each at most."""
    order = list(range(len(units)))
    random.Random(seed).shuffle(order)
    order.sort(key=lambda number: units[number].stratum)
    part = [0] * len(units)
    for position, number in enumerate(order):
        part[number] = position % num_folds
    return part


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this content already: trials of other workers may be reading it."""
    if not path.is_file() or path.read_bytes() != text.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
