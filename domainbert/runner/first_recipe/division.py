"""Divides a labelled set that lacks a validation or a test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from domainbert.corpus.files import format_suffix
from domainbert.labelled.folds import hold_out
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import LabelledFile, Single, path_of, paths_of, read_file
from domainbert.runner.first_recipe.splits import Splits
from domainbert.tasks.config import TaskConfig

_PARTS = 10  # of which one is held out
_SEED = 0
_FEW = 300  # texts in a test set


@dataclass(frozen=True)
class Division:
    """The three sets, and what they hold; some of their files are yet to be written."""

    splits: Splits
    read: Mapping[str, Labelled[Any]]
    files: Mapping[Path, str] = field(default_factory=dict)
    reason: str = ""


def divide(splits: Splits, task: TaskConfig, folder: Path) -> Division:
    """All three sets: a tenth of the documents becomes the test set where there is none, then a tenth validation.

    `DomainbertError` if there are too few documents, or the files cannot be divided.
    """
    if splits.validation is not None and splits.test is not None:
        return Division(splits, _read(task, splits))
    with TemporaryDirectory() as place:
        contents: dict[Path, str] = {}
        train, test = splits.train, splits.test
        if test is None:
            fold = hold_out(train, task, _PARTS, _SEED)
            test = _write(train, Path(place), "test", fold.validation, contents)
            train = _write(train, Path(place), "train", fold.train, contents)
        fold = hold_out(train, task, _PARTS, _SEED)
        validation = _write(train, Path(place), "validation", fold.validation, contents)
        train = _write(train, Path(place), "train", fold.train, contents)
        made = replace(splits, train=train, validation=validation, test=test)
        read = _read(task, made)
    train, validation, test = (_moved(file, Path(place), folder) for file in (train, validation, test))
    files = {folder / path.name: text for path, text in contents.items()}
    final = replace(splits, train=train, validation=validation, test=test)
    return Division(final, read, files, _reason(splits, folder, len(read["test"].items)))


def _read(task: TaskConfig, splits: Splits) -> dict[str, Labelled[Any]]:
    sets = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {name: read_file(task, file) for name, file in sets.items() if file is not None}


def _write(like: Single, folder: Path, name: str, texts: Sequence[str], contents: dict[Path, str]) -> Single:
    """Write a part of a set into a folder, and note its contents."""
    several = len(paths_of(like)) > 1
    paths = [
        folder / f"{name}{part if several else ''}{format_suffix(path)}"
        for part, path in zip(("_text", "_labels"), paths_of(like), strict=False)
    ]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8", newline="\n")
        contents[path] = text
    return LabelledFile(text=paths[0], label=paths[1]) if several else paths[0]


def _moved(file: Single, place: Path, folder: Path) -> Single:
    """The same file in its last folder; one that was not divided stays where it is."""
    if path_of(file).parent != place:
        return file
    paths = [folder / path.name for path in paths_of(file)]
    return LabelledFile(text=paths[0], label=paths[1]) if len(paths) > 1 else paths[0]


def _reason(splits: Splits, folder: Path, tests: int) -> str:
    """One sentence on what was divided, and why."""
    if splits.test is not None:
        name = path_of(splits.test).name
        return (
            f"{name} is the only held-out set, so it is the test set; a tenth of training becomes validation, in "
            f"{folder}/, as scores of the set that chose the epoch would flatter"
        )
    few = "" if tests >= _FEW else f"; {tests} texts in test give wide intervals: more labels would help most"
    return (
        f"one set alone is divided by documents into train (81 %), validation (9 %) and test (10 %), in {folder}/: "
        f"scores need text that chose nothing, and folds (`domainbert tune`, k_folds) are for choosing{few}"
    )
