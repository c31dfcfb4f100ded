"""Reads labelled sets from Python: paths, Hugging Face `datasets`, lists of rows."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from domainbert.base.errors import DomainbertError
from domainbert.base.fields import as_plain_list
from domainbert.corpus.rows import Rows
from domainbert.labelled.items import Labelled
from domainbert.labelled.sets import FileTask, LabelledFile, dataset_rows, read_file, read_set

LabelledSource = str | os.PathLike[str] | LabelledFile | Rows | Mapping[str, Any] | Iterable[Any]
"""See `read_labelled`."""

_EXPECTED = "a path, hub:NAME, a datasets.Dataset or a list of rows"


def read_labelled(
    task: FileTask,
    source: LabelledSource,
    *,
    name: str = "rows",
    hub_config: str | None = None,
    hub_split: str | None = None,
) -> Labelled[Any]:
    """Return the items of a labelled set; rows in memory are read like rows of JSONL.

    >>> from domainbert import Classification
    >>> rows = [{"text": "Prices rose.", "label": "up"}, {"text": "Prices fell.", "label": "down"}]
    >>> [item.label for item in read_labelled(Classification(), rows).items]
    ['up', 'down']

    Args:
        task: settings of the task, such as `Ner()`.
        source: a file or a `LabelledFile`; a folder written by `save_to_disk`; `hub:NAME` for a data set of the Hugging
            Face hub; a list of these, which form one set; a `datasets.Dataset`, or a `DatasetDict` with `hub_split`; or
            rows, each a mapping of columns to values. For a pandas table pass `datasets.Dataset.from_pandas(table)`.
        name: name of rows in memory in messages: the third row is `NAME:3`.
        hub_config: configuration of a data set of the hub.
        hub_split: split of a data set that has several.

    Raises:
        DomainbertError: the source has another type, or a file or row is invalid.
    """
    if isinstance(source, (str, os.PathLike)):
        on_hub = hub_config is not None or hub_split is not None
        path = Path(source)
        return read_file(task, LabelledFile(path, hub_config=hub_config, hub_split=hub_split) if on_hub else path)
    source = as_plain_list(source)
    if hasattr(source, "with_format"):  # of `datasets`, which is not imported here
        return read_file(task, dataset_rows(source, name, hub_split))
    if isinstance(source, (LabelledFile, Rows)):
        return read_file(task, source)
    # iterating over a pandas table (`iloc`) would yield its column names
    if not isinstance(source, Iterable) or isinstance(source, (Mapping, bytes)) or hasattr(source, "iloc"):
        advice = " (datasets.Dataset.from_pandas(table) for a pandas table)" if hasattr(source, "iloc") else ""
        raise DomainbertError(where=name, found=type(source).__name__, expected=f"{_EXPECTED}{advice}")
    files_or_rows: list[Any] = list(source)
    if files_or_rows and all(isinstance(file, (str, os.PathLike, LabelledFile)) for file in files_or_rows):
        return read_set(task, [file if isinstance(file, LabelledFile) else Path(file) for file in files_or_rows])
    return read_file(task, Rows(name, files_or_rows))
