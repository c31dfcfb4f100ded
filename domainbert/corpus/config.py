"""What a corpus is made of, as the YAML says it."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from domainbert.errors import DomainbertError

HUB_PREFIX = "hub:"


@dataclass(frozen=True)
class Source:
    """One file, folder, glob or Hugging Face hub dataset."""

    path: str
    """A file (.txt, .jsonl, .csv, .parquet or .conll, plain, .gz or .zst), a folder of such files, a glob such as
    `texts/**/*.txt`, or `hub:NAME` for a dataset of the Hugging Face hub, which is streamed."""

    text_key: str = "text"
    """The key (JSONL) or column (CSV, Parquet, hub) that holds the text."""

    documents: Literal["file", "blank_line", "line"] = "file"
    """Plain text only: what one document is: a whole file, what stands between blank lines, or a line."""

    weight: float = 1.0
    """How often a document is seen: 2 writes each training document twice, 0.5 keeps half of all documents, chosen by
    their hash. A validation document is never written twice."""

    hub_config: str | None = None
    """The configuration (subset) of a hub dataset, where it has several."""

    hub_split: str = "train"
    """The split of a hub dataset that is read; domainbert makes its own split into training and validation."""

    def __post_init__(self) -> None:
        if self.documents not in ("file", "blank_line", "line"):
            raise DomainbertError(f"documents: {self.documents!r}; expected file, blank_line or line")
        if not (math.isfinite(self.weight) and self.weight > 0):
            raise DomainbertError(f"weight: {self.weight}; expected a number above 0")
        if self.path in ("", HUB_PREFIX):
            raise DomainbertError(f"path: {self.path!r} names nothing; expected a file, folder, glob or hub:NAME")

    @property
    def hub_name(self) -> str | None:
        """`NAME` of `hub:NAME`, or None for a source on disk."""
        return self.path[len(HUB_PREFIX) :] if self.path.startswith(HUB_PREFIX) else None


@dataclass(frozen=True)
class CorpusConfig:
    """Where the documents come from, which are kept, and which are held out for validation."""

    sources: list[Source]
    """Read in this order."""

    min_characters: int = 20
    """Documents with fewer characters, after cleaning, are dropped."""

    deduplicate: bool = True
    """Drop a document whose cleaned text was read before, in any source."""

    near_duplicate_threshold: float | None = None
    """Also drop a document that shares at least this part (0.8, say) of its runs of five words with an earlier one:
    the Jaccard similarity, estimated by MinHash. Needs `pip install domainbert[near-duplicates]`."""

    validation_fraction: float = 0.02
    """The part of the documents held out for validation, chosen by a hash of the cleaned text: a document never
    changes side, whatever else is in the corpus."""

    def __post_init__(self) -> None:
        if not self.sources:
            raise DomainbertError("sources: empty; expected at least one source")
        if self.min_characters < 1:
            raise DomainbertError(f"min_characters: {self.min_characters}; expected at least 1")
        threshold = self.near_duplicate_threshold
        if threshold is not None and not 0 < threshold <= 1:
            raise DomainbertError(f"near_duplicate_threshold: {threshold}; expected a number above 0 and up to 1")
        if not 0 <= self.validation_fraction < 1:
            raise DomainbertError(f"validation_fraction: {self.validation_fraction}; expected from 0 to below 1")

    def input_files(self, without: Collection[str] = ()) -> list[Path]:
        """Every file that will be read, in order; hub datasets have none.

        Args:
            without: paths of sources that need not be there yet.

        Raises:
            DomainbertError: a file or folder does not exist, or a folder or glob holds nothing to read.
        """
        from domainbert.corpus.sources import list_files

        return list_files([source for source in self.sources if source.path not in without])
