"""Settings of one source of a corpus, as written in YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, get_args

from domainbert.base.errors import DomainbertError
from domainbert.base.paths import check_hub_name
from domainbert.base.ranges import Range, check_fields

HUB_PREFIX = "hub:"
CorpusFormat = Literal["auto", "text", "jsonl", "csv", "parquet", "conll"]


@dataclass(frozen=True)
class Source:
    """One file, folder, glob or Hugging Face hub dataset."""

    shorthand = "path"  # no annotation, so no field; a text alone is the path

    path: str
    """A file (.txt, .jsonl, .csv, .parquet or .conll, plain, .gz or .zst), a folder of such files, a glob such as
    `texts/**/*.txt`, or `hub:NAME` for a dataset of the Hugging Face hub, which is streamed."""

    format: CorpusFormat = "auto"
    """The format of the files. "auto" tells it by the suffix, and ignores other files of a folder; a .txt file whose
    first lines are CoNLL or JSONL is read as such, and counted. Another value applies to all files, whatever their
    suffix."""

    text_key: str = "text"
    """The key (JSONL) or column (CSV, Parquet, hub) that holds the text."""

    documents: Literal["file", "blank_line", "line"] = "file"
    """For plain text only. One document is a whole file, the text between blank lines, or a line."""

    weight: Annotated[float, Range(0, 1000, above=True)] = 1.0
    """Copies of a document: 2 writes each training document twice, 0.5 keeps half of all documents, chosen
    by their hash. A validation document is never written twice."""

    hub_config: str | None = None
    """The configuration (subset) of a hub dataset, where it has several."""

    hub_split: str = "train"
    """The split of a hub dataset that is read; domainbert makes its own split into training and validation."""

    def __post_init__(self) -> None:
        check_fields(self)
        if self.documents not in ("file", "blank_line", "line"):
            raise DomainbertError(f"documents: {self.documents!r}; expected file, blank_line or line")
        if self.format not in get_args(CorpusFormat):
            raise DomainbertError(f"format: {self.format!r}; expected one of {', '.join(get_args(CorpusFormat))}")
        if not self.path:
            raise DomainbertError("path: found ''; expected a file, folder, glob or hub:NAME")
        if self.path.startswith(HUB_PREFIX):
            _check_dataset(self.path)

    @property
    def hub_name(self) -> str | None:
        """`NAME` of `hub:NAME`, or None for a source on disk."""
        return self.path[len(HUB_PREFIX) :] if self.path.startswith(HUB_PREFIX) else None


def _check_dataset(path: str) -> None:
    name, revision = check_hub_name(path)
    if revision is not None:
        raise DomainbertError(f"path: found {path}; expected hub:{name}, which is read as it is now on the hub")
