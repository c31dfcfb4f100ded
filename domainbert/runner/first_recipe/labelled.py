"""Facts of a labelled set: its task, the sizes of its splits, the lengths of its texts."""

from __future__ import annotations

import io
from collections.abc import Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.labelled.contents import words_of_content
from domainbert.labelled.file_sample import look_at
from domainbert.labelled.items import Labelled, check_labels_known, find_labels
from domainbert.labelled.sets import Single, read_file
from domainbert.runner.first_recipe.division import divide
from domainbert.runner.first_recipe.splits import Splits, find_splits
from domainbert.tasks.config import TaskConfig
from domainbert.tasks.recognition import Recognised, recognise

_MEASURED = 20_000  # texts


@dataclass(frozen=True)
class LabelledFacts:
    """A labelled set and its task."""

    path: Path
    recognised: Recognised
    task: TaskConfig
    """As recognised, or mending what it would refuse."""

    mended: str
    """The problem for which files are mended; empty where they need not be."""

    splits: Splits
    """Its sets, all three of them."""

    read: Mapping[str, Labelled[Any]]
    """What they hold, by `train`, `validation` and `test`."""

    texts: list[list[str]]
    """The words of some training texts, whose lengths are those of all."""

    files: Mapping[Path, str]
    """Contents of files that are yet to be written, where the set had to be divided."""

    divided: str
    """The division that was made, and its reason; empty where nothing had to be."""

    def describe(self) -> list[str]:
        """Lines for a person."""
        sizes = ", ".join(f"{name} {len(one.items):,}" for name, one in self.read.items())
        kind = type(self.task).__name__
        others = [f"--task {name}" for name in self.recognised.others]
        lines = [f"{self.path}: {sizes}", f"{kind}: {self.recognised.reason}"]
        lines += [f"it could also be read with {' or '.join(others)}"] if others else []
        lines += [self.divided] if self.divided else []
        lines += [f"{name}, {line.strip()}" for name, one in self.read.items() for line in one.notes.lines]
        lines += [f"mended while it is read, and counted, such as {self.mended}"] if self.mended else []
        lines += [f"left aside in the folder: {', '.join(self.splits.left)}"] if self.splits.left else []
        return lines


def labelled_facts(path: Path, asked: Mapping[str, str], task: str | None, folder: Path) -> LabelledFacts:
    """Read a labelled file or folder.

    Args:
        path: of it.
        asked: keys that the user names: `text_key`, `text_pair_key`, `label_key`.
        task: its task, if the user names it.
        folder: where the parts of a set go that has to be divided.

    Raises:
        DomainbertError: it is of no task, or of two alike; a file is broken, in a way that the task cannot mend; a
            label is not in training.
    """
    splits = find_splits(path)
    recognised = recognise(look_at(splits.train, asked), task)
    given = [one for one in (splits.train, splits.validation, splits.test) if one is not None]
    with redirect_stdout(io.StringIO()):  # readers print the kind of a file
        config, mended = _readable(recognised.task, given)
        division = divide(splits, config, folder)
        train = division.read["train"]
        known = find_labels(train.items)
        config.check_labels(known)
        for one in division.read.values():
            check_labels_known(find_labels(one.items), known, one.path)
    items = train.items[:: -(-len(train.items) // _MEASURED)]
    return LabelledFacts(
        path,
        recognised,
        config,
        mended,
        division.splits,
        division.read,
        [words_of_content(item.content) for item in items],
        division.files,
        division.reason,
    )


def _readable(task: TaskConfig, files: list[Single]) -> tuple[TaskConfig, str]:
    """The task, and an empty string; where files are broken the task that mends them, and the first problem."""
    try:
        for file in files:
            read_file(task, file)
        return task, ""
    except DomainbertError as error:
        repairing = None if task.recognising is None else task.recognising.with_repair(task)
        if repairing is None:
            raise
        problem = error.problems[0].partition("; expected")[0]
    return _readable(repairing, files)[0], problem
