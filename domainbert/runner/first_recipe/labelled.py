"""Facts of a labelled set: its task, the sizes of its splits, and the lengths of its texts."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.labelled.contents import words_of_content
from domainbert.labelled.file_sample import read_sample
from domainbert.labelled.items import Labelled, check_labels_known, find_labels
from domainbert.labelled.sets import Single, read_file
from domainbert.runner.first_recipe.division import divide
from domainbert.runner.first_recipe.splits import Splits, find_splits
from domainbert.tasks.config import DetectedTask, FormatDetector, TaskConfig
from domainbert.tasks.recognition import detect_task

_MAX_MEASURED_TEXTS = 20_000  # texts


@dataclass(frozen=True)
class LabelledFacts:
    """Facts of a labelled set: its task, its splits and their contents."""

    path: Path
    detected: DetectedTask
    task: TaskConfig
    """The detected task, with repair enabled if the files need it."""

    repaired: str
    """First problem that has to be repaired; empty if there is none."""

    splits: Splits
    """Files of all three sets."""

    contents: Mapping[str, Labelled[Any]]
    """Items of the sets by `train`, `validation` and `test`."""

    texts: list[list[str]]
    """Words of a sample of the training texts."""

    files: Mapping[Path, str]
    """Contents of the files to write, if the set was split."""

    division: str
    """Sentence that states the split and its reason; empty if the files already are three sets."""

    @property
    def format_detector(self) -> FormatDetector[Any]:
        """Return the part of the task that recognised the file."""
        assert self.task.format_detector is not None
        return self.task.format_detector

    def describe(self) -> list[str]:
        """Return lines for the user: sizes, task, splits, notes and repairs."""
        sizes = ", ".join(f"{name} {len(labelled.items):,}" for name, labelled in self.contents.items())
        others = [f"--task {name}" for name in self.detected.others]
        lines = [f"{self.path}: {sizes}", f"{type(self.task).__name__}: {self.detected.reason}"]
        lines += [f"also possible: {' or '.join(others)}"] if others else []
        lines += [self.division] if self.division else []
        lines += [f"{name}, {note.strip()}" for name, part in self.contents.items() for note in part.notes.lines]
        lines += [f"repaired while reading, and counted, such as {self.repaired}"] if self.repaired else []
        lines += [f"not used in the folder: {', '.join(self.splits.unused)}"] if self.splits.unused else []
        return lines


def labelled_facts(path: Path, keys: Mapping[str, str], task: str | None, folder: Path) -> LabelledFacts:
    """Return the facts of a labelled file or folder, with a missing test or validation set split off.

    Args:
        path: the file or folder.
        keys: keys that the user names: `text_key`, `text_pair_key`, `label_key`.
        task: name of the task; None detects it.
        folder: folder for the parts of a set that has to be split.

    Raises:
        DomainbertError: no task, or several tasks, fit the file; a file has an error that the task cannot repair; a
            label does not occur in training.
    """
    splits = find_splits(path)
    detected = detect_task(read_sample(splits.train, keys), task)
    with redirect_stdout(io.StringIO()):  # readers print the kind of a file
        config, repaired = _task_for_files(detected.task, splits.sets)
        division = divide(splits, config, folder)
        train = division.contents["train"]
        labels = find_labels(train.items)
        config.check_labels(labels)
        for labelled in division.contents.values():
            check_labels_known(find_labels(labelled.items), labels, labelled.path)
    items = train.items[:: -(-len(train.items) // _MAX_MEASURED_TEXTS)]
    return LabelledFacts(
        path,
        detected,
        config,
        repaired,
        division.splits,
        division.contents,
        [words_of_content(item.content) for item in items],
        division.files,
        division.reason,
    )


def _task_for_files(task: TaskConfig, files: list[Single]) -> tuple[TaskConfig, str]:
    """Return the task and "", or, if it cannot read the files, the task with repair enabled and the first problem."""
    try:
        for file in files:
            read_file(task, file)
        return task, ""
    except DomainbertError as error:
        with_repair = None if task.format_detector is None else task.format_detector.with_repair(task)
        if with_repair is None:
            raise
        problem = error.problems[0].partition("; expected")[0]
    return _task_for_files(with_repair, files)[0], problem
