"""Splits of a labelled set: folds of cross-validation, or a held-out part."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError, Problems, counted
from domainbert.base.files import write_text
from domainbert.corpus.file_kind import read_first_lines
from domainbert.corpus.files import format_suffix, read_lines
from domainbert.corpus.rows import TYPED_KINDS, Row, Rows, json_rows
from domainbert.labelled.copies import copy_key, is_short, normal_words
from domainbert.labelled.items import Labelled, PlainItem, Unit
from domainbert.labelled.label_names import NAMES_KEY
from domainbert.labelled.row_values import is_unicode
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

_MIN_WORDS, _MAX_UNITS = 3, 3


@dataclass(frozen=True)
class Fold:
    """Training and validation part of one fold: the content of a file for each path of the set."""

    train: list[str]
    validation: list[str]


def split_folds(train: LabelledSet, task: FileTask, num_folds: int, seed: int) -> list[Fold]:
    """Return the folds of a training set for cross-validation, stratified by class, with lines in their order.

    A unit (`Labelled.units`), such as a document, is never divided; copies of a text, and units with a common rare
    entity, stay together. A separate label file is split like its texts.

    Raises:
        DomainbertError: there are fewer units than folds, or the training part of a fold has no example of a label.
    """
    labelled = read_set(task, train)
    units = _units(labelled)
    groups = _group_units(labelled, len(units))
    if (most := len(set(groups))) < num_folds:
        expected = f"at most {most}" if most > 1 else "no k_folds"
        size = _format_size(set_name(train), len(units), most)
        raise DomainbertError(where="k_folds", found=f"{num_folds}, but {size}", expected=expected)
    fold_of = _deal(units, groups, num_folds, seed)
    _check_labels(units, fold_of, set_name(train))
    return _build_folds(train, labelled, fold_of, num_folds)


def hold_out(labelled_set: LabelledSet, task: FileTask, num_parts: int, seed: int, name: str | None = None) -> Fold:
    """Return a set with one of `num_parts` parts held out for validation.

    A document of this part that has a label of no other part stays in training, with the documents of its group. Raise
    `DomainbertError` if there are fewer documents than parts, or none can be held out; `name` is the name of the set in
    the message.
    """
    name = name or set_name(labelled_set)
    labelled = read_set(task, labelled_set)
    units = _units(labelled)
    groups = _group_units(labelled, len(units))
    if (num_groups := len(set(groups))) < num_parts:
        size = _format_size(name, len(units), num_groups)
        expected = f"at least {num_parts} documents or groups, or --labelled FOLDER with train, dev and test files"
        raise DomainbertError(size, expected=expected)
    part_of = _deal(units, groups, num_parts, seed)  # part 0 is held out
    trained_labels = {label for unit, part in zip(units, part_of, strict=True) if part > 0 for label in unit.labels}
    with_other_labels = {group for unit, group in zip(units, groups, strict=True) if not unit.labels <= trained_labels}
    is_trained = [part > 0 or group in with_other_labels for part, group in zip(part_of, groups, strict=True)]
    if all(is_trained):
        found = "each document that was drawn for a held-out set has a label of no other document"
        raise DomainbertError(found, where=name, expected="more documents with each label")
    # two folds: fold 0 holds out the documents that are not trained on, and only fold 0 is used
    return _build_folds(labelled_set, labelled, fold_of=list(map(int, is_trained)), num_folds=2)[0]


def _units(labelled: Labelled[Any]) -> list[Unit]:
    # a set of one file has no `parts`
    return list(chain(*(file.units() for file in labelled.parts or [labelled])))


def _format_size(name: str, num_units: int, num_groups: int) -> str:
    size = f"{name} has {counted(num_units, 'documents')}"
    if num_groups == num_units:
        return size
    groups = counted(num_groups, "groups")
    return f"{size} in {groups}, because copies, and documents with a common rare entity, stay together"


def _build_folds(
    labelled_set: LabelledSet, labelled: Labelled[Any], fold_of: Sequence[int], num_folds: int
) -> list[Fold]:
    # `fold_of` is the fold that validates on each unit, of all files in order
    folds = [Fold([], []) for _ in range(num_folds)]
    remaining = iter(fold_of)
    for file, items in zip(files_of(labelled_set), labelled.parts or [labelled], strict=True):  # one file: no `parts`
        units = items.units()
        fold_of_unit = list(islice(remaining, len(units)))  # for the units of this file
        divider = _FileDivider(file, items, units)
        for index, fold in enumerate(folds):
            validated = [unit for unit, validating_fold in enumerate(fold_of_unit) if validating_fold == index]
            trained = [unit for unit, validating_fold in enumerate(fold_of_unit) if validating_fold != index]
            fold.train.extend(divider.contents(trained))
            fold.validation.extend(divider.contents(validated))
    return folds


@dataclass(frozen=True)
class _FileDivider:
    file: Single
    labelled: Labelled[Any]
    units: Sequence[Unit]

    def contents(self, chosen: Sequence[int]) -> list[str]:
        """Return the content of each path with only the units of the indices `chosen`; empty strings for no units."""
        content = self.labelled.file_content(chosen) if chosen else None
        if content is not None:  # the format of the file has its own way to leave units out
            return [content]
        contents = [self._lines_of(lines, chosen) for lines in self.lines]
        return list(map(_json_array, contents)) if self.is_array else contents

    @cached_property
    def is_array(self) -> bool:
        """Whether the file is a JSON array."""
        if self.labelled.kind != "jsonl":
            return False
        return next(filter(str.strip, read_first_lines(paths_of(self.file)[0])), "").lstrip().startswith("[")

    @cached_property
    def lines(self) -> list[list[str]]:
        """The lines of each path; the rows of a JSON array or data set as JSON Lines."""
        source, paths = open_rows(self.file), paths_of(self.file)
        problems = Problems(str(source))  # none: the file was read before
        if isinstance(source, Rows):
            return [[_json_line(row) for _, row in source.numbered(problems)]]
        if self.is_array:
            return [[_json_line(row) for _, row in json_rows(paths[0], read_lines(paths[0]), problems)]]
        return [[f"{line}\n" for _, line in read_lines(path)] for path in paths]

    def _lines_of(self, lines: Sequence[str], chosen: Sequence[int]) -> str:
        if not chosen:
            return ""
        starts = [*(unit.line - 1 for unit in self.units), len(lines)]
        num_header_lines = starts[0]
        text = "".join(line for index in chosen for line in lines[starts[index] : starts[index + 1]])
        if self.labelled.kind in TYPED_KINDS:
            text = _with_label_names(text, lines[num_header_lines])
        text = "".join(lines[:num_header_lines]) + text
        return f"\ufeff{text}" if text.startswith("\ufeff") else text  # readers skip one byte order mark


def _json_line(row: Row) -> str:
    # keys that no task reads may have half a surrogate pair, which is escaped
    line = json.dumps(row, ensure_ascii=False, default=str)
    return f"{line if is_unicode(line) else json.dumps(row, default=str)}\n"


def _json_array(lines: str) -> str:
    rows = lines.removesuffix("\n").replace("\n", ",\n")  # a line break in a row is escaped
    return f"[\n{rows}\n]\n" if rows else ""


def write_folds(folds: Sequence[Fold], train: LabelledSet, out: Path) -> dict[str, dict[str, Any]]:
    """Write `fold-1/train...`, `fold-1/validation...`, `fold-2/...` and so on, with the suffixes of the training set;
    several files are numbered (`train-1...`).

    Return the settings `train` and `validation` of the stage with the paths of each fold, by folder name (`fold-1`).
    """
    changes: dict[str, dict[str, Any]] = {}
    paths = paths_of(train)
    for number, fold in enumerate(folds, 1):
        folder = f"fold-{number}"
        for key, texts in (("train", fold.train), ("validation", fold.validation)):
            targets = [
                out / folder / f"{key}{'' if len(paths) == 1 else f'-{index}'}{format_suffix(path)}"
                for index, path in enumerate(paths, 1)
            ]
            for target, text in zip(targets, texts, strict=True):
                # trials of other workers may be reading the file
                if not target.is_file() or target.read_bytes() != text.encode():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    write_text(target, text)
            # a file without units is not listed in the settings
            empty = [target for target, text in zip(targets, texts, strict=True) if not text]
            changes.setdefault(folder, {})[key] = with_paths(train, targets, empty)
    return changes


def _with_label_names(rows: str, first_row_of_file: str) -> str:
    # the first row of a fold must have the label names of the file's first row: add, replace or remove them
    first_line, _, other_lines = rows.partition("\n")
    names_of_file, row = json.loads(first_row_of_file).get(NAMES_KEY), json.loads(first_line)
    names_of_row = row.pop(NAMES_KEY, None)
    if names_of_row == names_of_file:
        return rows
    if names_of_file is not None:
        row[NAMES_KEY] = names_of_file
    return f"{json.dumps(row)}\n{other_lines}"


def _check_labels(units: Sequence[Unit], fold_of: Sequence[int], train: str) -> None:
    folds_with: dict[str, set[int]] = defaultdict(set)
    for unit, fold in zip(units, fold_of, strict=True):
        for label in unit.labels:
            folds_with[label].add(fold)
    if single := [f"{label!r} in fold {min(f) + 1} only" for label, f in sorted(folds_with.items()) if len(f) == 1]:
        raise DomainbertError(
            f"{train} has {', '.join(single)}, so training without that fold would not learn it",
            where="k_folds",
            expected="fewer folds, or labels that occur in more documents that are not copies",
        )


def _items_of_units(labelled: Labelled[Any]) -> list[list[PlainItem]]:
    items_of_units: list[list[PlainItem]] = []
    for file in labelled.parts or [labelled]:
        items_of_file: list[list[PlainItem]] = [[] for _ in file.units()]
        for unit, item in zip(file.fold_units(), file.plain_items(), strict=True):
            items_of_file[unit].append(item)
        items_of_units += items_of_file
    return items_of_units


def _inseparable_units(labelled: Labelled[Any]) -> list[set[int]]:
    """Return sets of units that belong in the same fold: copies of a text, and units with a common rare entity.

    A copy in training would tell the labels of a validation text. An entity of `_MIN_WORDS` words or more in at most
    `_MAX_UNITS` units recurs within a document and rarely elsewhere, so these sentences are likely from one document
    even if the file has no document marks.
    """
    units_by_text: dict[Hashable, set[int]] = defaultdict(set)
    units_by_entity: dict[str, set[int]] = defaultdict(set)
    for unit, items in enumerate(_items_of_units(labelled)):
        words_of_items = [normal_words("\n".join(item.texts)) for item in items]
        if not is_short(list(chain(*words_of_items))):  # short texts may be equal by chance
            key_of_copies = tuple(map(copy_key, words_of_items, items))
            units_by_text[key_of_copies].add(unit)
        for item in items:
            for entity in item.stretches or ():
                entity_words = item.texts[0][entity.start : entity.end].lower().split()
                if len(entity_words) >= _MIN_WORDS:
                    units_by_entity[" ".join(entity_words)].add(unit)
    with_rare_entity = [units for units in units_by_entity.values() if len(units) <= _MAX_UNITS]
    return [*units_by_text.values(), *with_rare_entity]


def _group_units(labelled: Labelled[Any], num_units: int) -> list[int]:
    """Return for each unit the index of the first unit of its group, which must be in the same fold."""
    parents = list(range(num_units))  # a disjoint-set forest; the root of a group is its first unit

    def root(unit: int) -> int:
        while parents[unit] != unit:
            unit = parents[unit]
        return unit

    for units in _inseparable_units(labelled):
        first, *others = sorted(map(root, units))
        for other in others:
            parents[other] = first
    return list(map(root, range(num_units)))


def _deal(units: Sequence[Unit], groups: Sequence[int], num_folds: int, seed: int) -> list[int]:
    """Return the index of the fold of each unit: groups are shuffled, sorted by the stratum of their first unit and
    dealt out, so that the folds' counts of a stratum differ by at most one group."""
    order = list(range(len(units)))
    random.Random(seed).shuffle(order)
    order = [unit for unit in order if groups[unit] == unit]  # the first unit of each group
    order.sort(key=lambda unit: units[unit].stratum)
    fold_of = {unit: position % num_folds for position, unit in enumerate(order)}
    return [fold_of[group] for group in groups]
