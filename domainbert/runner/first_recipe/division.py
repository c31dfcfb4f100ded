"""Split a labelled set that has no validation or test set."""

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

_NUM_PARTS = 10  # one part is held out
_SEED = 0
_SMALL_TEST = 300  # texts in a test set


@dataclass(frozen=True)
class Division:
    """The training, validation and test set of a recipe."""

    splits: Splits
    contents: Mapping[str, Labelled[Any]]
    """Items of the sets by `train`, `validation` and `test`."""
    files: Mapping[Path, str] = field(default_factory=dict)
    """Texts of the files to write; empty if nothing was split."""
    reason: str = ""
    """Sentence that states the split and its reason; empty if nothing was split."""


def divide(splits: Splits, task: TaskConfig, folder: Path) -> Division:
    """Return all three sets; a missing test set and a missing validation set take a tenth of the documents each.

    The parts are not written yet; `folder` is where they will be.

    Raises:
        DomainbertError: there are too few documents, or the files cannot be split.
    """
    if splits.validation is not None and splits.test is not None:
        return Division(splits, _read_sets(task, splits))
    with TemporaryDirectory() as name:
        temporary = Path(name)
        new_files: dict[Path, str] = {}
        train, test = splits.train, splits.test
        if test is None:
            fold = hold_out(train, task, _NUM_PARTS, _SEED)
            test = _write_part(train, temporary, "test", fold.validation, new_files)
            train = _write_part(train, temporary, "train", fold.train, new_files)
        fold = hold_out(train, task, _NUM_PARTS, _SEED)
        validation = _write_part(train, temporary, "validation", fold.validation, new_files)
        train = _write_part(train, temporary, "train", fold.train, new_files)
        contents = _read_sets(task, replace(splits, train=train, validation=validation, test=test))
    train, validation, test = (_in_final_folder(file, temporary, folder) for file in (train, validation, test))
    files = {folder / path.name: text for path, text in new_files.items()}
    final = replace(splits, train=train, validation=validation, test=test)
    return Division(final, contents, files, _reason(splits, folder, len(contents["test"].items)))


def _read_sets(task: TaskConfig, splits: Splits) -> dict[str, Labelled[Any]]:
    sets = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    return {name: read_file(task, file) for name, file in sets.items() if file is not None}


def _write_part(source: Single, folder: Path, name: str, texts: Sequence[str], new_files: dict[Path, str]) -> Single:
    """Write a part of `source` in the same format, add its files to `new_files`, and return the part."""
    several = len(paths_of(source)) > 1
    paths = [
        folder / f"{name}{part if several else ''}{format_suffix(path)}"
        for part, path in zip(("_text", "_labels"), paths_of(source), strict=False)
    ]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text, encoding="utf-8", newline="\n")
        new_files[path] = text
    return LabelledFile(text=paths[0], label=paths[1]) if several else paths[0]


def _in_final_folder(file: Single, temporary: Path, folder: Path) -> Single:
    """Return a temporary file with its final folder; a file of the user keeps its folder."""
    if path_of(file).parent != temporary:
        return file
    paths = [folder / path.name for path in paths_of(file)]
    return LabelledFile(text=paths[0], label=paths[1]) if len(paths) > 1 else paths[0]


def _reason(splits: Splits, folder: Path, num_test: int) -> str:
    if splits.test is not None:
        name = path_of(splits.test).name
        return (
            f"{name} is the only held-out set, so it is the test set; a tenth of training becomes validation, in "
            f"{folder}/, because scores on the set that selects the epoch are too high"
        )
    few = f"; {num_test} texts in test give wide intervals: more labels would help most" * (num_test < _SMALL_TEST)
    return (
        f"the single set is split by documents into train (81 %), validation (9 %) and test (10 %), in {folder}/: "
        f"a test set must not be used for selection; to select with folds, use `domainbert tune` with k_folds{few}"
    )
