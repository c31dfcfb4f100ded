"""Find the training, validation and test set in a folder by the names of the files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from domainbert.base.errors import DomainbertError, format_names
from domainbert.base.paths import check_regular
from domainbert.labelled.sets import LabelledFile, Single, paths_of

Split = Literal["train", "validation", "test"]

_SPLITS: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "devel", "development"), "validation"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
_TEXTS, _LABELS = {"text", "texts", "sentence", "sentences"}, {"label", "labels"}
_EXPECTED = "expected train, dev or validation, and test in the names of its files"


@dataclass(frozen=True)
class Splits:
    """Sets of a labelled file or folder; a single held-out set is the test set."""

    train: Single
    validation: Single | None = None
    test: Single | None = None
    unused: tuple[str, ...] = ()
    """Names in the folder that belong to no set."""

    @property
    def sets(self) -> list[Single]:
        """The sets that exist."""
        return [file for file in (self.train, self.validation, self.test) if file is not None]

    @property
    def files(self) -> list[Path]:
        """Paths of the files of all sets."""
        return [path for file in self.sets for path in paths_of(file)]


def find_splits(path: Path) -> Splits:
    """Return the sets in a folder, found by the names of the files; a single file is a training set.

    Raises:
        DomainbertError: the path does not exist; the folder has no training set, several files for a set, or its sets
            are in subfolders.
    """
    if not path.exists():
        raise DomainbertError(
            f"{path}: no such file or folder; expected labelled files (docs/reference/labelled-files.md)"
        )
    if not path.is_dir():
        check_regular(path)
        return Splits(path)
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    files_by_split: dict[Split, list[Path]] = {}
    for entry in entries:
        if (split := _split_of(entry)) is not None:
            files_by_split.setdefault(split, []).append(entry)
    if not files_by_split and any(entry.suffix == ".ann" for entry in entries):
        return Splits(path)  # documents of one set
    if "train" not in files_by_split:
        raise DomainbertError(f"{path}: {_describe_missing(entries)}; {_EXPECTED}")
    sets = {split: _combine_files(path, split, files) for split, files in files_by_split.items()}
    used = {entry for files in files_by_split.values() for entry in files}
    unused = tuple(entry.name for entry in entries if entry not in used)
    validation, test = sets.get("validation"), sets.get("test")
    if test is None:
        validation, test = None, validation
    return Splits(sets["train"], validation, test, unused)


def _name_words(path: Path) -> list[str]:
    return re.findall("[a-z]+", path.name.lower())


def _split_of(path: Path) -> Split | None:
    return next((_SPLITS[word] for word in _name_words(path) if word in _SPLITS), None)


def _combine_files(folder: Path, split: str, files: list[Path]) -> Single:
    """Return the set of a split: its file, or a pair of files, one with a text per line, one with the labels."""
    if len(files) == 1:
        return files[0]
    texts, labels = ([file for file in files if set(_name_words(file)) & words] for words in (_TEXTS, _LABELS))
    if len(files) == 2 and len(texts) == 1 and len(labels) == 1 and texts != labels:
        return LabelledFile(text=texts[0], label=labels[0])
    names = format_names(file.name for file in files)
    raise DomainbertError(
        f"{folder}: {split} has {names}; expected one file, or a file with texts and a file with labels"
    )


def _describe_missing(entries: Iterable[Path]) -> str:
    """Return the reason why there is no training set, for an error."""
    folders = [entry.name for entry in entries if entry.is_dir() and any(map(_split_of, entry.iterdir()))]
    if folders:
        return f"no training set, but sets in its subfolders {format_names(folders)}: name one of them"
    return f"no training set among {format_names(entry.name for entry in entries)}"
