"""Splits of a labelled set: folds of cross-validation, or a held-out part."""

from __future__ import annotations

import json
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.files import write_text
from domainbert.corpus.file_kind import read_first_lines
from domainbert.corpus.files import format_suffix, read_lines
from domainbert.corpus.rows import Rows, json_rows
from domainbert.labelled.items import Labelled, Unit
from domainbert.labelled.label_names import NAMES_KEY
from domainbert.labelled.rows import has_json_values
from domainbert.labelled.sets import (
    FileTask,
    LabelledSet,
    Single,
    files_of,
    open_rows,
    paths_of,
    read_set,
    set_name,
    with_paths,
)

_LONG, _FEW = 3, 3  # units stay together if they share an entity of _LONG or more words that at most _FEW units have


@dataclass(frozen=True)
class Fold:
    """File contents of one fold, one string per path of the training set, in its order."""

    train: list[str]
    validation: list[str]


def split_folds(train: LabelledSet, task: FileTask, num_folds: int, seed: int) -> list[Fold]:
    """Split a training set into folds, stratified by class; documents stay whole, and units that share a rare entity
    stay together.

    Lines keep their order. Label names in the first row of a JSONL file are repeated in the first row of each fold's
    files. A separate label file is split like its texts.

    Raises:
        DomainbertError: there are fewer units than folds, or the training part of a fold has no example of a label.
    """
    whole = read_set(task, train)
    units, groups = _units(whole), _groups(whole)
    if len(set(groups)) < num_folds:
        raise DomainbertError(
            f"k_folds: found {num_folds}, but {_few(train, units, groups)}; expected at most {len(set(groups))}"
        )
    dealt = _deal(units, groups, num_folds, seed)
    _check_labels(units, dealt, set_name(train))
    return _folds(train, whole, dealt, num_folds)


def hold_out(given: LabelledSet, task: FileTask, num_parts: int, seed: int) -> Fold:
    """Hold out one of `num_parts` parts for validation; a document with a label that no other has stays in training.

    Raise `DomainbertError` if there are fewer documents than parts.
    """
    whole = read_set(task, given)
    units, groups = _units(whole), _groups(whole)
    if len(set(groups)) < num_parts:
        few = _few(given, units, groups)
        raise DomainbertError(f"{few}; expected at least {num_parts}, because one of {num_parts} parts is held out")
    dealt = _deal(units, groups, num_parts, seed)
    trained = {label for unit, part in zip(units, dealt, strict=True) if part > 0 for label in unit.labels}
    fold_of = [int(part > 0 or not unit.labels <= trained) for unit, part in zip(units, dealt, strict=True)]
    return _folds(given, whole, fold_of, 2)[0]


def _units(whole: Labelled[Any]) -> list[Unit]:
    return list(chain(*(part.units() for part in whole.parts or [whole])))


def _few(given: LabelledSet, units: Sequence[Unit], groups: Sequence[int]) -> str:
    shared = f", in {len(set(groups))} groups without common rare entities" if len(set(groups)) < len(units) else ""
    return f"{set_name(given)} has {len(units)} documents{shared}"


def _folds(given: LabelledSet, whole: Labelled[Any], dealt: Sequence[int], num_folds: int) -> list[Fold]:
    """Build the folds from the fold number of each unit."""
    folds, remaining = [Fold([], []) for _ in range(num_folds)], iter(dealt)
    for file, part in zip(files_of(given), whole.parts or [whole], strict=True):
        units = part.units()
        fold_of = list(islice(remaining, len(units)))
        contents = _Contents(file, part, units)
        for number, fold in enumerate(folds):
            fold.train.extend(contents.of([unit for unit, held_in in enumerate(fold_of) if held_in != number]))
            fold.validation.extend(contents.of([unit for unit, held_in in enumerate(fold_of) if held_in == number]))
    return folds


@dataclass(frozen=True)
class _Contents:
    """A file of a set, or a pair of text and label file, to be divided by units."""

    file: Single
    read: Labelled[Any]
    units: Sequence[Unit]

    def of(self, chosen: Sequence[int]) -> list[str]:
        """Contents of each path with only the chosen units; empty strings if there are none."""
        part = self.read.part(chosen) if chosen else None
        return [self._lines_of(lines, chosen) for lines in self.lines] if part is None else [part]

    @cached_property
    def lines(self) -> list[list[str]]:
        """Lines of each path; a JSON array or data set is converted to JSON Lines."""
        source, paths = open_rows(self.file), paths_of(self.file)
        if isinstance(source, Rows):
            rows = source.numbered(Problems(str(source)))
            return [[f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for _, row in rows]]
        if self.read.kind == "jsonl" and "".join(read_first_lines(paths[0])).lstrip().startswith("["):
            rows = json_rows(paths[0], Problems(str(paths[0])))
            return [[f"{json.dumps(row, ensure_ascii=False)}\n" for _, row in rows]]
        return [[f"{line}\n" for _, line in read_lines(path)] for path in paths]

    def _lines_of(self, lines: Sequence[str], chosen: Sequence[int]) -> str:
        """Return the lines before the first unit, then the lines of the chosen units."""
        if not chosen:
            return ""
        header = self.units[0].line - 1
        starts = [header, *(unit.line - 1 for unit in self.units[1:]), len(lines)]
        text = "".join(line for unit in chosen for line in lines[starts[unit] : starts[unit + 1]])
        return "".join(lines[:header]) + (_named_as(lines[header], text) if has_json_values(self.read.kind) else text)


def write_folds(folds: Sequence[Fold], train: LabelledSet, out: Path) -> dict[str, dict[str, Any]]:
    """Write `fold-1/train...`, `fold-1/validation...`, `fold-2/...` and so on, with the suffixes of the training set.

    Several files are numbered.

    Returns:
        The changed settings of the stage, by folder name of the fold.
    """
    changes: dict[str, dict[str, Any]] = {}
    paths = paths_of(train)
    for number, fold in enumerate(folds, 1):
        name = f"fold-{number}"
        for key, texts in (("train", fold.train), ("validation", fold.validation)):
            targets = [
                out / name / f"{key}{'' if len(paths) == 1 else f'-{index}'}{format_suffix(path)}"
                for index, path in enumerate(paths, 1)
            ]
            for target, text in zip(targets, texts, strict=True):
                _write(target, text)
            empty = [target for target, text in zip(targets, texts, strict=True) if not text]
            changes.setdefault(name, {})[key] = with_paths(train, targets, empty)
    return changes


def _named_as(first: str, rows: str) -> str:
    """Add the label names of `first`, the first row of the whole file, to the first of some JSONL rows."""
    line, _, rest = rows.partition("\n")
    names, row = json.loads(first).get(NAMES_KEY), json.loads(line)
    if row.pop(NAMES_KEY, None) == names:
        return rows
    return f"{json.dumps(row if names is None else {**row, NAMES_KEY: names})}\n{rest}"


def _check_labels(units: Sequence[Unit], part: Sequence[int], train: str) -> None:
    """Reject a label that only one fold has: training on the other folds would not learn it."""
    folds: dict[str, set[int]] = {}
    for unit, number in zip(units, part, strict=True):
        for label in unit.labels:
            folds.setdefault(label, set()).add(number)
    single = [
        f"{label!r} in fold {min(having) + 1} only" for label, having in sorted(folds.items()) if len(having) == 1
    ]
    if single:
        raise DomainbertError(
            f"k_folds: {train} has {', '.join(single)}, so training without that fold would not learn it; "
            "expected fewer folds, or labels that occur in more documents"
        )


def _groups(whole: Labelled[Any]) -> list[int]:
    """For each unit, the first unit of its group. Units that share an entity of `_LONG` words or more are in one group
    if at most `_FEW` units have the entity: such strings recur within a document and rarely elsewhere, so these
    sentences are likely from one document even if the file has no document marks.
    """
    units_with: dict[str, set[int]] = defaultdict(set)
    before = 0  # units of the previous files
    for part in whole.parts or [whole]:
        starts = [unit.line for unit in part.units()]
        for item, plain in zip(part.items, part.plain_items(), strict=True):
            for stretch in plain.stretches or ():
                words = plain.texts[0][stretch.start : stretch.end].lower().split()
                if len(words) >= _LONG:
                    units_with[" ".join(words)].add(before + max(bisect_right(starts, item.line) - 1, 0))
        before += len(starts)
    first = list(range(before))

    def first_of(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for units in units_with.values():
        if len(units) <= _FEW:
            firsts = sorted({first_of(number) for number in units})
            for other in firsts[1:]:
                first[other] = firsts[0]
    return [first_of(number) for number in range(before)]


def _deal(units: Sequence[Unit], groups: Sequence[int], num_folds: int, seed: int) -> list[int]:
    """Assign each unit to a fold: groups are shuffled, sorted by the stratum of their first unit and dealt out, so that
    the folds' counts of each stratum differ by at most one group."""
    order = list(range(len(units)))
    random.Random(seed).shuffle(order)
    order = [number for number in order if groups[number] == number]
    order.sort(key=lambda number: units[number].stratum)
    fold_of = {number: position % num_folds for position, number in enumerate(order)}
    return [fold_of[group] for group in groups]


def _write(path: Path, text: str) -> None:
    """Write a file unless it already has this content: trials of other workers may be reading it."""

    if not path.is_file() or path.read_bytes() != text.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
