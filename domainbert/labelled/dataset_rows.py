"""Rows of Hugging Face `datasets`: in memory, in a folder written by `save_to_disk`, or on the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, format_names
from domainbert.base.paths import check_hub_name, is_on_hub
from domainbert.corpus.rows import Rows

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset


def open_dataset(
    path: Path, config: str | None = None, split: str | None = None, slices: Mapping[str, str] | None = None
) -> Rows:
    """Return the rows of a data set; `datasets` downloads a data set of the hub into its cache.

    Args:
        path: `hub:NAME`, `hub:NAME@REVISION`, or a folder written by `save_to_disk`.
        config: configuration on the hub, if there are several.
        split: name of the split, if there are several.
        slices: slices (subgroups for evaluation) of all rows: value by key, such as `{"year": "2020"}`.

    Raises:
        DomainbertError: the data set cannot be read, or has several splits and `split` names none of them.
    """
    import datasets

    try:
        if is_on_hub(path):
            name, revision = check_hub_name(str(path))
            dataset = datasets.load_dataset(name, config, revision=revision)
        else:
            dataset = datasets.load_from_disk(str(path))
    except DomainbertError:
        raise
    except Exception as error:  # the hub's client raises dozens of unrelated types
        reason = " ".join(str(error).split())
        raise DomainbertError(f"{path}: the data set cannot be read: {reason}") from error
    return dataset_rows(dataset, str(path), split, slices)


def dataset_rows(
    dataset: Dataset | IterableDataset | DatasetDict,
    name: str,
    split: str | None = None,
    slices: Mapping[str, str] | None = None,
) -> Rows:
    """Return the rows of a data set in memory, with `ClassLabel` numbers replaced by their names.

    `name` identifies the data set in messages; for `slices` see `open_dataset`. Raise `DomainbertError` if it has
    several splits and `split` names none of them.
    """
    if isinstance(dataset, Mapping):
        chosen = next(iter(dataset)) if split is None and len(dataset) == 1 else split
        if chosen not in dataset:
            missing = "" if split is None else f"no split {split!r}; "
            raise DomainbertError(
                f"{name}: {missing}expected hub_split to name one of its splits: {format_names(dataset)}"
            )
        dataset = dataset[chosen]
    elif split is not None and str(getattr(dataset, "split", None)) != split:
        raise DomainbertError(f"{name}: no split {split!r}; expected no hub_split, because it is a single split")
    return Rows(name, _NamedRows(dataset), slices or {})


class _NamedRows:
    """Iterates over rows, with `ClassLabel` numbers replaced by their names."""

    def __init__(self, dataset: Dataset | IterableDataset) -> None:
        self.dataset = dataset.with_format(None)
        features = (dataset.features or {}).items()
        self.converters = {key: convert for key, feature in features if (convert := _name_converter(feature))}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.dataset:
            yield _convert_fields(self.converters, row)


def _name_converter(feature: Any) -> Callable[[Any], Any] | None:
    """Return a function that replaces class numbers by names in a value of a feature; None if it has no classes."""
    from datasets import ClassLabel, LargeList, List

    if isinstance(feature, ClassLabel):
        return partial(_class_name, feature.names)
    if isinstance(feature, (List, LargeList)):
        convert_item = _name_converter(feature.feature)
        return None if convert_item is None else partial(_convert_items, convert_item)
    if isinstance(feature, dict):
        converters = {key: convert for key, field in feature.items() if (convert := _name_converter(field))}
        return partial(_convert_fields, converters) if converters else None
    return None


def _class_name(names: Sequence[str], value: int | None) -> str | None:
    """Return the name of a class number; None for -1, which means unlabelled."""
    return None if value is None or value < 0 else names[value]


def _convert_items(convert: Callable[[Any], Any], values: Sequence[Any] | None) -> list[Any] | None:
    return None if values is None else list(map(convert, values))


def _convert_fields(converters: Mapping[str, Callable[[Any], Any]], row: Mapping[str, Any] | None) -> Any:
    """Return a row, or None, with the values of some keys converted."""
    return row and {**row, **{key: convert(row[key]) for key, convert in converters.items()}}
