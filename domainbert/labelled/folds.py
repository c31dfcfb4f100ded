"""A labelled set in parts: for cross-validation each part validates training on the others, or one is held out."""

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
from domainbert.corpus.file_kind import look
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
    moved,
    opened,
    paths_of,
    read_set,
    set_name,
)

_LONG, _FEW = 3, 3  # words of an entity, and units that have it, for them to belong together


@dataclass(frozen=True)
class Fold:
    """Contents of the files of one fold: of each file of the training set, in its order."""

    train: list[str]
    validation: list[str]


def split_folds(train: LabelledSet, task: FileTask, num_folds: int, seed: int) -> list[Fold]:
    """Split a training set; sentences of a document stay together, and so do those that share a rare entity; classes
    are spread evenly.

    The lines are those of each file, in its order; names of labels that stand in the first row of a JSONL file are
    repeated in the first row of each fold's files. Labels in a file beside the texts are split with them.

    Raises:
        DomainbertError: there are fewer units than folds, or the training of a fold would lack a label.
    """
    whole = read_set(task, train)
    units, groups = _units(whole), _groups(whole)
    if len(set(groups)) < num_folds:
        raise DomainbertError(f"k_folds: {num_folds}, but {_few(train, units, groups)}; expected as many or more")
    dealt = _deal(units, groups, num_folds, seed)
    _check_labels(units, dealt, set_name(train))
    return _folds(train, whole, dealt, num_folds)


def hold_out(given: LabelledSet, task: FileTask, num_parts: int, seed: int) -> Fold:
    """One part in so many of a set as the validation of a fold; a document whose label no other one has is trained on.

    `DomainbertError` if there are fewer documents than parts.
    """
    whole = read_set(task, given)
    units, groups = _units(whole), _groups(whole)
    if len(set(groups)) < num_parts:
        few = _few(given, units, groups)
        raise DomainbertError(f"{few}; expected {num_parts} or more, of which one part is held out")
    dealt = _deal(units, groups, num_parts, seed)
    known = {label for unit, part in zip(units, dealt, strict=True) if part > 0 for label in unit.labels}
    held = [part == 0 and unit.labels <= known for unit, part in zip(units, dealt, strict=True)]
    return _folds(given, whole, [0 if one else 1 for one in held], 2)[0]


def _units(whole: Labelled[Any]) -> list[Unit]:
    return list(chain(*(part.units() for part in whole.parts or [whole])))


def _few(given: LabelledSet, units: Sequence[Unit], groups: Sequence[int]) -> str:
    shared = f", of which {len(set(groups))} share no rare entity" if len(set(groups)) < len(units) else ""
    return f"{set_name(given)} has {len(units)} documents{shared}"


def _folds(given: LabelledSet, whole: Labelled[Any], dealt: Sequence[int], num_folds: int) -> list[Fold]:
    """The folds of a set that has been read, by the fold of each unit."""
    folds, remaining = [Fold([], []) for _ in range(num_folds)], iter(dealt)
    for file, part in zip(files_of(given), whole.parts or [whole], strict=True):
        own = part.units()
        fold_of = list(islice(remaining, len(own)))
        contents = _Contents(file, part, own)
        for number, fold in enumerate(folds):
            fold.train.extend(contents.of([unit for unit, one in enumerate(fold_of) if one != number]))
            fold.validation.extend(contents.of([unit for unit, one in enumerate(fold_of) if one == number]))
    return folds


@dataclass(frozen=True)
class _Contents:
    """One file of a set, or two that belong together, to be divided by units."""

    file: Single
    read: Labelled[Any]
    units: Sequence[Unit]

    def of(self, chosen: Sequence[int]) -> list[str]:
        """The contents, of each path, of a file with some of the units alone; empty where these are none."""
        own = self.read.part(chosen) if chosen else None
        return [self._lines_of(lines, chosen) for lines in self.lines] if own is None else [own]

    @cached_property
    def lines(self) -> list[list[str]]:
        """The lines of each path; a JSON array or data set is converted to JSON Lines."""
        source, paths = opened(self.file), paths_of(self.file)
        if isinstance(source, Rows):
            rows = source.numbered(Problems(str(source)))
            return [[f"{json.dumps(row, ensure_ascii=False, default=str)}\n" for _, row in rows]]
        if self.read.kind == "jsonl" and "".join(look(paths[0])).lstrip().startswith("["):
            rows = json_rows(paths[0], Problems(str(paths[0])))
            return [[f"{json.dumps(row, ensure_ascii=False)}\n" for _, row in rows]]
        return [[f"{line}\n" for _, line in read_lines(path)] for path in paths]

    def _lines_of(self, lines: Sequence[str], chosen: Sequence[int]) -> str:
        """The lines of some units, below those that stand before the first unit."""
        if not chosen:
            return ""
        header = self.units[0].line - 1
        starts = [header, *(unit.line - 1 for unit in self.units[1:]), len(lines)]
        text = "".join(line for unit in chosen for line in lines[starts[unit] : starts[unit + 1]])
        return "".join(lines[:header]) + (_named_as(lines[header], text) if has_json_values(self.read.kind) else text)


def write_folds(folds: Sequence[Fold], train: LabelledSet, out: Path) -> dict[str, dict[str, Any]]:
    """Write `fold-1/train...`, `fold-1/validation...`, `fold-2/...` and so on, with the suffixes of the training set.

    Its files are numbered if there are several.

    Returns:
        For each fold, by the name of its folder, the stage's settings that change.
    """
    changes: dict[str, dict[str, Any]] = {}
    paths = paths_of(train)
    for number, fold in enumerate(folds, 1):
        name = f"fold-{number}"
        for key, texts in (("train", fold.train), ("validation", fold.validation)):
            places = [
                out / name / f"{key}{'' if len(paths) == 1 else f'-{place}'}{format_suffix(path)}"
                for place, path in enumerate(paths, 1)
            ]
            for place, text in zip(places, texts, strict=True):
                _write(place, text)
            empty = [place for place, text in zip(places, texts, strict=True) if not text]
            changes.setdefault(name, {})[key] = moved(train, places, empty)
    return changes


def _named_as(first: str, rows: str) -> str:
    """Rows of JSONL with the names of labels of `first`, the first row of the whole file, in their first row."""
    line, _, rest = rows.partition("\n")
    names, row = json.loads(first).get(NAMES_KEY), json.loads(line)
    if row.pop(NAMES_KEY, None) == names:
        return rows
    return f"{json.dumps(row if names is None else {**row, NAMES_KEY: names})}\n{rest}"


def _check_labels(units: Sequence[Unit], part: Sequence[int], train: str) -> None:
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


def _groups(whole: Labelled[Any]) -> list[int]:
    """For each unit the first one of its group: units belong together that share an entity of three words or more which
    no more than three units have. Such strings come back within a document, and seldom elsewhere: sentences that share
    one are of one document, as a rule, even where the file does not say so.
    """
    having: dict[str, set[int]] = defaultdict(set)
    before = 0
    for part in whole.parts or [whole]:
        starts = [unit.line for unit in part.units()]
        for item, plain in zip(part.items, part.plain_items(), strict=True):
            for stretch in plain.stretches or ():
                words = plain.texts[0][stretch.start : stretch.end].lower().split()
                if len(words) >= _LONG:
                    having[" ".join(words)].add(before + max(bisect_right(starts, item.line) - 1, 0))
        before += len(starts)
    first = list(range(before))

    def first_of(number: int) -> int:
        while first[number] != number:
            number = first[number]
        return number

    for units in having.values():
        if len(units) <= _FEW:
            firsts = sorted({first_of(number) for number in units})
            for other in firsts[1:]:
                first[other] = firsts[0]
    return [first_of(number) for number in range(before)]


def _deal(units: Sequence[Unit], groups: Sequence[int], num_folds: int, seed: int) -> list[int]:
    """The fold of each unit: groups are shuffled, then dealt out by the strata of their first units, so that folds
    differ by one group of each at most."""
    order = list(range(len(units)))
    random.Random(seed).shuffle(order)
    order = [number for number in order if groups[number] == number]
    order.sort(key=lambda number: units[number].stratum)
    fold_of = {number: position % num_folds for position, number in enumerate(order)}
    return [fold_of[group] for group in groups]


def _write(path: Path, text: str) -> None:
    """Write a file unless it has this content already: trials of other workers may be reading it."""
    if not path.is_file() or path.read_bytes() != text.encode():
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
