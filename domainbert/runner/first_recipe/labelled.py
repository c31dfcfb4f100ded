"""Facts of a labelled file or folder for `domainbert init`: task, sets, texts.

The training, validation and test set of a folder are found by the names of the files; a single set is split.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal, get_args

from domainbert.base.errors import DomainbertError, Problems, counted, format_names
from domainbert.base.paths import check_regular
from domainbert.corpus.files import format_suffix
from domainbert.labelled.contents import words_of_content
from domainbert.labelled.file_sample import read_sample
from domainbert.labelled.folds import hold_out
from domainbert.labelled.items import Labelled, check_labels_known, find_labels
from domainbert.labelled.sets import LabelledFile, Single, path_of, paths_of, read_file, set_name
from domainbert.tasks.config import DetectedTask, FormatDetector, TaskConfig
from domainbert.tasks.recognition import detect_task

Split = Literal["train", "validation", "test"]

_SPLITS: dict[str, Split] = {
    **dict.fromkeys(("train", "training", "trn"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev", "devel", "development"), "validation"),
    **dict.fromkeys(("test", "testing", "tst"), "test"),
}
_TEXTS, _LABELS = {"text", "texts", "sentence", "sentences"}, {"label", "labels"}
_EXPECTED = "a file with 'train' in its name (optional: files with 'dev' or 'validation', and 'test')"
_NUM_PARTS = 10  # one part is held out
_SEED = 0
_SMALL_TEST = 300  # texts in a test set
_MAX_MEASURED_TEXTS = 20_000  # texts


@dataclass(frozen=True)
class Splits:
    """Sets of a labelled file or folder; a single held-out set is the test set."""

    sets: Mapping[Split, Single]  # the training set, and the other sets that exist
    unused: tuple[str, ...] = ()  # names in the folder that belong to no set


@dataclass(frozen=True)
class Division:
    """The training, validation and test set of a recipe."""

    splits: Splits
    contents: Mapping[Split, Labelled[Any]]  # items of the sets by name
    new_files: Mapping[Path, str] = field(default_factory=dict)
    """Contents of the files to write; empty if nothing was split."""
    reason: str = ""  # sentence that states the split and its reason; empty if nothing was split


@dataclass(frozen=True)
class LabelledFacts:
    """Facts of a labelled file or folder: task, sets and texts."""

    path: Path
    detected: DetectedTask
    task: TaskConfig  # the detected task, with repair enabled if the files need it
    repaired: str  # number of problems that have to be repaired, and the first one; empty if there are none
    division: Division  # the training, validation and test set
    texts: list[list[str]]  # words of a sample of the training texts

    @property
    def format_detector(self) -> FormatDetector[Any]:
        """Return the part of the task that recognised the file."""
        assert self.task.format_detector is not None
        return self.task.format_detector

    def describe(self) -> list[str]:
        """Return lines for the user: sizes, task, splits, notes and repairs."""
        contents, unused = self.division.contents, self.division.splits.unused
        sizes = ", ".join(f"{name} {len(labelled.items):,}" for name, labelled in contents.items())
        other_tasks = [f"--task {name}" for name in self.detected.others]
        lines = [f"{self.path}: {sizes}", f"{type(self.task).__name__}: {self.detected.reason}"]
        lines += [f"also possible: {' or '.join(other_tasks)}"] if other_tasks else []
        lines += [self.division.reason] if self.division.reason else []
        lines += [f"{name}, {note.strip()}" for name, labelled in contents.items() for note in labelled.notes.lines]
        lines += [f"repaired while reading: {self.repaired}"] if self.repaired else []
        lines += [f"not used in the folder: {', '.join(unused)}"] if unused else []
        return lines


def labelled_facts(path: Path, keys: Mapping[str, str], task: str | None, folder: Path) -> LabelledFacts:
    """Return the facts of a labelled file or folder, with a missing test or validation set split off.

    `keys` are keys that the user names: `text_key`, `text_pair_key`, `label_key`. `task` is the name of the task; None
    detects it. The parts of a set that has to be split are in `folder`.
    """
    splits = find_splits(path)
    detected = detect_task(read_sample(splits.sets["train"], keys), task)
    with redirect_stdout(io.StringIO()):  # readers print the kind of a file
        config, repaired = _task_for_files(detected.task, list(splits.sets.values()), path)
        division = divide(splits, config, folder)
        train = division.contents["train"]
        labels = find_labels(train.items)
        config.check_labels(labels)
        for labelled in division.contents.values():
            check_labels_known(find_labels(labelled.items), labels, labelled.path)
    stride = -(-len(train.items) // _MAX_MEASURED_TEXTS)  # rounded up
    texts = [words_of_content(item.content) for item in train.items[::stride]]
    return LabelledFacts(path, detected, config, repaired, division, texts)


def _task_for_files(task: TaskConfig, files: Sequence[Single], path: Path) -> tuple[TaskConfig, str]:
    """Return the task, with repair enabled if the files need it, and the repaired problems, or ""."""
    problems = Problems(str(path))
    for file in files:
        with problems.collecting():
            read_file(task, file)
    detector = task.format_detector
    with_repair = detector.with_repair(task) if detector is not None and problems.messages else None
    if with_repair is None:
        problems.raise_if_any()
        return task, ""
    for file in files:
        read_file(with_repair, file)  # raises the problems that cannot be repaired
    found = counted(len(problems.messages), "problems")
    return with_repair, f"{found}, such as {problems.messages[0].partition('; expected')[0]}"


def find_splits(path: Path) -> Splits:
    """Return the sets in a folder, found by the names of the files; a single file is a training set.

    A validation set without a test set becomes the test set.

    Raises:
        DomainbertError: the path does not exist; the folder has no training set, several files for a set, or its sets
            are in subfolders.
    """
    if not path.exists():
        raise DomainbertError(
            f"{path}: no such file or folder",
            where="--labelled",
            expected="labelled files (docs/reference/labelled-files.md)",
        )
    if not path.is_dir():
        check_regular(path)
        return Splits({"train": path})
    entries = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    files_by_split: dict[Split, list[Path]] = {}
    for entry in entries:
        if (split := _split_of(entry)) is not None:
            files_by_split.setdefault(split, []).append(entry)
    if not files_by_split and any(entry.suffix == ".ann" for entry in entries):
        return Splits({"train": path})  # a folder in brat's format: each document of the set has its files
    if "train" not in files_by_split:
        raise DomainbertError(f"{path}: {_describe_missing(entries)}", where="--labelled", expected=_EXPECTED)
    sets = {split: _combine_files(path, split, files) for split, files in files_by_split.items()}
    if "test" not in sets and "validation" in sets:
        sets["test"] = sets.pop("validation")
    unused = tuple(entry.name for entry in entries if _split_of(entry) is None)
    return Splits({split: sets[split] for split in get_args(Split) if split in sets}, unused)


def _name_words(path: Path) -> list[str]:
    return re.findall("[a-z]+", path.name.lower())


def _split_of(path: Path) -> Split | None:
    return next((_SPLITS[word] for word in _name_words(path) if word in _SPLITS), None)


def _combine_files(folder: Path, split: Split, files: list[Path]) -> Single:
    if len(files) == 1:
        return files[0]
    text_files = [file for file in files if _TEXTS.intersection(_name_words(file))]
    label_files = [file for file in files if _LABELS.intersection(_name_words(file))]
    if len(files) == 2 and len(text_files) == len(label_files) == 1 and text_files != label_files:
        return LabelledFile(text=text_files[0], label=label_files[0])
    names = format_names(file.name for file in files)
    raise DomainbertError(
        file=folder,
        found=f"{names} for the {split} set",
        expected="one file, or the texts in a file with 'text' in its name and the labels in a file with 'label'",
    )


def _describe_missing(entries: Iterable[Path]) -> str:
    folders = [entry.name for entry in entries if entry.is_dir() and any(map(_split_of, entry.iterdir()))]
    if folders:
        return f"no training set, but sets in its subfolders {format_names(folders)}; use the path of a subfolder"
    return f"no training set among the files ({format_names(entry.name for entry in entries)})"


def divide(splits: Splits, task: TaskConfig, folder: Path) -> Division:
    """Return all three sets; a missing set is split off the training set.

    The test set takes a tenth of the documents, and then the validation set a tenth of the remaining documents. The
    caller has to write the `new_files` of the result, whose paths are in `folder`.
    """
    sets, new_files, source = dict(splits.sets), dict[Path, str](), splits.sets["train"]
    new_sets: list[Split] = [name for name in ("test", "validation") if name not in sets]
    source_name = set_name(source)
    with TemporaryDirectory() as temporary:
        for name in new_sets:
            fold = hold_out(sets["train"], task, _NUM_PARTS, _SEED, source_name)
            source_name = f"{set_name(source)} without its {name} set"
            # replace the training set, so that the next set is split off the remaining documents
            for split, texts in ((name, fold.validation), ("train", fold.train)):
                sets[split] = _split_file(source, Path(temporary), split)
                for path, text in zip(paths_of(sets[split]), texts, strict=True):
                    path.write_text(text, encoding="utf-8", newline="\n")
                    new_files[folder / path.name] = text
        contents: dict[Split, Labelled[Any]] = {name: read_file(task, sets[name]) for name in get_args(Split)}
    if not new_sets:
        return Division(splits, contents)
    sets |= {name: _split_file(source, folder, name) for name in ("train", *new_sets)}
    reason = _reason(splits, folder, contents)
    return Division(Splits(sets, splits.unused), contents, new_files, reason)


def _split_file(source: Single, folder: Path, split: Split) -> Single:
    """Return the file for a split of `source`, such as `FOLDER/train.conll`; a text and a label file if it has both."""
    if len(paths_of(source)) == 1:
        return folder / f"{split}{format_suffix(path_of(source))}"
    text, label = paths_of(source)
    return LabelledFile(
        text=folder / f"{split}_text{format_suffix(text)}", label=folder / f"{split}_labels{format_suffix(label)}"
    )


def _reason(splits: Splits, folder: Path, contents: Mapping[Split, Labelled[Any]]) -> str:
    if "test" in splits.sets:
        name = path_of(splits.sets["test"]).name
        return (
            f"{name} is the only held-out set, so it is the test set; a tenth of training becomes validation, in "
            f"{folder}/, because scores on the set that selects the epoch are too high"
        )
    advice, num_test, unit = "", len(contents["test"].items), contents["train"].unit
    if num_test < _SMALL_TEST:
        advice = f"; the test set has few texts ({num_test}), so intervals are wide: more labels would help most"
    return (
        f"the single set is split by {unit} into train (81 %), validation (9 %) and test (10 %), in {folder}/: "
        f"a test set must not be used for selection; to select with folds, use `domainbert tune` with k_folds"
        f"{advice}"
    )
