"""Settings of a corpus, as written in YAML."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from domainbert.base.ranges import Items, PositiveFraction, PositiveInt, Range, check_fields
from domainbert.corpus.source import Source
from domainbert.corpus.sources import list_files


@dataclass(frozen=True)
class CorpusConfig:
    """Where the documents come from, which are kept, and which are held out for validation."""

    shorthand = "sources"  # a path alone is one source, a list is several

    sources: Annotated[list[Source], Items()]
    """Read in this order."""

    min_characters: PositiveInt = 20
    """Documents with fewer characters, after cleaning, are dropped."""

    deduplicate: bool = True
    """Drop a document whose cleaned text was read before, in any source."""

    near_duplicate_threshold: PositiveFraction | None = None
    """Also drop a document that shares at least this part (0.8, say) of its runs of five words with an earlier one:
    the Jaccard similarity, estimated by MinHash. Needs `pip install domainbert[near-duplicates]`."""

    validation_fraction: Annotated[float, Range(0, 1, below=True)] = 0.02
    """The part of the documents held out for validation, chosen by a hash of the cleaned text: a document never
    changes side, whatever else is in the corpus."""

    def __post_init__(self) -> None:
        check_fields(self)

    def input_files(self, without: Collection[str] = ()) -> list[Path]:
        """All files that will be read, in order, but of the sources with the paths `without`; hub datasets have none.

        Raises:
            DomainbertError: a file or folder does not exist, or a folder or glob holds nothing to read.
        """
        return list_files([source for source in self.sources if source.path not in without])
