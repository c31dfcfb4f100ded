"""The training, validation and test set in a folder, by the usual names of files."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from domainbert.base.errors import DomainbertError, listed
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
    """The sets of a labelled file or folder; where there is but one held-out set, it is the test set."""

    train: Single
    validation: Single | None = None
    test: Single | None = None
    left: tuple[str, ...] = ()
    """Names in the folder that belong to none."""

    @property
    def files(self) -> list[Path]:
        """The files of all sets."""
        sets = [one for one in (self.train, self.validation, self.test) if one is not None]
        return [path for one in sets for path in paths_of(one)]


def find_splits(path: Path) -> Splits:
    """The sets in a file, which is alone, or a folder.

    Raises:
        DomainbertError: there is no such path; a folder has no training set, two files for one, or sets in folders.
    """
    if not path.exists():
        raise DomainbertError(
            f"{path}: no such file or folder; expected labelled files (docs/reference/labelled-files.md)"
        )
    if not path.is_dir():
        check_regular(path)
        return Splits(path)
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    found: dict[Split, list[Path]] = {}
    for entry in entries:
        if (split := _split_of(entry)) is not None:
            found.setdefault(split, []).append(entry)
    if not found and any(entry.suffix == ".ann" for entry in entries):
        return Splits(path)  # documents of one set
    if "train" not in found:
        raise DomainbertError(f"{path}: {_nothing(entries)}; {_EXPECTED}")
    sets = {split: _one_set(path, split, files) for split, files in found.items()}
    used = {entry for files in found.values() for entry in files}
    left = tuple(entry.name for entry in entries if entry not in used)
    validation, test = sets.get("validation"), sets.get("test")
    if test is None:
        validation, test = None, validation
    return Splits(sets["train"], validation, test, left)


def _words(path: Path) -> list[str]:
    return re.findall("[a-z]+", path.name.lower())


def _split_of(path: Path) -> Split | None:
    return next((_SPLITS[word] for word in _words(path) if word in _SPLITS), None)


def _one_set(folder: Path, split: str, files: list[Path]) -> Single:
    """The file of a split, or a file with a text a line and one with its labels."""
    if len(files) == 1:
        return files[0]
    texts, labels = ([file for file in files if set(_words(file)) & words] for words in (_TEXTS, _LABELS))
    if len(files) == 2 and len(texts) == 1 and len(labels) == 1 and texts != labels:
        return LabelledFile(text=texts[0], label=labels[0])
    names = listed(file.name for file in files)
    raise DomainbertError(f"{folder}: {names} for {split}; expected one file, or one with texts and one with labels")


def _nothing(entries: Iterable[Path]) -> str:
    """A sentence about a folder without a training set."""
    folders = [entry.name for entry in entries if entry.is_dir() and any(map(_split_of, entry.iterdir()))]
    if folders:
        return f"sets stand in {listed(folders)} of it, which are learnt one by one: give one of these folders"
    return f"no training set among {listed(entry.name for entry in entries)}"
