"""Labelled sets as named in a YAML: a file, a text file with a label file, a data set of Hugging Face, or a list."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from domainbert.base.errors import DomainbertError, Problems, format_names
from domainbert.base.fields import Items, renamed_from
from domainbert.base.paths import DataPath, check_hub_name, check_regular, is_on_hub
from domainbert.corpus.rows import Rows
from domainbert.labelled.items import Labelled, ReaderCounts, check_unicode_forms, find_labels

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset

_SAVED_FILES = ("state.json", "dataset_dict.json")  # written by `save_to_disk` of a Dataset and a DatasetDict


@dataclass(frozen=True)
class LabelledFile:
    """A labelled file, or a text file and a label file with parallel lines; and properties of all its texts."""

    path: DataPath | None = None
    """A labelled file; a folder written by `save_to_disk` of Hugging Face `datasets`; or `hub:NAME` (or
    `hub:NAME@REVISION`) for a data set of the hub."""

    text: Path | None = None
    """A file with one text per line, instead of `path`."""

    label: Path | None = None
    """A file with the label of each line of `text`."""

    slices: dict[str, str] = field(default_factory=dict, metadata=renamed_from("by"))
    """Slices of all texts of the file, such as {language: arabic}, if the rows do not have them: see `slice_keys` of
    the format."""

    hub_config: str | None = None
    """Configuration (subset) of a data set of the hub, if it has several."""

    hub_split: str | None = None
    """Split of a data set of the hub, or of a folder with several splits; null takes the only split."""

    def __post_init__(self) -> None:
        fields = set(_path_fields(self))
        if fields not in ({"path"}, {"text", "label"}):
            found = " and ".join(map(repr, sorted(fields))) or "no 'path'"
            raise DomainbertError(found=found, expected="only 'path', or 'text' and 'label' together")
        if self.hub_config is not None and not is_on_hub(self.texts):
            raise DomainbertError(
                where="hub_config", found=f"{self.hub_config!r} for {self.texts}", expected="a path hub:NAME"
            )

    @property
    def texts(self) -> Path:
        """The path of the file with the texts, which names the set in messages."""
        path = self.path or self.text
        assert path is not None
        return path

    def __str__(self) -> str:
        return str(self.texts)


Single = Path | LabelledFile
"""One labelled file."""

LabelledSet = DataPath | LabelledFile | Annotated[list[DataPath | LabelledFile], Items()]
"""A labelled set, as in settings: one labelled file, or a list of files."""

Readable = Single | Rows
"""One labelled file, or the rows of a data set."""


def path_of(file: Readable) -> Path:
    """Return the path of the file with the texts; for rows in memory, their name as a path."""
    return Path(str(file))


def files_of(labelled_set: LabelledSet) -> list[Single]:
    """Return the files of a set."""
    return list(labelled_set) if isinstance(labelled_set, list) else [labelled_set]


def paths_of(labelled_set: LabelledSet) -> list[Path]:
    """Return all paths that a set is read from: text and label file are two paths."""
    files = files_of(labelled_set)
    return [file if isinstance(file, Path) else getattr(file, key) for file in files for key in _path_fields(file)]


def with_paths(labelled_set: LabelledSet, paths: Sequence[Path], empty: Sequence[Path]) -> Any:
    """Return the YAML value of the same set at other paths (order of `paths_of`); files in `empty` are omitted."""
    remaining = iter(paths)
    entries: list[Any] = []
    for file in files_of(labelled_set):
        path_by_field = {key: next(remaining) for key in _path_fields(file)}
        values = {key: str(path) for key, path in path_by_field.items()}
        if not set(path_by_field.values()) & set(empty):
            entries.append(values["path"] if isinstance(file, Path) else {**values, "slices": dict(file.slices)})
    return entries if isinstance(labelled_set, list) else entries[0]


def _path_fields(file: Single) -> list[str]:
    if isinstance(file, Path):
        return ["path"]
    return [key for key in ("path", "text", "label") if getattr(file, key) is not None]


def set_name(labelled_set: LabelledSet) -> str:
    """Return the name of a set in reports and messages: the files with its texts, separated by commas."""
    return ", ".join(map(str, files_of(labelled_set)))


class FileTask(Protocol):
    """Settings of a task for reading files; see `TaskConfig`, which implements it."""

    @property
    def name(self) -> str:
        """The name of the task, for messages."""

    @property
    def slice_keys(self) -> tuple[str, ...]:
        """The keys whose values are scored as slices."""

    def read(self, path: Any) -> Labelled[Any]:
        """Return the items of a file."""


def open_rows(file: Readable) -> Readable:
    """Return the rows of a data set of Hugging Face; return other files, and rows in memory, unchanged."""
    path = file if isinstance(file, Path) else getattr(file, "path", None)
    if path is not None and (is_on_hub(path) or any((path / name).is_file() for name in _SAVED_FILES)):
        return open_dataset(file if isinstance(file, LabelledFile) else LabelledFile(path))
    if isinstance(file, LabelledFile) and file.hub_split is not None:
        expected = "it only for hub:NAME, or a folder written by save_to_disk"
        raise DomainbertError(file=file, where="hub_split", found=f"{file.hub_split!r} for a file", expected=expected)
    return file


def read_file(config: FileTask, file: Readable) -> Labelled[Any]:
    """Return the items of one file; raise `DomainbertError` if the task does not read its label file or slices."""
    opened = open_rows(file)
    if isinstance(opened, LabelledFile) and opened.label is None and not opened.slices:
        opened = opened.texts
    if isinstance(opened, Path):
        return config.read(opened)
    has_slice_keys = bool(config.slice_keys) or hasattr(getattr(config, "format", None), "slice_keys")
    if not has_slice_keys and (isinstance(opened, LabelledFile) or opened.slices):
        raise DomainbertError(f"task {config.name!r} reads no `label` or `slices`", file=file, expected="only `path`")
    if unknown := sorted(set(opened.slices) - set(config.slice_keys)):
        advice = f"add it to format.slice_keys (now {format_names(config.slice_keys)}), or remove it from slices"
        raise DomainbertError(file=file, where="slices", found=format_names(unknown), hint=advice)
    return config.read(opened)


AnyTask = TypeVar("AnyTask", bound=FileTask)


def read_set(
    config: AnyTask, labelled_set: LabelledSet, read: Callable[[AnyTask, Single], Labelled[Any]] = read_file
) -> Labelled[Any]:
    """Return the items of all files of a set, read with `read`; raise one `DomainbertError` for all invalid files."""
    parts, problems = [], Problems(set_name(labelled_set))
    for file in files_of(labelled_set):
        try:
            parts.append(read(config, file))
        except DomainbertError as error:
            if not isinstance(labelled_set, list):
                raise  # the error of a single file needs no summary
            for part in error.errors:
                problems.add(part)
    problems.raise_if_any()
    check_unicode_forms(parts)
    return parts[0] if len(parts) == 1 else _join_files(parts)


def _join_files(parts: Sequence[Labelled[Any]]) -> Labelled[Any]:
    nameless = [part for part in parts if part.nameless]
    for part in parts if nameless else ():
        if names := [label for label in find_labels(part.items) if not label.isdecimal()]:
            found = f"labels are numbers without names, but {part.path} has {names[0]!r}"
            raise DomainbertError(found, file=nameless[0].path, expected="names in both (set format.label_names)")
    folder = Path(os.path.commonpath([part.path.absolute().parent for part in parts]))
    items: list[Any] = []
    num_previous = 0  # documents of the previous files: the joined files need distinct document indices
    for part in parts:
        if not hasattr(part, "num_documents"):  # texts are not parts of documents
            items += part.items
            continue
        documents = dict.fromkeys(item.document for item in part.items)
        index_of = {document: index for index, document in enumerate(documents, num_previous)}
        items += [replace(item, document=index_of[item.document]) for item in part.items]
        num_previous += len(documents)
    notes = ReaderCounts()
    for part in parts:
        notes.left_out += part.notes.left_out
        notes.changed += part.notes.changed
    return replace(parts[0], path=folder, items=items, parts=tuple(parts), notes=notes)


def open_dataset(file: LabelledFile) -> Rows:
    """Return the rows of a data set of the hub, or of a folder written by `save_to_disk`.

    Raise `DomainbertError` if the data set cannot be read; `datasets` downloads one of the hub into its cache.
    """
    import datasets

    path = file.texts
    try:
        if is_on_hub(path):
            name, revision = check_hub_name(str(path))
            dataset = datasets.load_dataset(name, file.hub_config, revision=revision)
        else:
            check_regular(*path.rglob("*"))
            dataset = datasets.load_from_disk(str(path))
    except DomainbertError:  # an invalid name, or a pipe
        raise
    except Exception as error:  # the hub's client raises dozens of unrelated types
        reason = " ".join(str(error).split())
        raise DomainbertError(f"the data set cannot be read: {reason}", file=path) from error
    return dataset_rows(dataset, str(path), file.hub_split, file.slices)


def dataset_rows(
    dataset: Dataset | IterableDataset | DatasetDict,
    name: str,
    split: str | None = None,
    slices: Mapping[str, str] | None = None,
) -> Rows:
    """Return the rows of a data set in memory, with `ClassLabel` numbers replaced by their names.

    `name` identifies the data set in messages. Raise `DomainbertError` if it has several splits and `split` names none.
    """
    if isinstance(dataset, Mapping):  # a DatasetDict: data set by name of the split
        chosen = next(iter(dataset)) if split is None and len(dataset) == 1 else split
        if chosen not in dataset:
            found = "several splits" if split is None else f"no split {split!r}"
            raise DomainbertError(where=name, found=found, expected=f"hub_split to be one of {format_names(dataset)}")
        dataset = dataset[chosen]
    elif split is not None and str(getattr(dataset, "split", None)) != split:
        raise DomainbertError(
            where=f"{name}: hub_split", found=f"{split!r} for a single split", expected="no hub_split"
        )
    return Rows(name, _NamedRows(dataset), slices or {})


class _NamedRows:
    def __init__(self, dataset: Dataset | IterableDataset) -> None:
        self.dataset = dataset.with_format(None)
        self.convert = _name_converter(dataset.features or {})

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return map(self.convert, self.dataset) if self.convert else iter(self.dataset)


def _name_converter(feature: Any) -> Callable[[Any], Any] | None:
    from datasets import ClassLabel, LargeList, List

    if isinstance(feature, ClassLabel):
        names = feature.names
        return lambda number: None if number is None or number < 0 else names[number]  # -1: unlabelled
    if isinstance(feature, (List, LargeList)):
        convert_item = _name_converter(feature.feature)
        return convert_item and (lambda values: values and list(map(convert_item, values)))
    fields = feature.items() if isinstance(feature, dict) else ()
    if converters := {key: convert for key, field in fields if (convert := _name_converter(field))}:
        return lambda row: row and {**row, **{key: convert(row[key]) for key, convert in converters.items()}}
    return None
