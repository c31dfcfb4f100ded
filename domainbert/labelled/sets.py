"""A labelled set as a YAML names it: a file or data set, a file of texts with one of labels beside it, or several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from domainbert.base.errors import DomainbertError, Problems
from domainbert.base.paths import DataPath, is_on_hub
from domainbert.base.ranges import Items
from domainbert.corpus.rows import Rows
from domainbert.labelled.dataset_rows import open_dataset
from domainbert.labelled.items import Labelled, Notes, check_forms, check_labels_known, find_labels

_SAVED = ("state.json", "dataset_dict.json")  # in the folder of a Dataset, of a DatasetDict


@dataclass(frozen=True)
class LabelledFile:
    """A labelled file, or two that belong together line by line; and what holds of all its texts."""

    path: DataPath | None = None
    """A labelled file; a folder that `save_to_disk` of Hugging Face `datasets` has written; or `hub:NAME` (or
    `hub:NAME@REVISION`) for a data set of the hub."""

    text: Path | None = None
    """In its place a file with a text a line."""

    label: Path | None = None
    """The labels of these texts, in the same lines of another file."""

    by: dict[str, str] = field(default_factory=dict)
    """Slices that all its texts are in, such as {language: arabic}, where the rows do not say so: see `by` of the
    format."""

    hub_config: str | None = None
    """The configuration (subset) of a data set of the hub, where it has several."""

    hub_split: str | None = None
    """The split of a data set of the hub, or of a folder with several; null takes the only one."""

    def __post_init__(self) -> None:
        """Check that it is one of the two."""
        parts = set(_parts(self))
        if parts not in ({"path"}, {"text", "label"}):
            found = " and ".join(sorted(parts)) or "none of them"
            raise DomainbertError(f"found {found}; expected path, or text and label")
        if self.hub_config is not None and not is_on_hub(self.texts):
            raise DomainbertError(f"hub_config: found {self.hub_config!r} beside {self.texts}; expected hub:NAME")

    @property
    def texts(self) -> Path:
        """The file that has the texts, by which it is named."""
        found = self.path or self.text
        assert found is not None
        return found

    def __str__(self) -> str:
        return str(self.texts)


Single = Path | LabelledFile
LabelledSet = DataPath | LabelledFile | Annotated[list[DataPath | LabelledFile], Items()]
"""The type of a setting that names a labelled set."""

Readable = Single | Rows
"""A file of a labelled set as tasks read it: a data set is rows."""


def path_of(file: Readable) -> Path:
    """The path of the texts of a file, by which it is named; of rows in memory their name."""
    if isinstance(file, Rows):
        return Path(file.name)
    return file if isinstance(file, Path) else file.texts


def files_of(given: LabelledSet) -> list[Single]:
    """The files of a set, one by one."""
    return list(given) if isinstance(given, list) else [given]


def paths_of(given: LabelledSet) -> list[Path]:
    """All paths that a set is read from."""
    found: list[Path] = []
    for file in files_of(given):
        found += [file] if isinstance(file, Path) else [one for one in (file.path, file.text, file.label) if one]
    return found


def moved(given: LabelledSet, paths: Sequence[Path], empty: Sequence[Path]) -> Any:
    """A set as plain values for a YAML, read from other paths, which are in the order of `paths_of`.

    Of a list, files with nothing in them are left out.
    """
    left, found = list(paths), []
    for file in files_of(given):
        here = {key: left.pop(0) for key in _parts(file)}
        values: Any = {key: str(path) for key, path in here.items()}
        values = values["path"] if isinstance(file, Path) else {**values, "by": dict(file.by)}
        if not set(here.values()) & set(empty):
            found.append(values)
    return found if isinstance(given, list) else found[0]


def _parts(file: Single) -> list[str]:
    if isinstance(file, Path):
        return ["path"]
    return [key for key in ("path", "text", "label") if getattr(file, key) is not None]


def set_name(given: LabelledSet) -> str:
    """A set in reports: the files of its texts."""
    return ", ".join(map(str, files_of(given)))


class FileTask(Protocol):
    """The settings of a task, as far as its files are read by them: `TaskConfig` has them."""

    @property
    def name(self) -> str:
        """The task's name, for messages."""

    @property
    def by(self) -> tuple[str, ...]:
        """The keys whose values are slices."""

    def read(self, path: Any) -> Labelled[Any]:
        """The items of a file, or of two that belong together."""


def _is_dataset(path: Path) -> bool:
    """Whether a path is `hub:NAME`, or a folder that `save_to_disk` has written."""
    return is_on_hub(path) or any((path / name).is_file() for name in _SAVED)


def opened(file: Readable) -> Readable:
    """The rows of a data set, see `open_dataset`; any other file as it is."""
    if isinstance(file, Rows):
        return file
    one = LabelledFile(file) if isinstance(file, Path) else file
    if one.path is not None and _is_dataset(one.path):
        return open_dataset(one.path, one.hub_config, one.hub_split, one.by)
    if one.hub_split is not None:
        expected = "expected hub:NAME, or a folder that save_to_disk has written"
        raise DomainbertError(f"{file}: hub_split: found {one.hub_split!r} beside a file; {expected}")
    return file


def read_file(config: FileTask, file: Readable) -> Labelled[Any]:
    """The items of one file; `DomainbertError` if the task cannot read two together, or slices."""
    file = opened(file)
    if not isinstance(file, Path):
        if isinstance(file, LabelledFile) and not hasattr(getattr(config, "format", None), "by"):
            raise DomainbertError(f"{file}: {config.name} reads a file by itself; expected its path alone")
        if unknown := sorted(set(file.by) - set(config.by)):
            found = f"is said to be in slices by {', '.join(unknown)}"
            raise DomainbertError(f"{file}: {found}; expected keys of format.by")
    return config.read(file)


AnyTask = TypeVar("AnyTask", bound=FileTask)


def read_set(
    config: AnyTask, given: LabelledSet, read: Callable[[AnyTask, Single], Labelled[Any]] = read_file
) -> Labelled[Any]:
    """The items of a labelled set, whose files `read` reads; `DomainbertError` with all that is wrong in any file."""
    found, problems = [], Problems(set_name(given))
    for file in files_of(given):
        try:
            found.append(read(config, file))
        except DomainbertError as error:
            if not isinstance(given, list):
                raise
            for problem in error.problems:
                problems.add(problem)
    problems.raise_if_any()
    check_forms(found)
    return found[0] if len(found) == 1 else _joined(found)


def check_set_known(given: Labelled[Any], known: Iterable[str]) -> None:
    """See `check_labels_known`, for each file of a set."""
    known = list(known)
    for part in given.parts or [given]:
        check_labels_known(find_labels(part.items), known, part.path)


def _check_names(parts: Sequence[Labelled[Any]]) -> None:
    """`DomainbertError` where labels are numbers without names in one file, and names in another."""
    nameless = [part for part in parts if getattr(part, "nameless", False)]
    for part in parts if nameless else ():
        if named := [label for label in find_labels(part.items) if not label.isdecimal()]:
            found = f"labels are numbers without names, but {part.path} has {named[0]!r}"
            raise DomainbertError(f"{nameless[0].path}: {found}; expected names in both (label_names gives them)")


def _joined(parts: Sequence[Labelled[Any]]) -> Labelled[Any]:
    """Several files as one set, named by the folder that they have in common; no document is in two of them."""
    _check_names(parts)
    folder = Path(os.path.commonpath([part.path.absolute().parent for part in parts]))
    items: list[Any] = []
    before = 0  # documents of the files before
    for part in parts:
        if not hasattr(part, "num_documents"):
            items += part.items
            continue
        numbers = {
            one: number for number, one in enumerate(dict.fromkeys(item.document for item in part.items), before)
        }
        items += [replace(item, document=numbers[item.document]) for item in part.items]
        before += len(numbers)
    notes = Notes()
    for part in parts:
        notes.left_out += part.notes.left_out
        notes.changed += part.notes.changed
    return replace(parts[0], path=folder, items=items, parts=tuple(parts), notes=notes)
