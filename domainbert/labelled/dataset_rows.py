"""Rows of Hugging Face `datasets`: in memory, in a folder that `save_to_disk` has written, or on the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from domainbert.base.errors import DomainbertError, listed
from domainbert.base.paths import check_hub_name, is_on_hub
from domainbert.corpus.rows import Rows

if TYPE_CHECKING:
    from datasets import Dataset, DatasetDict, IterableDataset

Convert = Callable[[Any], Any]


def open_dataset(
    path: Path, config: str | None = None, split: str | None = None, by: Mapping[str, str] | None = None
) -> Rows:
    """The rows of a data set; `datasets` downloads one of the hub into its cache.

    Args:
        path: `hub:NAME`, `hub:NAME@REVISION`, or a folder that `save_to_disk` has written.
        config: the configuration on the hub, where it has several.
        split: where it has several.
        by: slices that all rows are in.

    Raises:
        DomainbertError: it cannot be read; it has several splits and `split` names none of them.
    """
    import datasets

    try:
        if is_on_hub(path):
            name, revision = check_hub_name(str(path))
            found = datasets.load_dataset(name, config, revision=revision)
        else:
            found = datasets.load_from_disk(str(path))
    except DomainbertError:
        raise
    except Exception as error:  # the hub's client raises dozens of unrelated types
        reason = " ".join(str(error).split())
        raise DomainbertError(f"{path}: the data set cannot be read: {reason}") from error
    return dataset_rows(found, str(path), split, by)


def dataset_rows(
    dataset: Dataset | IterableDataset | DatasetDict,
    name: str,
    split: str | None = None,
    by: Mapping[str, str] | None = None,
) -> Rows:
    """The rows of a data set in memory, in which the numbers of a `ClassLabel` are names.

    `name` stands for it in messages. `DomainbertError` if it has several splits and `split` names none of them.
    """
    if isinstance(dataset, Mapping):
        chosen = next(iter(dataset)) if split is None and len(dataset) == 1 else split
        if chosen not in dataset:
            found = "" if split is None else f"no split {split!r}; "
            raise DomainbertError(f"{name}: {found}expected hub_split to name one of its splits: {listed(dataset)}")
        dataset = dataset[chosen]
    elif split is not None and str(getattr(dataset, "split", None)) != split:
        raise DomainbertError(f"{name}: no split {split!r}; expected no hub_split, as it is a single split")
    return Rows(name, _NamedRows(dataset), by or {})


class _NamedRows:
    """Iterates over the rows of a data set, with names in place of the numbers of a `ClassLabel`."""

    def __init__(self, dataset: Dataset | IterableDataset) -> None:
        self.dataset = dataset.with_format(None)
        features = (dataset.features or {}).items()
        self.converts = {key: convert for key, feature in features if (convert := _named(feature)) is not None}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self.dataset:
            yield {**row, **{key: convert(row[key]) for key, convert in self.converts.items()}}


def _named(feature: Any) -> Convert | None:
    """Converts values of a feature that holds class labels; None if it holds none."""
    from datasets import ClassLabel, LargeList, List

    if isinstance(feature, ClassLabel):
        names = feature.names
        return lambda value: None if value is None or value < 0 else names[value]  # -1: not labelled
    if isinstance(feature, (List, LargeList)):
        inner = _named(feature.feature)
        return None if inner is None else lambda value: None if value is None else [inner(item) for item in value]
    if isinstance(feature, dict):
        parts = {key: convert for key, part in feature.items() if (convert := _named(part)) is not None}
        return (lambda value: value and {**value, **{key: parts[key](value[key]) for key in parts}}) if parts else None
    return None
